"""Turns operators and storages into the records of a trace, in trace ids."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from .layers import layer_of_modules
from .lifetimes import PERSISTENT, TraceOperator
from .observer import Event, StepObserver
from .recorder import Recording
from .trace import Record

_BIND_KIND = {"param": "param", "buffer": "buffer", "input": "input", "grad": "grad"}


class RecordBuilder:
    """Numbers tensors and builds all records of one trace.

    Tensor ids: inputs, parameters, buffers, optimizer state, then all others in order of birth.
    """

    def __init__(
        self,
        observer: StepObserver,
        recording: Recording,
        operators: list[TraceOperator],
        unpacks: dict[int, list[int]],
    ) -> None:
        self._observer = observer
        self._recording = recording
        self._operators = operators
        self._unpacks = unpacks
        by_path = layer_of_modules(observer.modules[0][1])
        self._layers = [by_path.get(path) for path, _ in observer.modules]
        self._module_of_birth: dict[int, int | None] = {}
        self._ids = self._number_tensors()
        storages = recording.table.storages
        self._parameter_ids = {
            storages[number].parameter: tensor
            for number, tensor in self._ids.items()
            if storages[number].kind == "param"
        }
        self._layer_of_parameter = self._find_parameter_layers()

    def _number_tensors(self) -> dict[int, int]:
        storages = self._recording.table.storages
        existing = [n for n, s in enumerate(storages) if s.kind in PERSISTENT and s.bytes]
        order = ("input", "param", "buffer", "optimizer_state")
        existing.sort(key=lambda number: order.index(storages[number].kind or ""))
        ids = {number: index for index, number in enumerate(existing)}
        for operator in self._operators:
            for number in operator.fresh:
                ids.setdefault(number, len(ids))
                self._module_of_birth.setdefault(number, operator.module)
        return ids

    def _find_parameter_layers(self) -> dict[int, int | None]:
        index_of = {id(p): index for index, (_, p) in enumerate(self._observer.parameters)}
        layers: dict[int, int | None] = {}
        for module_index, (_, module) in enumerate(self._observer.modules):
            for parameter in module.parameters(recurse=False):
                layers.setdefault(index_of[id(parameter)], self._layers[module_index])
        return layers

    def tensors(self) -> list[Record]:
        """Tensor records, ids dense from 0."""
        return [self._tensor(number, tensor) for number, tensor in self._ids.items()]

    def _tensor(self, number: int, tensor: int) -> Record:
        storage = self._recording.table.storages[number]
        record: Record = {
            "t": tensor,
            "kind": storage.kind,
            "bytes": storage.bytes,
            "dtype": _dtype_name(storage.dtype),
        }
        if storage.names:
            record["name"] = storage.names[0]
        if storage.role is not None:
            record["role"] = storage.role
        if storage.kind in ("optimizer_state", "grad"):
            record["of"] = self._parameter_ids[storage.parameter]
        if storage.kind == "param":
            record["shape"] = list(storage.shape)
        layer = self._layer(number)
        if layer is not None:
            record["layer"] = layer
        record.update(self._binding(number))
        return record

    def _layer(self, number: int) -> int | None:
        storage = self._recording.table.storages[number]
        if storage.parameter is not None:
            return self._layer_of_parameter.get(storage.parameter)
        module = self._module_of_birth.get(number)
        return None if module is None else self._layers[module]

    def _binding(self, number: int) -> Record:
        """Say how a running program can name the tensor, and from which event on."""
        storage = self._recording.table.storages[number]
        kind = storage.kind or ""
        if kind == "optimizer_state":
            role = "master" if storage.role == "master" else "state"
            return {"bind": {"kind": role}, "bound_at": -1}
        if kind == "grad":
            return {"bind": {"kind": "grad"}, "bound_at": self._recording.gradients[number]}
        if kind in _BIND_KIND:
            bind: Record = {"kind": kind}
            if len(storage.names) > 1:
                bind["names"] = storage.names
            return {"bind": bind, "bound_at": -1}
        pack = self._recording.packs.get(number)
        if pack is None:
            return {}
        bind = {"kind": "saved"}
        if pack.module is not None:
            bind["m"] = pack.module
        bind["ord"] = pack.ordinal
        # The next event is the first at which the name exists.
        return {"bind": bind, "bound_at": pack.event + 1}

    def modules(self) -> list[Record]:
        """Module records with directly owned parameters, in ``named_parameters`` order."""
        index_of = {id(p): index for index, (_, p) in enumerate(self._observer.parameters)}
        records = []
        for index, (path, module) in enumerate(self._observer.modules):
            owned = [
                self._parameter_ids[index_of[id(parameter)]]
                for parameter in module.parameters(recurse=False)
            ]
            record: Record = {
                "m": index,
                "path": path,
                "class": type(module).__name__,
                "params": owned,
            }
            if self._layers[index] is not None:
                record["layer"] = self._layers[index]
            records.append(record)
        return records

    def events(self) -> list[Record]:
        """Event records."""
        records = []
        for index, event in enumerate(self._recording.events):
            record: Record = {"e": index, "event": event.kind}
            if event.module is not None:
                record["m"] = event.module
            if event.parameter is not None:
                record["t"] = self._parameter_ids[event.parameter]
            if event.bucket is not None:
                record["b"] = event.bucket
            if event.micro_batch is not None:
                record["mb"] = event.micro_batch
            records.append(record)
        return records

    def unpacks(self) -> list[Record]:
        """Unpack records, by tensor id."""
        records = [
            {"t": self._ids[number], "u": sorted(uses)} for number, uses in self._unpacks.items()
        ]
        return sorted(records, key=lambda record: record["t"])

    def ops(self) -> list[Record]:
        """Operator records."""
        return [self._op(index, operator) for index, operator in enumerate(self._operators)]

    def _op(self, index: int, operator: TraceOperator) -> Record:
        record: Record = {"op": index, "name": operator.name, "phase": operator.phase}
        if operator.module is not None:
            record["m"] = operator.module
            if self._layers[operator.module] is not None:
                record["layer"] = self._layers[operator.module]
        record["e"] = operator.event
        if operator.recomputes:
            record["rc"] = 1
        for key, numbers in (
            ("r", operator.reads),
            ("w", operator.writes),
            ("a", operator.fresh),
            ("f", operator.frees),
            ("fe", operator.eager_frees),
        ):
            if numbers:
                record[key] = [self._ids[number] for number in numbers]
        record["flops"] = operator.flops
        record["bytes"] = operator.bytes
        record["cls"] = operator.category
        if operator.in_place_sum:
            record["x_inplace"] = 1
        return record

    def buckets(self, buckets: Iterable[Iterable[Any]]) -> list[list[int]]:
        """Return buckets of parameters as lists of tensor ids."""
        index_of = {id(p): index for index, (_, p) in enumerate(self._observer.parameters)}
        return [
            [self._parameter_ids[index_of[id(parameter)]] for parameter in bucket]
            for bucket in buckets
        ]

    def events_sha256(self) -> str:
        """Hash of the event list by names, which a running program can compute as well."""
        lines = [f"{event.kind}\t{self._subject(event)}\n" for event in self._recording.events]
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def _subject(self, event: Event) -> str:
        if event.module is not None:
            return self._observer.modules[event.module][0]
        if event.parameter is not None:
            return self._observer.parameters[event.parameter][0]
        for index in (event.bucket, event.micro_batch):
            if index is not None:
                return str(index)
        return ""


def _dtype_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")

"""The dispatch recorder: sees every operator of a step as PyTorch dispatches it.

It works the same on fake and on real tensors. Besides operators it learns what only a running
program shows: when storages die, which module an operator of the backward pass belongs to, and
where autograd would have accumulated in place.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .errors import UntraceableModel
from .observer import Event, Listener, StepObserver, in_backward
from .operators import (
    SKIPPED_NAMESPACES,
    OperatorCall,
    describe,
    is_list_operator,
    split_list_call,
)
from .step import TrainingStep
from .storages import StorageTable

_PHASE_OF_EVENT = {"start": "f", "backward_start": "b", "norm": "o", "optimizer": "o", "end": "x"}


@dataclass
class RecordedOperator:
    """An operator call and where in the step it happened.

    ``event`` is the index of the last event before it, -1 if there was none. ``accumulates``: a
    run without a recorder would have added in place if the first summand dies here.
    """

    call: OperatorCall
    phase: str
    event: int
    module: int | None
    recomputes: bool
    accumulates: bool


@dataclass
class Pack:
    """The first time autograd saved a storage: ``event`` is the last event before it."""

    module: int | None
    ordinal: int
    event: int


@dataclass
class Recording:
    """Everything one recorded step showed. Keys are storage ids of ``table``.

    The first ``labelled`` storages existed before the step.
    """

    table: StorageTable
    labelled: int
    operators: list[RecordedOperator]
    events: list[Event]
    packs: dict[int, Pack]
    unpacks: dict[int, list[int]]
    gradients: dict[int, int]
    loss: int


@contextmanager
def collection_paused() -> Iterator[None]:
    """Collect no garbage while the block runs.

    A collection frees cycles at an accidental place, and walks over the whole graph being traced.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Recorder(TorchDispatchMode, Listener):
    """Records the operators, frees, saved tensors and gradients of one training step."""

    def __init__(self, step: TrainingStep) -> None:
        super().__init__()
        self._step = step
        self.operators: list[RecordedOperator] = []
        self.table = StorageTable(clock=lambda: len(self.operators))
        self.observer = StepObserver(step.model, self)
        self._phase = "x"
        self._packs: dict[int, Pack] = {}
        self._unpacks: dict[int, list[int]] = {}
        self._gradients: dict[int, int] = {}
        self._loss = -1
        self._module_of_node: dict[int, int | None] = {}
        self._newest_node = 0
        self._last_call = "the start"
        self._last_module: int | None = None

    def record(self) -> Recording:
        """Run the step once under this recorder."""
        labelled = label_storages(self.table, self._step)
        self._newest_node = torch.autograd._get_sequence_nr() - 1
        try:
            with collection_paused(), self.observer.attached(), self:
                self._step.run(self.observer, self._take_loss)
        except Exception as error:
            raise self._explain(error) from error
        self.table.stop_watching()
        return Recording(
            self.table,
            labelled,
            self.operators,
            self.observer.events,
            self._packs,
            self._unpacks,
            self._gradients,
            self._loss,
        )

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace in SKIPPED_NAMESPACES:
            return func(*args, **kwargs)
        self._last_call, self._last_module = str(func), self.observer.innermost
        accumulates = _may_accumulate_in_place(func, args, kwargs)
        out = func(*args, **kwargs)
        module, recomputes = self._owner()
        if self._phase == "o" and is_list_operator(func):
            calls = [
                describe(func, *part, self.table) for part in split_list_call(args, kwargs, out)
            ]
        else:
            calls = [describe(func, args, kwargs, out, self.table)]
        for call in calls:
            if call is not None:
                self.operators.append(
                    RecordedOperator(
                        call,
                        self._phase,
                        len(self.observer.events) - 1,
                        module,
                        recomputes,
                        accumulates,
                    )
                )
        return out

    def on_event(self, event: Event) -> None:
        self._phase = _PHASE_OF_EVENT.get(event.kind, self._phase)

    def on_gradient(self, parameter: int, tensor: torch.Tensor) -> None:
        number = self.table.label(tensor, "grad", parameter=parameter)
        self._gradients.setdefault(number, len(self.observer.events) - 1)

    def on_pack(self, tensor: torch.Tensor, module: int | None, ordinal: int) -> None:
        number = self.table.id_of(tensor)
        self._packs.setdefault(number, Pack(module, ordinal, len(self.observer.events) - 1))

    def on_unpack(self, tensor: torch.Tensor) -> None:
        uses = self._unpacks.setdefault(self.table.id_of(tensor), [])
        event = len(self.observer.events) - 1
        if event not in uses:
            uses.append(event)

    def _take_loss(self, loss: torch.Tensor) -> None:
        self._loss = self.table.id_of(loss)

    def _owner(self) -> tuple[int | None, bool]:
        """Return the module of the operator that has just run, and whether it recomputes."""
        running = self.observer.innermost
        if not in_backward():
            if self._phase == "f":
                self._assign_new_nodes(running)
                return running, False
            return None, False
        if torch.is_grad_enabled():
            # Only a recomputed forward builds a graph inside the backward pass.
            self._assign_new_nodes(running)
            return running, True
        node = torch._C._current_autograd_node()
        if node is None:
            return None, False
        if "AccumulateGrad" in node.name():
            return self._owner_of_parameter(node.variable), False
        return self._module_of_node.get(node._sequence_nr()), False

    def _assign_new_nodes(self, module: int | None) -> None:
        """Give the autograd nodes created since the last call to ``module``.

        One in-place operator can create two nodes, hence all numbers in between.
        """
        newest = torch.autograd._get_sequence_nr() - 1
        for number in range(self._newest_node + 1, newest + 1):
            self._module_of_node[number] = module
        self._newest_node = max(self._newest_node, newest)

    def _owner_of_parameter(self, parameter: torch.Tensor) -> int | None:
        for index, (_, module) in enumerate(self.observer.modules):
            if any(parameter is owned for owned in module.parameters(recurse=False)):
                return index
        return None

    def _explain(self, error: Exception) -> Exception:
        # Not the innermost module: the exception has unwound the stack by now.
        module = self._last_module
        where = self.observer.modules[module][0] if module is not None else ""
        return explain_failure(error, self._last_call, where)


def explain_failure(error: Exception, last_call: str, where: str) -> Exception:
    """Turn what PyTorch raised into a message that says which operator, why, and what to try."""
    name = type(error).__name__
    func = getattr(error, "func", None)
    operator = str(func) if func is not None else last_call
    place = f" in module '{where}'" if where else ""
    if name == "DataDependentOutputException":
        return UntraceableModel(
            f"{operator}{place}: the model looks at the value of a tensor (an if, a loop bound, "
            ".item()), and a capture on shapes has no values. Try: pass the value as a Python "
            "number, leave out an optional mask of ones, or replace the branch while tracing."
        )
    if name == "DynamicOutputShapeException":
        return UntraceableModel(
            f"{operator}{place}: the shape of the result depends on values (nonzero, boolean "
            "indexing, expert routing), and a capture on shapes has none. Try: a formulation with "
            "fixed shapes, for mixtures of experts experts_implementation='grouped_mm'."
        )
    if name in ("UnsupportedOperatorException", "UnsupportedFakeTensorException"):
        return UntraceableModel(
            f"{operator}{place}: PyTorch cannot run this operator on shapes alone ({error}). "
            "Try: register a fake implementation with torch.library.register_fake."
        )
    if isinstance(error, (RuntimeError, NotImplementedError, TypeError, ValueError)):
        return UntraceableModel(
            f"the step failed after {operator}{place}: {name}: {error}. Try: run the same step on "
            "real tensors first; if that works, a tensor may be created outside of the model and "
            "its inputs: register it as a buffer."
        )
    return error


def label_storages(table: StorageTable, step: TrainingStep) -> int:
    """Label everything that exists before the step: inputs, parameters, buffers, state.

    Returns how many storages that are; their ids are the first ones, in a fixed order.
    """
    inputs = step.inputs if isinstance(step.inputs, dict) else dict(enumerate(step.inputs))
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor):
            table.label(value, "input", str(name))
    parameters = list(step.model.named_parameters())
    index_of = {id(parameter): index for index, (_, parameter) in enumerate(parameters)}
    for name, parameter in step.model.named_parameters(remove_duplicate=False):
        table.label(parameter, "param", name, parameter=index_of[id(parameter)])
    for name, buffer in step.model.named_buffers(remove_duplicate=False):
        table.label(buffer, "buffer", name)
    for bucket in step.buckets:
        for parameter, role, tensor in bucket.state():
            if role == "step":
                table.ignore(tensor)
            else:
                index = index_of[id(parameter)]
                table.label(tensor, "optimizer_state", role=role, parameter=index)
    return len(table.storages)


def _may_accumulate_in_place(func: Any, args: tuple, kwargs: dict) -> bool:
    """Tell whether a gradient sum would run in place if no dispatch mode were active.

    Autograd sums into the first gradient when nobody else holds it, but not while a mode is on.
    Its storage then has two owners: the tensor, and the handle that we look through. Whether the
    storage dies right after the sum is checked later.
    """
    if func is not torch.ops.aten.add.Tensor or kwargs or len(args) != 2:
        return False
    if not in_backward() or torch.is_grad_enabled():
        return False
    first, second = args
    if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
        return False
    if first.shape != second.shape:
        return False
    return torch._C._storage_Use_Count(first.untyped_storage()._cdata) == 2

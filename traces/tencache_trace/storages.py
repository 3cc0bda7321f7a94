"""Identity, size and lifetime of storages, the unit a trace speaks about.

A view shares its storage with the tensor it was taken from, so all views of a storage are one
trace tensor. Storages are recognised by the address of their C++ object. An address can be used
again after a free, so every storage is watched by a weak reference which retires its id.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field

import torch


@dataclass
class Storage:
    """What is known about one storage.

    ``bytes`` is its full size. ``kind`` is None until somebody labels it: such a storage must be
    allocated by a recorded operator. ``parameter`` is the index of the parameter that it is, or
    that it belongs to (gradients, masters, optimizer state). ``ignored`` storages stay out of the
    trace: Python scalars turned into tensors, and step counters.
    """

    bytes: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    kind: str | None = None
    role: str | None = None
    names: list[str] = field(default_factory=list)
    parameter: int | None = None
    ignored: bool = False
    freed_at: int | None = None


class StorageTable:
    """Maps tensors to storage ids, dense from 0 in the order in which storages are first seen."""

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        """``clock`` gives the number of operators recorded so far; without it no free is noted."""
        self.storages: list[Storage] = []
        self._clock = clock
        self._ids: dict[int, int] = {}
        self._watches: dict[int, weakref.ref] = {}

    def id_of(self, tensor: torch.Tensor) -> int:
        """Return the id of the tensor's storage, a new one if it has not been seen alive."""
        storage = tensor.untyped_storage()
        address = storage._cdata
        known = self._ids.get(address)
        if known is not None:
            return known
        number = len(self.storages)
        self.storages.append(Storage(storage.nbytes(), tensor.dtype, tuple(tensor.shape)))
        self._ids[address] = number
        self._watches[number] = weakref.ref(storage, self._retire(address, number))
        return number

    def label(
        self,
        tensor: torch.Tensor,
        kind: str,
        name: str | None = None,
        role: str | None = None,
        parameter: int | None = None,
    ) -> int:
        """Say what a tensor is. The first kind wins; a further name is kept as an alias."""
        number = self.id_of(tensor)
        storage = self.storages[number]
        if storage.kind is None:
            storage.kind, storage.role, storage.parameter = kind, role, parameter
        if name is not None and name not in storage.names:
            storage.names.append(name)
        return number

    def ignore(self, tensor: torch.Tensor) -> None:
        """Keep the tensor's storage out of the trace, unless it already has a kind."""
        storage = self.storages[self.id_of(tensor)]
        storage.ignored = storage.kind is None

    def stop_watching(self) -> None:
        """Forget the weak references: later frees are no business of the recorded step."""
        self._watches.clear()

    def _retire(self, address: int, number: int) -> Callable[[weakref.ref], None]:
        def callback(_reference: weakref.ref) -> None:
            if self._ids.get(address) == number:
                del self._ids[address]
            if self._clock is not None:
                self.storages[number].freed_at = self._clock()

        return callback

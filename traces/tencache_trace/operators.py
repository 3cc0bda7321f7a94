"""What one operator call reads, writes and allocates, taken from its schema.

Which arguments are written is what the schema's alias annotations say, never what the call
returned: in-place operators over lists return nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

from .flops import flops_of
from .storages import StorageTable

# Bookkeeping calls, frequent under fake tensors only: they must not move any counter.
SKIPPED_NAMESPACES = frozenset({"prim", "profiler"})
# A Python number made into a tensor; allocates under fake tensors, is a view in a real run.
_LIFTS = frozenset({"lift_fresh", "lift_fresh_copy"})
# In-place operators that replace the content: the old bytes need not be there.
_OVERWRITES = frozenset(
    {
        "copy_",
        "zero_",
        "fill_",
        "normal_",
        "uniform_",
        "random_",
        "bernoulli_",
        "exponential_",
        "_foreach_copy_",
        "_foreach_zero_",
    }
)
# Lookups read the rows they return, not the table.
_LOOKUPS = frozenset({"embedding", "index_select", "gather"})
# Written although the schema does not say so.
_HIDDEN_WRITES = {
    "native_batch_norm": frozenset({"running_mean", "running_var"}),
    "cudnn_batch_norm": frozenset({"running_mean", "running_var"}),
    "miopen_batch_norm": frozenset({"running_mean", "running_var"}),
}

_GEMMS = ("mm", "bmm", "addmm", "baddbmm", "matmul", "linear", "mv", "dot")
# What an operator's name must hold to belong to a class of the roofline; the first that fits wins.
_CATEGORIES = (
    ("attn", re.compile(r"attention")),
    ("opt", re.compile(r"^_fused_(adam|sgd|adagrad)")),
    ("gemm", re.compile(rf"(^|_)({'|'.join(_GEMMS)}|conv\w*)(_|$)")),
    ("gather", re.compile(r"^_?(embedding|index|scatter|gather)")),
    ("copy", re.compile(r"^(_foreach_copy|copy|clone|_to_copy|contiguous|cat|stack)_?$")),
    ("red", re.compile(r"sum|mean|norm|softmax|nll_loss|cross_entropy|amax")),
)


@dataclass
class OperatorCall:
    """One operator call in terms of storage ids.

    ``bytes`` is what the call moves: the bytes it reads plus the bytes it writes, by view.
    ``category`` is the class for the roofline: gemm, attn, elt, red, gather, opt, comm or copy.
    """

    name: str
    reads: list[int]
    writes: list[int]
    fresh: list[int]
    flops: int
    bytes: int
    category: str


@dataclass
class _Signature:
    """The parts of an operator's schema that matter here, worked out once per operator."""

    name: str
    base: str
    arguments: list[str]
    written: frozenset[str]
    outputs: frozenset[str]
    overwrites: bool
    category: str


@cache
def _signature(func: Any) -> _Signature:
    schema = func._schema
    base = schema.name.split("::")[1]
    written = {a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write}
    outputs = {a.name for a in schema.arguments if a.is_out}
    if base.startswith("_fused_"):
        # Marked as written for loss scaling inside the kernel, which none of our steps uses.
        written.discard("grads")
    return _Signature(
        name=str(func),
        base=base,
        arguments=[a.name for a in schema.arguments],
        written=frozenset(written | _HIDDEN_WRITES.get(base, frozenset())),
        outputs=frozenset(outputs),
        overwrites=base in _OVERWRITES,
        category=_category(base, schema.name.split("::")[0]),
    )


def _category(base: str, namespace: str) -> str:
    """Sort an operator into the classes that the roofline knows; elementwise if none fits."""
    if namespace in ("c10d", "_c10d_functional"):
        return "comm"
    return next((name for name, pattern in _CATEGORIES if pattern.search(base)), "elt")


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield every tensor in a nest of lists, tuples and dictionaries, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)


def view_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes a kernel touches through this view; an expanded view repeats its storage."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


@dataclass
class _Accesses:
    """Collects the accesses of one call."""

    table: StorageTable
    reads: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    fresh: list[int] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    bytes: int = 0

    def argument(self, tensor: torch.Tensor, written: bool, overwrites: bool) -> None:
        number = self.table.id_of(tensor)
        self.seen.add(number)
        storage = self.table.storages[number]
        if storage.bytes == 0 or storage.ignored:
            return
        touched = view_bytes(tensor)
        # A partial overwrite keeps the rest of the old content, so it is a read as well.
        keeps_content = not overwrites or touched < storage.bytes
        if written:
            self.bytes += touched
            if number not in self.writes:
                self.writes.append(number)
        if not written or keeps_content:
            if not (written and overwrites):
                self.bytes += touched
            if number not in self.reads:
                self.reads.append(number)

    def output(self, tensor: torch.Tensor) -> None:
        number = self.table.id_of(tensor)
        if number in self.seen:
            return
        self.seen.add(number)
        storage = self.table.storages[number]
        if storage.bytes == 0 or storage.ignored:
            return
        self.bytes += view_bytes(tensor)
        self.fresh.append(number)


def describe(
    func: Any, args: tuple, kwargs: dict, out: Any, table: StorageTable
) -> OperatorCall | None:
    """Describe one finished call, or return None if it moved no data (views, size queries).

    Registers the storages it meets in ``table``.
    """
    signature = _signature(func)
    if signature.base in _LIFTS:
        for tensor in tensors_in((args, out)):
            table.ignore(tensor)
        return None
    accesses = _Accesses(table)
    named = list(zip(signature.arguments, args, strict=False)) + list(kwargs.items())
    for name, value in named:
        written = name in signature.written
        overwrites = written and (signature.overwrites or name in signature.outputs)
        for tensor in tensors_in(value):
            accesses.argument(tensor, written, overwrites)
    for tensor in tensors_in(out):
        accesses.output(tensor)
    if not accesses.writes and not accesses.fresh:
        return None
    moved = accesses.bytes
    if signature.base in _LOOKUPS:
        moved = 2 * sum(view_bytes(tensor) for tensor in tensors_in(out))
    return OperatorCall(
        name=signature.name,
        reads=accesses.reads,
        writes=accesses.writes + accesses.fresh,
        fresh=accesses.fresh,
        flops=flops_of(func, args, kwargs, out),
        bytes=moved,
        category=signature.category,
    )


def is_list_operator(func: Any) -> bool:
    """Tell whether an operator works on many tensors at once (``_foreach_*``, ``_fused_*``)."""
    return _signature(func).base.startswith(("_foreach_", "_fused_", "_amp_foreach_"))


def split_list_call(args: tuple, kwargs: dict, out: Any) -> Iterator[tuple[tuple, dict, Any]]:
    """Split a list operator's call into one call per list position.

    A recorded list operator touches the whole model at once; per position it says which parameter
    needs what. Lists of the length of the first list argument are split, all else is shared.
    """
    length = next(len(value) for value in args if isinstance(value, (list, tuple)))

    def pick(value: Any, position: int) -> Any:
        if isinstance(value, (list, tuple)) and len(value) == length:
            return [value[position]]
        return value

    for position in range(length):
        yield (
            tuple(pick(value, position) for value in args),
            {name: pick(value, position) for name, value in kwargs.items()},
            pick(out, position),
        )

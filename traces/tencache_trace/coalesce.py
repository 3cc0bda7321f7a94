"""Joins the operators of an optimizer step into one operator per parameter.

How many kernels an optimizer needs depends on its implementation; what it reads and writes does
not. One operator per parameter says the latter, and carries the cost of a fused kernel.
"""

from __future__ import annotations

from dataclasses import replace

from .lifetimes import TraceOperator
from .recorder import Recording

# Bytes per parameter of a fused AdamW with FP32 state: reads gradient, parameter and both moments,
# writes parameter and both moments. The same with 16-bit gradients and FP32 masters, where the
# gradient and the published parameter have two bytes each: 2 + 3 * 4 + 3 * 4 + 2.
ADAM_BYTES_PER_PARAMETER = 28

_ROLE_ORDER = {"grad": 0, "param": 1, "master": 2, "exp_avg": 3, "exp_avg_sq": 4}


def coalesce_optimizer(
    operators: list[TraceOperator], recording: Recording, names: list[str]
) -> list[TraceOperator]:
    """Return the operators with each run of optimizer operators joined per parameter.

    ``names`` holds the operator name to use for each bucket, such as ``optim.adamw``.
    """
    result: list[TraceOperator] = []
    start = 0
    while start < len(operators):
        event = operators[start].event
        if event < 0 or recording.events[event].kind != "optimizer":
            result.append(operators[start])
            start += 1
            continue
        stop = start
        while stop < len(operators) and operators[stop].event == event:
            stop += 1
        bucket = recording.events[event].bucket
        assert bucket is not None
        result.extend(_join_bucket(operators[start:stop], recording, names[bucket]))
        start = stop
    return result


def _join_bucket(
    group: list[TraceOperator], recording: Recording, name: str
) -> list[TraceOperator]:
    """Join the operators of one bucket's update, a part per parameter."""
    owner: dict[int, int] = {}
    parts: dict[int, list[TraceOperator]] = {}
    for operator in group:
        parameter = _parameter_of(operator, recording, owner)
        for number in operator.fresh:
            owner[number] = parameter
        parts.setdefault(parameter, []).append(operator)
    joined = [_join(part, set(owner), recording, name) for _, part in sorted(parts.items())]
    for operator in joined:
        # Every part stands for the whole run of recorded operators: what dies inside dies at its
        # end.
        operator.first, operator.last = group[0].first, group[-1].last
    return joined


def _parameter_of(operator: TraceOperator, recording: Recording, owner: dict[int, int]) -> int:
    """Return the parameter an optimizer operator works for, by what it touches.

    ``owner`` knows the parameters of results born in the same update. -1 for work on nobody's
    tensors, such as a shared learning rate.
    """
    for number in (*operator.writes, *operator.reads):
        parameter = recording.table.storages[number].parameter
        if parameter is not None:
            return parameter
        if number in owner:
            return owner[number]
    return -1


def _join(
    part: list[TraceOperator], born: set[int], recording: Recording, name: str
) -> TraceOperator:
    """Return one operator with the reads and writes of ``part``, less what was ``born`` inside."""
    storages = recording.table.storages

    def rank(number: int) -> tuple[int, int]:
        storage = storages[number]
        return _ROLE_ORDER.get(storage.role or storage.kind or "", len(_ROLE_ORDER)), number

    reads = sorted({number for op in part for number in op.reads} - born, key=rank)
    writes = sorted({number for op in part for number in op.writes} - born, key=rank)
    return replace(
        part[0],
        name=name,
        module=None,
        reads=reads,
        writes=writes,
        fresh=[],
        flops=0,
        bytes=_bytes_moved(reads, writes, recording, name),
        category="opt",
    )


def _bytes_moved(reads: list[int], writes: list[int], recording: Recording, name: str) -> int:
    """Return what a fused kernel would move in bytes."""
    storages = recording.table.storages
    if name in ("optim.adamw", "optim.adam"):
        parameters = [storages[number] for number in writes if storages[number].kind == "param"]
        return ADAM_BYTES_PER_PARAMETER * sum(p.bytes // p.dtype.itemsize for p in parameters)
    return sum(storages[number].bytes for number in (*reads, *writes))

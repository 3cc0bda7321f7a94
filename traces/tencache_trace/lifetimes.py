"""From a recording to operators with lifetimes: kinds, in-place sums, first and last use.

Works on storage ids. Two lifetimes are kept for each transient storage: it is dead after its last
use (by an operator, or by autograd unpacking it), and PyTorch itself frees it at some later point.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

from .errors import UntraceableModel
from .recorder import RecordedOperator, Recording

PERSISTENT = frozenset({"param", "buffer", "optimizer_state", "input"})


@dataclass
class TraceOperator:
    """One operator as the trace has it. ``frees`` after the last use, ``eager_frees`` by PyTorch.

    ``first`` and ``last`` are the positions of the recorded operators that it stands for.
    """

    name: str
    phase: str
    event: int
    module: int | None
    reads: list[int]
    writes: list[int]
    fresh: list[int]
    flops: int
    bytes: int
    category: str
    recomputes: bool
    in_place_sum: bool
    first: int
    last: int
    frees: list[int] = field(default_factory=list)
    eager_frees: list[int] = field(default_factory=list)

    @property
    def touched(self) -> set[int]:
        """All storages that the operator reads or writes."""
        return {*self.reads, *self.writes}


def operators_of(recording: Recording) -> list[TraceOperator]:
    """Return the recorded operators, with gradient sums in place where autograd would do so.

    ``recording`` is changed: a storage that disappears hands its label, its packs and its time of
    death to the one that takes its content.
    """
    _check_labels(recording)
    storages = recording.table.storages
    freed_at = [storage.freed_at for storage in storages]
    taken_over: dict[int, int] = {}
    operators = []
    for position, recorded in enumerate(recording.operators):
        call = recorded.call
        reads = [taken_over.get(number, number) for number in call.reads]
        writes = [taken_over.get(number, number) for number in call.writes]
        fresh, name = list(call.fresh), call.name
        in_place = _sums_in_place(recorded, position, freed_at, recording)
        if in_place:
            target = reads[0]
            taken_over[fresh[0]] = target
            _hand_over(recording, fresh[0], target)
            name, writes, fresh = "aten.add_.Tensor", [target], []
        operators.append(
            TraceOperator(
                name=name,
                phase=recorded.phase,
                event=recorded.event,
                module=recorded.module,
                reads=reads,
                writes=writes,
                fresh=fresh,
                flops=call.flops,
                bytes=call.bytes,
                category=call.category,
                recomputes=recorded.recomputes,
                in_place_sum=in_place,
                first=position,
                last=position,
            )
        )
    return operators


def _check_labels(recording: Recording) -> None:
    """Refuse a storage that is neither labelled nor allocated by a recorded operator."""
    storages = recording.table.storages
    born: set[int] = set()
    for recorded in recording.operators:
        born.update(recorded.call.fresh)
        for number in (*recorded.call.reads, *recorded.call.writes):
            storage = storages[number]
            if number in born or storage.kind in PERSISTENT:
                continue
            raise UntraceableModel(
                f"{recorded.call.name} uses a tensor that nobody named: {storage.dtype} "
                f"{list(storage.shape)}, {storage.bytes} bytes. It was neither passed in nor "
                "created during the step, and is no parameter, buffer or optimizer state of the "
                "model. Try: register it as a buffer, or pass it as an input."
            )


def _sums_in_place(
    recorded: RecordedOperator, position: int, freed_at: list[int | None], recording: Recording
) -> bool:
    """Tell whether a gradient sum ran out of place only because it was being recorded."""
    if not recorded.accumulates or len(recorded.call.fresh) != 1:
        return False
    first = recorded.call.reads[0]
    if recording.table.storages[first].kind in PERSISTENT:
        return False
    return freed_at[first] == position + 1


def _hand_over(recording: Recording, old: int, new: int) -> None:
    """Let storage ``new`` take the place of ``old``, which holds the later content."""
    storages = recording.table.storages
    storages[new].freed_at = storages[old].freed_at
    if storages[old].kind is not None:
        storages[new].kind = storages[old].kind
        storages[new].parameter = storages[old].parameter
    for table in (recording.packs, recording.unpacks, recording.gradients):
        if old in table:
            table.setdefault(new, table.pop(old))


def assign_kinds(operators: list[TraceOperator], recording: Recording) -> None:
    """Call a storage an activation if it is born in forward and used later, else a temporary.

    The loss is a temporary: nothing but its shape is used when the backward pass starts from it.
    """
    storages = recording.table.storages
    born_in: dict[int, TraceOperator] = {}
    for operator in operators:
        for number in operator.fresh:
            born_in[number] = operator
            if storages[number].kind is None:
                storages[number].kind = "temp"
        for number in operator.touched:
            birth = born_in.get(number)
            crosses = birth is not None and birth.phase == "f" and operator.phase != "f"
            if crosses and storages[number].kind == "temp" and number != recording.loss:
                storages[number].kind = "activation"
    backward_start = next(
        index for index, event in enumerate(recording.events) if event.kind == "backward_start"
    )
    for number, uses in recording.unpacks.items():
        if storages[number].kind == "temp" and uses[-1] >= backward_start:
            storages[number].kind = "activation"


def filter_unpacks(operators: list[TraceOperator], recording: Recording) -> dict[int, list[int]]:
    """Return the unpack events that say more than the operators do.

    An unpack belongs to the step that follows its event: the operators whose last event is the
    first one at or after it that any operator has. Where an operator of that step reads the
    storage, the unpack adds nothing.
    """
    steps = sorted({operator.event for operator in operators})
    readers: dict[int, set[int]] = {event: set() for event in steps}
    alive: set[int] = set()
    for operator in operators:
        readers[operator.event].update(operator.reads)
        alive.update(operator.touched)
    kept: dict[int, list[int]] = {}
    for number, uses in recording.unpacks.items():
        if number not in alive:
            continue
        for event in uses:
            following = bisect_left(steps, event)
            if following < len(steps) and number not in readers[steps[following]]:
                kept.setdefault(number, []).append(event)
    return kept


def assign_frees(
    operators: list[TraceOperator], recording: Recording, unpacks: dict[int, list[int]]
) -> None:
    """Fill in ``frees`` and ``eager_frees`` of transient storages.

    An unpack holds its storage until the end of its step, or until PyTorch frees it in that step.
    """
    storages = recording.table.storages
    steps = [operator.event for operator in operators]
    ends = [operator.last for operator in operators]
    last_use: dict[int, int] = {}
    for index, operator in enumerate(operators):
        for number in operator.touched:
            last_use[number] = index
    for number in sorted(last_use):
        if storages[number].kind in PERSISTENT:
            continue
        last = last_use[number]
        freed_at = storages[number].freed_at
        eager = len(operators) - 1
        if freed_at is not None:
            # Freed after this many recorded operators: find the last trace operator for those.
            eager = min(bisect_left(ends, freed_at - 1), len(operators) - 1)
            eager = bisect_right(ends, ends[eager]) - 1
        eager = max(eager, last)
        for event in unpacks.get(number, ()):
            step = steps[bisect_left(steps, event)]
            end_of_step = bisect_right(steps, step) - 1
            last = max(last, min(end_of_step, eager))
        operators[last].frees.append(number)
        operators[eager].eager_frees.append(number)

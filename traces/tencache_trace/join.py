"""Joins the FX graph with the dispatch recording of the same step, operator by operator.

Operators, reads and writes come from the graph; frees, modules and in-place accumulation from the
recording. The two were made independently, so their agreement is the proof that both are right.
"""

from __future__ import annotations

from dataclasses import replace

from .errors import CaptureMismatch
from .graph import GraphRecording
from .observer import Event
from .operators import OperatorCall
from .recorder import Recording

_ADVICE = (
    "Neither capture can be trusted then. Try --capture dispatch (or fx) to look at each, and "
    "report the model."
)


def join(recording: Recording, graph: GraphRecording) -> Recording:
    """Return the recording with the graph's operators in the recording's storage ids.

    Raises CaptureMismatch at the first event or operator that differs, naming it.
    """
    _compare_events(recording.events, graph.events)
    translate = _StorageMatch(recording.labelled)
    joined = []
    for index, (recorded, traced) in enumerate(
        zip(recording.operators, graph.operators, strict=False)
    ):
        where = f"operator {index}, {recorded.call.name}"
        _require(traced.call.name, recorded.call.name, f"operator {index}", "the name")
        _require(traced.event, recorded.event, where, "the event before it")
        call = translate.call(traced.call, recorded.call)
        for field in ("reads", "writes", "fresh", "flops", "bytes", "category"):
            _require(getattr(call, field), getattr(recorded.call, field), where, field)
        _require(
            [graph.table.storages[number].bytes for number in traced.call.fresh],
            [recording.table.storages[number].bytes for number in recorded.call.fresh],
            where,
            "the size of its results",
        )
        joined.append(replace(recorded, call=call))
    _compare_counts(recording, graph)
    return replace(recording, operators=joined)


class _StorageMatch:
    """A one-to-one map from graph storages to recording storages, grown in operator order."""

    def __init__(self, labelled: int) -> None:
        """Storages labelled before the step have the same ids, from 0, in both."""
        self._from_graph = {number: number for number in range(labelled)}
        self._taken = set(range(labelled))

    def call(self, traced: OperatorCall, recorded: OperatorCall) -> OperatorCall:
        """Return the graph's call in the recording's ids; -1 for a storage that has no partner."""
        for graph_ids, ids in (
            (traced.reads, recorded.reads),
            (traced.writes, recorded.writes),
        ):
            for graph_id, number in zip(graph_ids, ids, strict=False):
                if graph_id not in self._from_graph and number not in self._taken:
                    self._from_graph[graph_id] = number
                    self._taken.add(number)
        return replace(
            traced,
            reads=self._translate(traced.reads),
            writes=self._translate(traced.writes),
            fresh=self._translate(traced.fresh),
        )

    def _translate(self, numbers: list[int]) -> list[int]:
        return [self._from_graph.get(number, -1) for number in numbers]


def _compare_events(recorded: list[Event], traced: list[Event]) -> None:
    for index, (ours, theirs) in enumerate(zip(recorded, traced, strict=False)):
        _require(theirs, ours, f"event {index}", "the event")
    _require(len(traced), len(recorded), "the event list", "its length")


def _compare_counts(recording: Recording, graph: GraphRecording) -> None:
    ours, theirs = recording.operators, graph.operators
    if len(ours) == len(theirs):
        return
    longer, name = (ours, "dispatch") if len(ours) > len(theirs) else (theirs, "fx")
    first = longer[min(len(ours), len(theirs))].call.name
    raise CaptureMismatch(
        f"the graph has {len(theirs)} operators and the dispatch recording {len(ours)}; the first "
        f"one that only {name} has is {first}. {_ADVICE}"
    )


def _require(traced: object, recorded: object, where: str, what: str) -> None:
    if traced != recorded:
        raise CaptureMismatch(
            f"{where}: {what} differs: the graph has {traced}, the dispatch recording {recorded}. "
            f"{_ADVICE}"
        )

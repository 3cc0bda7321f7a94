"""The FX capture: the whole training step as one graph of operators.

``make_fx`` runs the step once and records a node per operator; storages are compared through the
fake values that the nodes carry. A graph knows operators, reads and writes. It knows neither when
storages die nor whether autograd would accumulate in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from .observer import Event, Listener, StepObserver
from .operators import (
    SKIPPED_NAMESPACES,
    OperatorCall,
    describe,
    is_list_operator,
    split_list_call,
)
from .recorder import collection_paused, explain_failure, label_storages
from .step import TrainingStep
from .storages import StorageTable


@dataclass
class GraphOperator:
    """An operator of the graph; ``event`` is the index of the last event before it."""

    call: OperatorCall
    event: int


@dataclass
class GraphRecording:
    """The operators of one step as the graph has them, and the events seen while tracing."""

    table: StorageTable
    operators: list[GraphOperator]
    events: list[Event]


class _GraphCapture(Listener):
    """Traces one step and reads its graph while the tracer is still open.

    The graph is read before ``make_fx`` removes nodes whose results nobody uses: a real step runs
    those operators too.
    """

    def __init__(self, step: TrainingStep) -> None:
        self._step = step
        self._table = StorageTable()
        self._observer = StepObserver(step.model, self)
        self._event_after_node: dict[fx.Node, int] = {}
        self._operators: list[GraphOperator] = []

    def capture(self) -> GraphRecording:
        label_storages(self._table, self._step)

        def traced() -> None:
            with self._observer.attached():
                self._step.run(self._observer, lambda _loss: None)
            self._read_graph(_current_graph())

        try:
            with collection_paused():
                make_fx(traced, _disable_torch_fn_metadata_mode=True)()
        except Exception as error:
            raise explain_failure(error, "the operators before it", "") from error
        return GraphRecording(self._table, self._operators, self._observer.events)

    def on_event(self, event: Event) -> None:
        self._event_after_node[_last_node(_current_graph())] = len(self._observer.events) - 1

    def _read_graph(self, graph: fx.Graph) -> None:
        event = self._event_after_node.get(graph._root, -1)
        for node in graph.nodes:
            if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
                self._read_node(node, event)
            event = self._event_after_node.get(node, event)

    def _read_node(self, node: fx.Node, event: int) -> None:
        if node.target.namespace in SKIPPED_NAMESPACES:
            return
        args = fx.map_arg(node.args, _value)
        kwargs = fx.map_arg(node.kwargs, _value)
        out = node.meta.get("val")
        in_optimizer = self._observer.events[event].kind in ("optimizer", "norm")
        if in_optimizer and is_list_operator(node.target):
            parts = split_list_call(args, kwargs, out)
        else:
            parts = iter([(args, kwargs, out)])
        for part in parts:
            call = describe(node.target, *part, self._table)
            if call is not None:
                self._operators.append(GraphOperator(call, event))


def record_graph(step: TrainingStep) -> GraphRecording:
    """Trace one step with ``make_fx``. Needs a fake tensor mode around it."""
    return _GraphCapture(step).capture()


def _current_graph() -> fx.Graph:
    mode = torch.fx.experimental.proxy_tensor.get_proxy_mode()
    if mode is None:
        raise RuntimeError("no graph is being traced")
    return mode.tracer.graph


def _last_node(graph: fx.Graph) -> fx.Node:
    """Return the newest node, the graph's root if it is empty."""
    return graph._root._prev


def _value(node: fx.Node) -> Any:
    return node.meta.get("val")

"""Ordinary PyTorch hooks on a running model, turned into the events of a trace.

The hooks are the same that a running program would use to follow a plan, so every event here can
be observed there: module hooks, tensor hooks, gradient accumulation hooks, saved-tensor hooks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils.checkpoint
from torch.utils._pytree import tree_leaves


@dataclass(frozen=True)
class Event:
    """A moment that a hook can see. Indices: module, unique parameter, bucket, micro-batch."""

    kind: str
    module: int | None = None
    parameter: int | None = None
    bucket: int | None = None
    micro_batch: int | None = None


class Listener:
    """What a capture front end wants to hear; every method may be left as it is."""

    def on_event(self, event: Event) -> None:
        """``event`` has just been appended to the observer's list."""

    def on_gradient(self, parameter: int, tensor: torch.Tensor) -> None:
        """The gradient of a parameter has been accumulated into ``tensor``."""

    def on_pack(self, tensor: torch.Tensor, module: int | None, ordinal: int) -> None:
        """Autograd saves ``tensor``: pack call number ``ordinal`` of ``module``."""

    def on_unpack(self, tensor: torch.Tensor) -> None:
        """Autograd takes ``tensor`` out again."""


def in_backward() -> bool:
    """Tell whether autograd is running a backward pass right now."""
    return torch._C._current_graph_task_id() != -1


class StepObserver:
    """Follows one training step of a model and keeps its event list and module stack."""

    def __init__(self, model: torch.nn.Module, listener: Listener) -> None:
        self.modules = list(model.named_modules())
        self.parameters = list(model.named_parameters())
        self.events: list[Event] = []
        self._listener = listener
        self._stack: list[int] = []
        self._packs: Counter[int | None] = Counter()
        self._handles: list[Any] = []

    @property
    def innermost(self) -> int | None:
        """Index of the module whose forward is running, None outside of all modules."""
        return self._stack[-1] if self._stack else None

    def emit(self, kind: str, **concerns: int) -> None:
        """Append an event and tell the listener."""
        event = Event(kind, **concerns)
        self.events.append(event)
        self._listener.on_event(event)

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Hold all hooks while the block runs."""
        try:
            for index, (_, module) in enumerate(self.modules):
                self._hook_module(index, module)
            for index, (_, parameter) in enumerate(self.parameters):
                if parameter.requires_grad:
                    self._handles.append(
                        parameter.register_post_accumulate_grad_hook(self._gradient_hook(index))
                    )
            with (
                torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack),
                self._observed_checkpoints(),
            ):
                yield
        finally:
            for handle in self._handles:
                handle.remove()
            self._handles.clear()
            self._stack.clear()

    def _hook_module(self, index: int, module: torch.nn.Module) -> None:
        def before(_module: torch.nn.Module, _args: Any) -> None:
            self._stack.append(index)
            self.emit("forward_pre", module=index)

        def after(_module: torch.nn.Module, _args: Any, output: Any) -> None:
            # A recomputation that stops early unwinds through here with an exception on its way.
            self._stack.pop()
            self.emit("forward_post", module=index)
            if not in_backward():
                self._watch_output(index, output)

        self._handles.append(module.register_forward_pre_hook(before))
        self._handles.append(module.register_forward_hook(after, always_call=True))

    def _watch_output(self, index: int, output: Any) -> None:
        """Emit ``backward`` when the gradient of the module's output arrives."""
        for leaf in tree_leaves(output):
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                self._handles.append(leaf.register_hook(self._backward_hook(index)))
                return

    def _backward_hook(self, index: int) -> Callable[[torch.Tensor], None]:
        def arrived(_gradient: torch.Tensor) -> None:
            self.emit("backward", module=index)

        return arrived

    def _gradient_hook(self, index: int) -> Callable[[torch.Tensor], None]:
        def accumulated(parameter: torch.Tensor) -> None:
            self.emit("gradient", parameter=index)
            if parameter.grad is not None:
                self._listener.on_gradient(index, parameter.grad)

        return accumulated

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        module = self.innermost
        self._listener.on_pack(tensor, module, self._packs[module])
        self._packs[module] += 1
        return tensor

    def _unpack(self, tensor: torch.Tensor) -> torch.Tensor:
        self._listener.on_unpack(tensor)
        return tensor

    @contextmanager
    def _observed_checkpoints(self) -> Iterator[None]:
        """Keep the module stack right while a checkpointed region is recomputed.

        A region may be a module's ``forward`` without its hooks: then nothing says whose
        operators the recomputation runs. The module is the one that was innermost when the region
        was entered. This adds no event, since no hook of a real run would see it either.
        """
        checkpoint = torch.utils.checkpoint
        original = checkpoint._CheckpointFrame

        def frame(recompute: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            owner = self.innermost

            def recompute_in_place(*inputs: Any, **named: Any) -> Any:
                if owner is None:
                    return recompute(*inputs, **named)
                self._stack.append(owner)
                try:
                    return recompute(*inputs, **named)
                finally:
                    self._stack.pop()

            return original(recompute_in_place, *args, **kwargs)

        checkpoint._CheckpointFrame = frame
        try:
            yield
        finally:
            checkpoint._CheckpointFrame = original

"""The training step that is recorded, the same for every way of recording it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from .observer import StepObserver
from .optimizers import Bucket

# How a loss is taken from what the model returned.
LossFunction = Callable[[Any], torch.Tensor]


def loss_of_output(output: Any) -> torch.Tensor:
    """Return a model output's ``loss``, or the output itself if it is a scalar tensor."""
    if isinstance(output, torch.Tensor):
        return output if output.dim() == 0 else output.sum()
    loss = getattr(output, "loss", None)
    if loss is None and isinstance(output, dict):
        loss = output.get("loss")
    if loss is None and isinstance(output, (list, tuple)):
        loss = output[0]
    if not isinstance(loss, torch.Tensor):
        raise TypeError(
            f"cannot find a loss in a {type(output).__name__}; pass loss=FUNCTION, which takes "
            "what the model returned and gives a scalar tensor"
        )
    return loss


@dataclass
class TrainingStep:
    """A model with all that one step needs.

    ``inputs`` are positional arguments (a tuple) or keyword arguments (a dictionary) of the model.
    ``clip_norm`` is the global gradient norm to clip to, None for no clipping. ``autocast`` is the
    dtype to autocast to, None for none.
    """

    model: torch.nn.Module
    inputs: tuple | dict[str, Any]
    buckets: list[Bucket]
    loss: LossFunction = loss_of_output
    clip_norm: float | None = None
    autocast: torch.dtype | None = None

    def run(self, observer: StepObserver, on_loss: Callable[[torch.Tensor], None]) -> None:
        """Run forward, backward, clipping, optimizer and zero_grad once, with their events."""
        observer.emit("start")
        observer.emit("micro_batch", micro_batch=0)
        loss = self._forward()
        on_loss(loss)
        observer.emit("backward_start")
        # Not autograd.grad: it would not run the gradient accumulation hooks.
        loss.backward()
        scale = self._clip(observer) if self.clip_norm is not None else None
        for index, bucket in enumerate(self.buckets):
            observer.emit("optimizer", bucket=index)
            if scale is not None:
                self._scale(bucket, scale)
            bucket.step()
        for bucket in self.buckets:
            bucket.zero_grad()
        observer.emit("end")

    def _forward(self) -> torch.Tensor:
        device = next(self.model.parameters()).device.type
        autocast = (
            torch.autocast(device, dtype=self.autocast)
            if self.autocast is not None
            else nullcontext()
        )
        with autocast:
            if isinstance(self.inputs, dict):
                return self.loss(self.model(**self.inputs))
            return self.loss(self.model(*self.inputs))

    @torch.no_grad()
    def _clip(self, observer: StepObserver) -> torch.Tensor:
        """Return the factor of ``clip_grad_norm_``, one event per parameter's norm."""
        norms = []
        for index, (_, parameter) in enumerate(observer.parameters):
            if parameter.grad is not None:
                observer.emit("norm", parameter=index)
                norms.append(torch.linalg.vector_norm(parameter.grad))
        total = torch.linalg.vector_norm(torch.stack(norms))
        return torch.clamp(self.clip_norm / (total + 1e-6), max=1.0)

    @torch.no_grad()
    def _scale(self, bucket: Bucket, factor: torch.Tensor) -> None:
        for parameter in bucket.parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(factor)

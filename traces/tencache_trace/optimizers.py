"""The optimizer side of a step: buckets of parameters, each updated at one event.

A bucket is what a running program updates with one call. One bucket per parameter is what makes
offloading possible: a single optimizer over all parameters needs the whole model at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from .errors import BadRequest

IMPLEMENTATIONS = ("fused", "foreach", "for-loop")


@dataclass
class Bucket:
    """Parameters that one optimizer object updates.

    ``masters`` holds an FP32 copy per parameter when the optimizer works on copies, else None.
    """

    parameters: list[torch.nn.Parameter]
    optimizer: torch.optim.Optimizer
    masters: list[torch.Tensor] | None = None

    @property
    def implementation(self) -> str:
        """Which kernels the optimizer runs: fused, foreach, for-loop, or PyTorch's own choice."""
        group = self.optimizer.param_groups[0]
        if group.get("fused"):
            return "fused"
        return {True: "foreach", False: "for-loop"}.get(group.get("foreach"), "default")

    def step(self) -> None:
        """Update the parameters from their gradients; parameters without one are left alone."""
        if self.masters is None:
            self.optimizer.step()
            return
        with torch.no_grad():
            for parameter, master in zip(self.parameters, self.masters, strict=True):
                if parameter.grad is not None:
                    master.grad = parameter.grad.to(master.dtype)
            self.optimizer.step()
            for parameter, master in zip(self.parameters, self.masters, strict=True):
                parameter.copy_(master)
                master.grad = None

    def zero_grad(self) -> None:
        """Drop the gradients, as ``Optimizer.zero_grad`` does by default."""
        for parameter in self.parameters:
            parameter.grad = None

    def state(self) -> Iterator[tuple[torch.nn.Parameter, str, torch.Tensor]]:
        """Yield (parameter, role, tensor) for masters and optimizer state, masters first."""
        targets = self.masters if self.masters is not None else self.parameters
        for parameter, target in zip(self.parameters, targets, strict=True):
            if target is not parameter:
                yield parameter, "master", target
            for role, value in self.optimizer.state.get(target, {}).items():
                if isinstance(value, torch.Tensor):
                    yield parameter, role, value

    def create_state(self) -> None:
        """Make the optimizer create its state now, by one step with gradients of zero.

        Optimizers create state in their first step; a trace describes a later, steady one.
        """
        if all(self.optimizer.state.get(p) for p in self._targets()):
            return
        for parameter in self.parameters:
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)
        self.step()
        self.zero_grad()

    def _targets(self) -> list[torch.Tensor]:
        return self.masters if self.masters is not None else list(self.parameters)


def adamw_buckets(
    model: torch.nn.Module, implementation: str, master_dtype: torch.dtype | None
) -> list[Bucket]:
    """Return one AdamW bucket per parameter, in ``named_parameters`` order.

    With ``master_dtype`` every parameter of another dtype gets a master copy of that dtype.
    """
    if implementation not in IMPLEMENTATIONS:
        raise BadRequest(
            f"unknown optimizer implementation '{implementation}'; "
            f"known: {', '.join(IMPLEMENTATIONS)}"
        )
    # Always said explicitly: PyTorch's own default depends on the device, and ours is a fake CPU.
    flags = {"fused": implementation == "fused", "foreach": implementation == "foreach"}
    buckets = []
    for parameter in model.parameters():
        masters = None
        if master_dtype is not None and parameter.dtype != master_dtype:
            masters = [parameter.detach().to(master_dtype)]
        targets = masters if masters is not None else [parameter]
        buckets.append(Bucket([parameter], torch.optim.AdamW(targets, lr=1e-3, **flags), masters))
    return buckets


def as_buckets(
    optimizer: torch.optim.Optimizer | Bucket | Sequence[torch.optim.Optimizer | Bucket],
) -> list[Bucket]:
    """Return buckets for what a user passes: an optimizer, a bucket, or a sequence of them."""
    members = optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]
    buckets = []
    for member in members:
        if isinstance(member, Bucket):
            buckets.append(member)
        elif isinstance(member, torch.optim.Optimizer):
            parameters = [p for group in member.param_groups for p in group["params"]]
            buckets.append(Bucket(parameters, member))
        else:
            raise BadRequest(
                f"the optimizer is a {type(member).__name__}; pass a torch.optim.Optimizer, "
                "a tencache_trace Bucket, or a list of them"
            )
    return buckets

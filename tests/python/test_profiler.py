"""The memory of a plain step, as PyTorch's profiler sees it, agrees with the trace.

The profiler runs the step without a recorder. Its memory events are the allocator's own, so they
show what a recorder might change. Bounds: 0.1 % in FP32; 2 % in bf16, where some CPU kernels take
workspace that no operator returns.
"""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import dataclass, replace

import pytest
import torch
from small import HEADS, LAYERS, SETTINGS, real_step, record
from tencache_trace.api import Settings
from tencache_trace.observer import Listener, StepObserver
from tencache_trace.step import TrainingStep
from tencache_trace.validate_ops import PERSISTENT, OperatorRules
from torch.profiler import ProfilerActivity, profile

CASES = {
    "fp32": (0.001, {}),
    "checkpointed": (0.001, {"checkpoint": "layer"}),
    "foreach": (0.001, {"implementation": "foreach"}),
    "bf16-master": (0.02, {"precision": "bf16-master"}),
}


@dataclass
class Profile:
    """Memory of one step in bytes: largest and last change against its start, and allocations.

    ``in_place_sums`` counts ``add_`` calls.
    """

    peak: int
    end: int
    allocations: Counter[int]
    in_place_sums: int


def profile_step(step: TrainingStep) -> Profile:
    """Run a steady step under the profiler."""
    for bucket in step.buckets:
        bucket.create_state()
    observer = StepObserver(step.model, Listener())
    gc.collect()
    with (
        observer.attached(),
        profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler,
    ):
        step.run(observer, lambda _loss: None)
    everything = list(profiler.profiler.kineto_results.events())
    sums = sum(event.name() == "aten::add_" for event in everything)
    events = [event for event in everything if event.name() == "[memory]"]
    changes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    live = peak = 0
    for change in changes:
        live += change
        peak = max(peak, live)
    return Profile(peak, live, Counter(change for change in changes if change > 0), sums)


def persistent_bytes(step: TrainingStep) -> int:
    """Bytes that exist before the step, counted from the objects themselves."""
    state = [
        tensor for bucket in step.buckets for _, role, tensor in bucket.state() if role != "step"
    ]
    inputs = [value for value in step.inputs.values() if isinstance(value, torch.Tensor)]
    tensors = [*step.model.parameters(), *step.model.buffers(), *state, *inputs]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@pytest.mark.parametrize("family", ["gpt2", "opt"])
@pytest.mark.parametrize("case", CASES)
def test_memory_of_a_plain_step(family: str, case: str) -> None:
    tolerance, changes = CASES[case]
    settings: Settings = replace(SETTINGS, **changes)
    step = real_step(family, 0.1, settings)
    measured = profile_step(step)
    trace = record(family, 0.1, kernels=False, granularity="op", **changes)
    rules = OperatorRules(trace)

    persistent = sum(record["bytes"] for record in trace.tensors if record["kind"] in PERSISTENT)
    assert persistent == persistent_bytes(step)

    peak = persistent + measured.peak
    assert rules.peak("fe") == pytest.approx(peak, rel=tolerance)
    assert rules.peak("f") <= rules.peak("fe") <= peak * 1.0001

    assert measured.end == 0

    allocations = Counter(
        trace.tensors[tensor]["bytes"] for op in trace.ops for tensor in op.get("a", ())
    )
    masked = masked_scores(family, settings)
    assert allocations - measured.allocations == masked

    if settings.implementation == "for-loop":
        # Besides those in the trace: masks, and the step counter of each parameter.
        ours = sum(op["name"].startswith("aten.add_.") for op in trace.ops)
        counters = sum(record["kind"] == "param" for record in trace.tensors)
        assert measured.in_place_sums == ours + masked.total() + counters


def masked_scores(family: str, settings: Settings) -> Counter[int]:
    """Sizes that only a recorded step allocates.

    CPU attention with dropout adds its mask to the scores in place, but not while a dispatch mode
    is active: one FP32 tensor [batch, heads, sequence, sequence] per layer and forward. GPT-2 has
    attention dropout, OPT has none.
    """
    if family != "gpt2":
        return Counter()
    scores = settings.batch * HEADS * settings.sequence**2 * 4
    forwards = 2 if settings.checkpoint == "layer" else 1
    return Counter({scores: LAYERS[family] * forwards})

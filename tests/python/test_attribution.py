"""Every operator of the backward pass belongs to the module that it works for.

Ground truth: an operator that reads a parameter belongs to the parameter's owner, and so does the
operator that allocates a parameter's gradient. A tied parameter has several owners.
"""

from __future__ import annotations

import pytest
from small import recorded
from tencache_trace.trace import Trace

CASES = {
    "plain": {},
    "checkpointed": {"checkpoint": "layer"},
    "bf16-master": {"precision": "bf16-master"},
    "amp": {"precision": "amp-bf16"},
}


def owners(trace: Trace, parameter: int) -> set[int]:
    return {module["m"] for module in trace.modules if parameter in module["params"]}


@pytest.mark.parametrize("family", ["gpt2", "opt"])
@pytest.mark.parametrize("case", CASES)
def test_ground_truth(family: str, case: str) -> None:
    trace = recorded(family, 0.1, **CASES[case])
    readers = producers = 0
    for op in trace.ops:
        if op["phase"] not in "fb":
            continue
        for tensor in op.get("r", ()):
            if trace.tensors[tensor]["kind"] == "param":
                readers += 1
                assert op.get("m") in owners(trace, tensor), op
        for tensor in op.get("a", ()):
            if trace.tensors[tensor]["kind"] == "grad":
                producers += 1
                assert op.get("m") in owners(trace, trace.tensors[tensor]["of"]), op
    parameters = sum(record["kind"] == "param" for record in trace.tensors)
    assert readers > parameters
    assert producers == parameters


@pytest.mark.parametrize("family", ["gpt2", "opt"])
@pytest.mark.parametrize("case", CASES)
def test_only_the_seed_of_the_loss_has_no_module(family: str, case: str) -> None:
    trace = recorded(family, 0.1, **CASES[case])
    without = [op["name"] for op in trace.ops if op["phase"] in "fb" and "m" not in op]
    assert without == ["aten.ones_like.default"]


@pytest.mark.parametrize("family", ["gpt2", "opt"])
def test_recomputation_repeats_the_modules_of_the_forward(family: str) -> None:
    """Also for operators of the layer itself, whose own hooks do not fire in a recomputation."""
    trace = recorded(family, 0.1, checkpoint="layer")
    forward = {(op["name"], op["m"]) for op in trace.ops if op["phase"] == "f"}
    again = [(op["name"], op["m"]) for op in trace.ops if op.get("rc")]
    assert again
    assert set(again) <= forward
    layers = {m["m"] for m in trace.modules if m["class"] in ("GPT2Block", "OPTDecoderLayer")}
    assert layers & {module for _, module in again}

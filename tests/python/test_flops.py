"""FLOPs of whole steps equal the textbook formula, to the last integer.

Per token a matrix product with N weights costs 2N forward and 4N backward. Attention costs
4 B T^2 h per layer forward, for two products of [T, h/heads] matrices per head, and 10 B T^2 h
backward: four products for the gradients, and one more because flash recomputes the scores. A
causal mask is counted in full.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from small import BATCH, HIDDEN, LAYERS, SEQUENCE, VOCABULARY, recorded
from tencache_trace.reader import read_trace
from tencache_trace.trace import Trace


def flops_by_pass(trace: Trace) -> Counter[str]:
    counts: Counter[str] = Counter()
    for op in trace.ops:
        counts["recompute" if op.get("rc") else op["phase"]] += op["flops"]
    return counts


def expected(
    batch: int, sequence: int, hidden: int, layers: int, head_weights: int
) -> dict[str, int]:
    """Forward, backward, and the recomputation of every layer as a whole."""
    tokens = batch * sequence
    layer_weights = 12 * hidden * hidden
    scores = batch * sequence * sequence * hidden
    return {
        "f": 2 * tokens * (layers * layer_weights + head_weights) + 4 * scores * layers,
        "b": 4 * tokens * (layers * layer_weights + head_weights) + 10 * scores * layers,
        "recompute": (2 * tokens * layer_weights + 4 * scores) * layers,
    }


@pytest.mark.parametrize(
    ("name", "batch", "sequence", "hidden", "layers", "vocabulary", "recomputed"),
    [
        ("opt13b.json", 4, 2048, 5120, 40, 50_272, True),
        ("opt13b-full.jsonl.gz", 4, 2048, 5120, 40, 50_272, False),
        ("gpt2.jsonl.gz", 8, 1024, 768, 12, 50_257, False),
    ],
)
def test_shipped_language_models(
    traces: Path,
    name: str,
    batch: int,
    sequence: int,
    hidden: int,
    layers: int,
    vocabulary: int,
    recomputed: bool,
) -> None:
    flops = flops_by_pass(read_trace(traces / name))
    formula = expected(batch, sequence, hidden, layers, vocabulary * hidden)
    assert flops["f"] == formula["f"]
    assert flops["b"] == formula["b"]
    assert flops["recompute"] == (formula["recompute"] if recomputed else 0)


@pytest.mark.parametrize(
    ("name", "hidden", "layers"),
    [("opt6.7b-paper.jsonl.gz", 4096, 32), ("opt13b-paper.jsonl.gz", 5120, 40)],
)
def test_shipped_classifiers(traces: Path, name: str, hidden: int, layers: int) -> None:
    """The score layer works on all positions: 2 h weights."""
    flops = flops_by_pass(read_trace(traces / name))
    formula = expected(16, 64, hidden, layers, 2 * hidden)
    assert (flops["f"], flops["b"]) == (formula["f"], formula["b"])


@pytest.mark.parametrize("family", ["gpt2", "opt"])
@pytest.mark.parametrize("kernels", [True, False])
def test_small_models(family: str, kernels: bool) -> None:
    """The same with GPU and with CPU attention kernels, in FP32."""
    trace = recorded(family, 0.0, kernels=kernels)
    hidden, layers = HIDDEN[family], LAYERS[family]
    formula = expected(BATCH, SEQUENCE, hidden, layers, VOCABULARY * hidden)
    flops = flops_by_pass(trace)
    assert (flops["f"], flops["b"]) == (formula["f"], formula["b"])


def test_every_matrix_operator_has_a_formula(traces: Path) -> None:
    for name in ("opt13b.json", "gpt2.jsonl.gz", "opt6.7b-paper.jsonl.gz"):
        for op in read_trace(traces / name).ops:
            assert (op["flops"] > 0) == (op["cls"] in ("gemm", "attn")), op

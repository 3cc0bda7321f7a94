"""The shipped traces hold the parameters and requests that are known from elsewhere.

Sizes: 10Cache's (arXiv 2511.14124) published access logs and the models' own shapes, worked out by
hand below. Needs no PyTorch.
"""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest
from tencache_trace.reader import read_trace
from tencache_trace.trace import Trace

GPT2 = 124_439_808
SHIPPED = (
    "opt13b.json",
    "opt13b-full.jsonl.gz",
    "opt6.7b-paper.jsonl.gz",
    "opt13b-paper.jsonl.gz",
    "gpt2.jsonl.gz",
)


def opt_sizes(hidden: int, layers: int, classifier: bool) -> Counter[int]:
    """Bytes of an OPT model's 16-bit parameters -> how many there are.

    Embeddings of 50,272 tokens and 2,050 positions; per layer q, k, v, out with biases, two layer
    norms, and two matrices of four times the width; a last layer norm; a classifier of two labels.
    """
    square, wide = 2 * hidden * hidden, 2 * 4 * hidden * hidden
    sizes = Counter({2 * 50_272 * hidden: 1, 2 * 2_050 * hidden: 1})
    sizes[square] += 4 * layers
    sizes[wide] += 2 * layers
    sizes[2 * hidden] += (4 + 2 * 2 + 1) * layers + 2
    sizes[2 * 4 * hidden] += layers
    if classifier:
        sizes[2 * 2 * hidden] += 1
    return sizes


def sizes_of(trace: Trace) -> Counter[int]:
    return Counter(record["bytes"] for record in trace.tensors if record["kind"] == "param")


def requests(trace: Trace) -> Counter[str]:
    """Parameters that module hooks ask for, per pass; what is recomputed counts apart."""
    counts: Counter[str] = Counter()
    backward = False
    for event in trace.events:
        backward = backward or event["event"] == "backward_start"
        if event["event"] == "forward_pre":
            owned = len(trace.modules[event["m"]]["params"])
            counts["recompute" if backward else "forward"] += owned
            counts["modules"] += owned > 0 and not backward
        elif event["event"] == "backward":
            counts["backward"] += len(trace.modules[event["m"]]["params"])
    return counts


@pytest.mark.parametrize(
    ("name", "hidden", "layers", "classifier", "tensors", "total"),
    [
        ("opt6.7b-paper.jsonl.gz", 4096, 32, True, 517, 13_316_964_352),
        ("opt13b-paper.jsonl.gz", 5120, 40, True, 645, 25_706_967_040),
        ("opt13b.json", 5120, 40, False, 644, 25_706_946_560),
        ("opt13b-full.jsonl.gz", 5120, 40, False, 644, 25_706_946_560),
    ],
)
def test_opt_parameters(
    traces: Path,
    name: str,
    hidden: int,
    layers: int,
    classifier: bool,
    tensors: int,
    total: int,
) -> None:
    sizes = sizes_of(read_trace(traces / name))
    assert sizes == opt_sizes(hidden, layers, classifier)
    assert sum(sizes.values()) == tensors
    assert sum(size * count for size, count in sizes.items()) == total


def test_opt_6_7b_histogram(traces: Path) -> None:
    assert sizes_of(read_trace(traces / "opt6.7b-paper.jsonl.gz")) == {
        411_828_224: 1,
        16_793_600: 1,
        33_554_432: 128,
        134_217_728: 64,
        32_768: 32,
        8_192: 290,
        16_384: 1,
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("opt6.7b-paper.jsonl.gz", {"forward": 517, "backward": 517, "modules": 260}),
        ("opt13b-paper.jsonl.gz", {"forward": 645, "backward": 645, "modules": 324}),
        ("opt13b-full.jsonl.gz", {"forward": 645, "backward": 645, "modules": 324}),
        (
            "opt13b.json",
            {"forward": 645, "backward": 645, "recompute": 640, "modules": 324},
        ),
        ("gpt2.jsonl.gz", {"forward": 149, "backward": 149, "modules": 76}),
    ],
)
def test_requests(traces: Path, name: str, expected: dict[str, int]) -> None:
    assert +requests(read_trace(traces / name)) == expected


def test_execution_order_of_attention(traces: Path) -> None:
    """OPT owns k, v, q and runs q, k, v: events say the latter, parameter ids the former."""
    trace = read_trace(traces / "opt6.7b-paper.jsonl.gz")
    paths = [trace.modules[e["m"]]["path"] for e in trace.events if e["event"] == "forward_pre"]
    projections = [
        path.rsplit(".", 1)[1]
        for path in paths
        if path.startswith("model.decoder.layers.3.self_attn.")
    ]
    assert projections == ["q_proj", "k_proj", "v_proj", "out_proj"]
    ids = {record.get("name"): record["t"] for record in trace.tensors}
    prefix = "model.decoder.layers.3.self_attn."
    assert (
        ids[f"{prefix}k_proj.weight"]
        < ids[f"{prefix}v_proj.weight"]
        < ids[f"{prefix}q_proj.weight"]
    )


@pytest.mark.parametrize("name", ["opt13b.json", "gpt2.jsonl.gz"])
def test_tied_head_is_one_tensor_with_two_owners(traces: Path, name: str) -> None:
    trace = read_trace(traces / name)
    tied = [record for record in trace.tensors if "names" in record.get("bind", {})]
    assert len(tied) == 1
    assert len(tied[0]["bind"]["names"]) == 2
    assert tied[0]["bind"]["names"][1] == "lm_head.weight"
    owners = [m["path"] for m in trace.modules if tied[0]["t"] in m["params"]]
    assert len(owners) == 2
    assert owners[1] == "lm_head"


def test_gpt2_parameters(traces: Path) -> None:
    trace = read_trace(traces / "gpt2.jsonl.gz")
    assert sum(size * count for size, count in sizes_of(trace).items()) == 2 * GPT2
    assert trace.header["model"]["params"] == GPT2


@pytest.mark.parametrize("name", SHIPPED)
def test_state_per_parameter(traces: Path, name: str) -> None:
    """Each 16-bit parameter has an FP32 master and two moments of twice its bytes."""
    trace = read_trace(traces / name)
    roles: dict[int, dict[str, int]] = {}
    for record in trace.tensors:
        if record["kind"] == "optimizer_state":
            roles.setdefault(record["of"], {})[record["role"]] = record["bytes"]
    for record in trace.tensors:
        if record["kind"] == "param":
            expected = dict.fromkeys(("master", "exp_avg", "exp_avg_sq"), 2 * record["bytes"])
            assert roles[record["t"]] == expected


@pytest.mark.parametrize("name", SHIPPED)
def test_optimizer_is_one_operator_per_parameter(traces: Path, name: str) -> None:
    """28 bytes per parameter; reads gradient, master, moments; writes these and the parameter."""
    trace = read_trace(traces / name)
    ops = [op for op in trace.ops if op["phase"] == "o"]
    parameters = [record for record in trace.tensors if record["kind"] == "param"]
    assert len(ops) == len(parameters)
    for op, parameter in zip(ops, parameters, strict=True):
        kinds = [trace.tensors[t].get("role", trace.tensors[t]["kind"]) for t in op["r"]]
        assert kinds == ["grad", "master", "exp_avg", "exp_avg_sq"]
        assert {trace.tensors[t]["of"] for t in op["r"]} == {parameter["t"]}
        assert op["w"] == [parameter["t"], *op["r"][1:]]
        assert op["bytes"] == 28 * parameter["bytes"] // 2
        assert (op["name"], op["cls"], op["flops"]) == ("optim.adamw", "opt", 0)
        assert "a" not in op
        assert "m" not in op


def test_layers(traces: Path) -> None:
    trace = read_trace(traces / "opt13b.json")
    layers = Counter(m["layer"] for m in trace.modules if "layer" in m)
    assert set(layers) == set(range(40))
    assert len(set(layers.values())) == 1
    outside = {m["path"] for m in trace.modules if "layer" not in m}
    assert {"lm_head", "model.decoder.embed_tokens", "model.decoder.final_layer_norm"} <= outside


def test_document_size(traces: Path) -> None:
    assert (traces / "opt13b.json").stat().st_size <= 2_000_000


@pytest.mark.parametrize("name", SHIPPED)
def test_compressed_files_carry_no_time(traces: Path, name: str) -> None:
    data = (traces / name).read_bytes()
    if name.endswith(".gz"):
        assert data[4:8] == bytes(4)
        assert gzip.decompress(data).startswith(b'{"format":"tencache-trace"')
    else:
        assert data.startswith(b'{"format":"tencache-trace"')

"""The events are those that hooks of a running program see, in their order."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from small import LAYERS, record, recorded
from tencache_trace.optimizers import Bucket
from tencache_trace.trace import Trace


def names(trace: Trace) -> list[str]:
    """Events as ``kind path`` or ``kind parameter``."""
    result = []
    for event in trace.events:
        subject = ""
        if "m" in event:
            subject = trace.modules[event["m"]]["path"]
        elif "t" in event:
            subject = trace.tensors[event["t"]]["name"]
        result.append(f"{event['event']} {subject}".strip())
    return result


def test_one_pair_of_events_per_module_call() -> None:
    trace = recorded("opt", 0.0)
    counts = Counter(name for name in names(trace) if name.startswith("forward"))
    called = {name.partition(" ")[2] for name in counts}
    assert {"model.decoder.layers.1.fc2", "lm_head", ""} <= called
    assert set(counts.values()) == {1}
    for path in called:
        assert f"forward_post {path}".strip() in counts


def test_one_gradient_event_per_parameter_and_micro_batch() -> None:
    """Also for the tied embedding, whose gradient is accumulated once from two uses."""
    trace = recorded("opt", 0.0)
    gradients = Counter(name for name in names(trace) if name.startswith("gradient"))
    parameters = [record for record in trace.tensors if record["kind"] == "param"]
    assert len(gradients) == len(parameters)
    assert set(gradients.values()) == {1}


def test_order_inside_a_layer() -> None:
    """OPT computes q, k, v; the backward pass reaches v, k, q, and of each the weight last."""
    listed = names(recorded("opt", 0.0))
    prefix = "model.decoder.layers.0.self_attn"
    forward = [listed.index(f"forward_pre {prefix}.{name}_proj") for name in "qkv"]
    assert forward == sorted(forward)
    for name in "qkv":
        arrival = listed.index(f"backward {prefix}.{name}_proj")
        assert arrival < listed.index(f"gradient {prefix}.{name}_proj.bias")
        assert arrival < listed.index(f"gradient {prefix}.{name}_proj.weight")


def test_root_gets_its_gradient_first() -> None:
    listed = names(recorded("opt", 0.0))
    assert listed[listed.index("backward_start") + 1] == "backward"


@pytest.mark.parametrize("family", ["gpt2", "opt"])
def test_recomputation_stops_early(family: str) -> None:
    """Without dropout the last saved tensor of a layer is the input of its last product.

    PyTorch stops a recomputation when all saved tensors are there, so that product is not run
    again: its module is entered and left, and no operator comes between.
    """
    trace = recorded(family, 0.0, checkpoint="layer")
    again = [op for op in trace.ops if op.get("rc") and op["cls"] == "gemm"]
    forward = [op for op in trace.ops if op["phase"] == "f" and op["cls"] == "gemm"]
    per_layer = (len(forward) - 1) // LAYERS[family]
    assert len(again) == LAYERS[family] * (per_layer - 1)
    last = "mlp.c_proj" if family == "gpt2" else "fc2"
    starts = [
        event["e"]
        for event in trace.events
        if event["event"] == "forward_pre" and trace.modules[event["m"]]["path"].endswith(last)
    ]
    assert len(starts) == 2 * LAYERS[family]
    for start in starts[LAYERS[family] :]:
        assert trace.events[start + 1]["event"] == "forward_post"
        assert not [op for op in trace.ops if op["e"] == start]


@pytest.mark.parametrize("family", ["gpt2", "opt"])
def test_recomputation_runs_to_the_end_with_dropout(family: str) -> None:
    """A dropout at the end of the layer saves its mask, so everything before it is run again."""
    trace = recorded(family, 0.1, checkpoint="layer")
    again = [op for op in trace.ops if op.get("rc") and op["cls"] == "gemm"]
    forward = [op for op in trace.ops if op["phase"] == "f" and op["cls"] == "gemm"]
    assert len(again) == len(forward) - 1


def test_checkpointing_keeps_layer_inputs_only() -> None:
    """Saved tensors inside a layer are no bindings: no hook sees them."""
    trace = recorded("gpt2", 0.1, checkpoint="layer")
    saved = [record for record in trace.tensors if record.get("bind", {}).get("kind") == "saved"]
    by_layer = Counter(record["layer"] for record in saved if "layer" in record)
    plain = recorded("gpt2", 0.1, checkpoint="none")
    everything = [r for r in plain.tensors if r.get("bind", {}).get("kind") == "saved"]
    assert max(by_layer.values()) == 1
    assert len(saved) < len(everything) / 4


def test_norm_events_come_between_backward_and_optimizer() -> None:
    trace = recorded("opt", 0.0, clip_norm=1.0)
    kinds = [event["event"] for event in trace.events]
    parameters = sum(record["kind"] == "param" for record in trace.tensors)
    first = kinds.index("norm")
    assert kinds[first : first + parameters] == ["norm"] * parameters
    assert kinds[first - 1] == "gradient"
    assert kinds[first + parameters] == "optimizer"
    assert trace.header["run"]["clip"] == {"kind": "global-norm", "max_norm": 1.0}
    for op in trace.ops:
        if op["name"] == "optim.adamw":
            roles = [trace.tensors[t].get("role", trace.tensors[t]["kind"]) for t in op["r"]]
            assert roles == ["grad", "param", "exp_avg", "exp_avg_sq", "temp"]


def test_bindings_name_the_first_pack() -> None:
    """Ordinals of one module are distinct, and the name exists from the next event on."""
    trace = recorded("gpt2", 0.1)
    ordinals: dict[int, list[int]] = {}
    births = {t: op["e"] for op in trace.ops for t in op.get("a", ())}
    for record_ in trace.tensors:
        bind = record_.get("bind", {})
        if bind.get("kind") == "saved":
            ordinals.setdefault(bind["m"], []).append(bind["ord"])
            assert record_["bound_at"] > births[record_["t"]]
    assert len(ordinals) > 10
    for numbers in ordinals.values():
        assert len(set(numbers)) == len(numbers)


def test_a_bucket_of_many_parameters_is_one_event() -> None:
    """One optimizer over the model: one event, still one operator per parameter."""
    from dataclasses import replace

    from small import SETTINGS, config_of
    from tencache_trace.api import make_step, record_step
    from tencache_trace.header import Options
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        step = make_step(config_of("opt", 0.0), replace(SETTINGS, precision="fp32"))
        parameters = list(step.model.parameters())
        step.buckets = [Bucket(parameters, torch.optim.AdamW(parameters, foreach=True))]
        trace = record_step(step, Options(method="fx"))
    assert [event["event"] for event in trace.events].count("optimizer") == 1
    assert len(trace.header["buckets"]) == 1
    updates = [op for op in trace.ops if op["phase"] == "o"]
    assert len(updates) == len(parameters)
    assert trace.ops == _with_event(recorded("opt", 0.0), trace)


def _with_event(single: Trace, joined: Trace) -> list[dict]:
    """Return the operators of one bucket per parameter as those of one bucket for all."""
    event = next(event["e"] for event in joined.events if event["event"] == "optimizer")
    return [{**op, "e": event} if op["phase"] == "o" else op for op in single.ops]


def test_eager_frees_include_zero_grad() -> None:
    """Gradients die in zero_grad, after the last operator; by last use each dies at its update."""
    trace = record("opt", 0.0)
    gradients = {record["t"] for record in trace.tensors if record["kind"] == "grad"}
    assert gradients <= set(trace.ops[-1]["fe"])
    freed = {t for op in trace.ops if op["name"] == "optim.adamw" for t in op["f"]}
    assert freed == gradients

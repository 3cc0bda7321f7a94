"""Each way that is known to give a wrong trace without any error has a test here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from small import record, recorded
from tencache_trace import UntraceableModel, api, capture
from tencache_trace.reader import read_trace
from tencache_trace.trace import Trace
from torch import nn


def trace_of(model: nn.Module, inputs: tuple, tmp_path: Path, **options: object) -> Trace:
    """Capture a user's model with one AdamW and read the file."""
    path = tmp_path / "model.json"
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    capture(model, inputs, optimizer, path, **options)
    return read_trace(path)


def op_names(trace: Trace, **conditions: object) -> list[str]:
    return [
        op["name"]
        for op in trace.ops
        if all(op.get(key) == value for key, value in conditions.items())
    ]


def test_no_mask_appears_where_none_was_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under fake tensors transformers would materialise a mask, which rules flash out."""
    assert recorded("gpt2", 0.1, precision="bf16-master").header["run"]["attention"] == ["flash"]

    @contextmanager
    def unpatched() -> Iterator[list[str]]:
        yield []

    monkeypatch.setattr(api, "unpacked_sequences", unpatched)
    wrong = record("gpt2", 0.1, precision="bf16-master")
    assert wrong.header["run"]["attention"] == ["efficient"]


def test_weights_stay_tied() -> None:
    trace = recorded("opt", 0.0)
    names = [t["name"] for t in trace.tensors if t["kind"] == "param"]
    assert "lm_head.weight" not in names
    assert "model.decoder.embed_tokens.weight" in names


@pytest.mark.parametrize("family", ["gpt2", "opt"])
def test_recomputation_uses_gpu_kernels(family: str) -> None:
    """A torch function mode would be off during backward, a replaced attribute is not."""
    trace = recorded(family, 0.1, checkpoint="layer", precision="bf16-master")
    again = set(op_names(trace, rc=1))
    assert "aten.native_dropout.default" in again
    assert "aten._scaled_dot_product_flash_attention.default" in again
    assert not [name for name in again if "bernoulli" in name or "softmax" in name]


def test_recomputation_reads_the_models_own_parameters() -> None:
    trace = recorded("opt", 0.0, checkpoint="layer")
    forward, again = (
        {
            tensor
            for op in trace.ops
            if op["phase"] == phase and op.get("rc", 0) == rc and op.get("layer") is not None
            for tensor in op.get("r", ())
            if trace.tensors[tensor]["kind"] == "param"
        }
        for phase, rc in (("f", 0), ("b", 1))
    )
    # All but weight and bias of the last product, where the recomputation stops.
    assert again < forward
    assert len(forward - again) == 2 * 2


def test_dropout_and_attention_are_gpu_kernels() -> None:
    """Dropout keeps a mask of one byte per element; attention keeps no score matrix."""
    trace = recorded("gpt2", 0.1, precision="bf16-master")
    masks = [
        trace.tensors[op["w"][1]] for op in trace.ops if op["name"] == "aten.native_dropout.default"
    ]
    assert masks
    assert {record["dtype"] for record in masks} == {"bool"}
    attention = {op["name"] for op in trace.ops if op["cls"] == "attn"}
    assert attention == {
        "aten._scaled_dot_product_flash_attention.default",
        "aten._scaled_dot_product_flash_attention_backward.default",
    }


def test_cpu_kernels_without_the_patch() -> None:
    """What the patch is for: the same model with CPU kernels keeps more activations."""
    names = set(op_names(recorded("gpt2", 0.1, kernels=False)))
    assert "aten.bernoulli_.float" in names
    assert "aten._scaled_dot_product_flash_attention_for_cpu.default" not in names
    assert recorded("gpt2", 0.1, kernels=False).header["run"]["attention"] == []


@pytest.mark.parametrize(
    ("implementation", "present", "absent"),
    [
        ("fused", "aten._fused_adamw_.default", "aten._foreach_"),
        ("foreach", "aten._foreach_lerp_.Scalar", "aten._fused"),
        ("for-loop", "aten.lerp_.Scalar", "aten._f"),
    ],
)
def test_optimizer_implementation_is_the_one_asked_for(
    implementation: str, present: str, absent: str
) -> None:
    trace = recorded("opt", 0.0, granularity="op", implementation=implementation)
    names = set(op_names(trace, phase="o"))
    assert present in names
    assert not [name for name in names if name.startswith(absent)]
    assert trace.header["run"]["optimizer"]["impl"] == implementation


@pytest.mark.parametrize("implementation", ["fused", "foreach", "for-loop"])
def test_optimizer_writes_parameters_and_not_gradients(implementation: str) -> None:
    """In-place list operators return nothing, and the fused kernel's schema marks gradients."""
    trace = recorded("opt", 0.0, granularity="op", implementation=implementation)
    written = {t for op in trace.ops if op["phase"] == "o" for t in op.get("w", ())}
    kinds = {trace.tensors[t]["kind"] for t in written}
    assert "grad" not in kinds
    parameters = {t["t"] for t in trace.tensors if t["kind"] == "param"}
    states = {t["t"] for t in trace.tensors if t["kind"] == "optimizer_state"}
    assert parameters | states <= written


@pytest.mark.parametrize("implementation", ["fused", "foreach", "for-loop"])
def test_coalesced_update_is_the_same_for_all_implementations(implementation: str) -> None:
    trace = recorded("opt", 0.0, implementation=implementation)
    assert trace.ops == recorded("opt", 0.0).ops


class InPlaceDivision(nn.Module):
    """One in-place operator on a view: autograd makes two nodes for it."""

    def __init__(self) -> None:
        super().__init__()
        self.top = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.top(x)
        rows[0].div_(rows.detach().sum() + 2)
        return rows.exp().sum()


@pytest.mark.parametrize("method", ["fx", "dispatch"])
def test_both_nodes_of_an_in_place_operator_have_a_module(tmp_path: Path, method: str) -> None:
    trace = trace_of(InPlaceDivision(), (torch.ones(4, 4),), tmp_path, method=method)
    without = [op["name"] for op in trace.ops if op["phase"] == "b" and "m" not in op]
    assert without == ["aten.ones_like.default"]
    assert "aten.div_.Tensor" in op_names(trace, phase="f")


class TwoUses(nn.Module):
    """A sum of gradients: two branches from one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.left = nn.Linear(4, 4)
        self.right = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shared = self.first(x)
        return (self.left(shared) * self.right(shared)).sum()


@pytest.mark.parametrize("method", ["fx", "dispatch"])
def test_gradient_sums_run_in_place_and_have_the_last_summands_module(
    tmp_path: Path, method: str
) -> None:
    """Recording turns the sum out of place; graph metadata gives it the loss's module."""
    trace = trace_of(TwoUses(), (torch.ones(2, 4),), tmp_path, method=method)
    paths = {m["m"]: m["path"] for m in trace.modules}
    sums = [op for op in trace.ops if op.get("x_inplace")]
    assert [(op["name"], paths[op["m"]]) for op in sums] == [("aten.add_.Tensor", "left")]
    (operator,) = sums
    assert "a" not in operator
    assert operator["w"] == operator["r"][:1]
    assert not op_names(trace, name="aten.add.Tensor", phase="b")


class Forgotten(nn.Module):
    """Holds a tensor that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.scale = torch.full((4,), 2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.layer(x) * self.scale).sum()


@pytest.mark.parametrize("method", ["fx", "dispatch"])
def test_unnamed_tensors_are_refused(tmp_path: Path, method: str) -> None:
    with pytest.raises(UntraceableModel, match=r"aten.mul.Tensor uses a tensor.*\[4\].*buffer"):
        trace_of(Forgotten(), (torch.ones(2, 4),), tmp_path, method=method)
    assert list(tmp_path.iterdir()) == []


class Constant(nn.Module):
    """Makes a tensor from a number during the forward: that one is no data of the model."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.layer(x) * torch.tensor(2.0)).sum()


@pytest.mark.parametrize("method", ["fx", "dispatch"])
def test_numbers_made_into_tensors_stay_out(tmp_path: Path, method: str) -> None:
    trace = trace_of(Constant(), (torch.ones(2, 4),), tmp_path, method=method)
    assert not [op for op in trace.ops if "lift" in op["name"]]
    product = next(op for op in trace.ops if op["name"] == "aten.mul.Tensor" and op["phase"] == "f")
    assert len(product["r"]) == 1


@pytest.mark.parametrize("method", ["fx", "dispatch"])
def test_batch_norm_writes_its_running_statistics(tmp_path: Path, method: str) -> None:
    """Buffers that a forward updates must not look clean."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    trace = trace_of(model, (torch.ones(3, 4),), tmp_path, method=method)
    written = {trace.tensors[t].get("name") for op in trace.ops for t in op.get("w", ())}
    assert {"1.running_mean", "1.running_var", "1.num_batches_tracked"} <= written


def test_dead_results_stay(tmp_path: Path) -> None:
    """A real step runs operators whose result nobody uses; make_fx would remove them."""

    class Wasteful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch.sin(x)
            return self.layer(x).sum()

    trace = trace_of(Wasteful(), (torch.ones(2, 4),), tmp_path, method="fx")
    (dead,) = [op for op in trace.ops if op["name"] == "aten.sin.default"]
    assert dead["f"] == dead["fe"] == dead["a"]


def test_partial_overwrite_keeps_the_rest(tmp_path: Path) -> None:
    """Copying into a part of a storage needs its old content; into all of it, does not."""

    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.register_buffer("part", torch.zeros(2, 4))
            self.register_buffer("whole", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.part[0].copy_(x[0])
            self.whole.copy_(x[0])
            return self.layer(x).sum()

    trace = trace_of(Writes(), (torch.ones(2, 4),), tmp_path)
    names = {record["t"]: record.get("name") for record in trace.tensors}
    copies = [op for op in trace.ops if op["name"] == "aten.copy_.default"]
    part, whole = ([names[t] for t in op["r"]] for op in copies)
    assert part == ["part", "0"]
    assert whole == ["0"]

"""The library call on a user's own model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small import SETTINGS, real_step, recorded
from tencache_trace import BadRequest, CaptureMismatch, UntraceableModel, capture
from tencache_trace.reader import read_trace
from tencache_trace.trace import SECTIONS
from tencache_trace.validate import validate_file
from torch import nn

BY_HAND = Path(__file__).resolve().parents[3] / "shared" / "cases" / "trace-v1" / "mlp.json"


# In that trace, the gradient that the backward pass starts from and the last operator of the pass.
# By hand the seed is free after its last use; PyTorch holds it until backward() returns.
SEED, LAST_BACKWARD = 17, 10


def _eager(ops: list[dict], rename: dict[int, int]) -> dict[int, int]:
    """Map tensors to the operator after which PyTorch frees them."""
    return {rename.get(t, t): op["op"] for op in ops for t in op.get("fe", ())}


class Classifier(nn.Module):
    """The model of the trace that was written by hand: two linear layers and a sum as its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(4, 8)
        self.act = nn.ReLU()
        self.fc2 = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.act(self.fc1(x))).sum()


def optimizers(model: nn.Module) -> list[torch.optim.Optimizer]:
    return [torch.optim.AdamW([parameter], fused=True) for parameter in model.parameters()]


@pytest.mark.skipif(not BY_HAND.exists(), reason=f"{BY_HAND} is not there")
@pytest.mark.parametrize("method", ["fx", "dispatch"])
def test_capture_equals_the_trace_by_hand(tmp_path: Path, method: str) -> None:
    model = Classifier()
    path = tmp_path / "mlp.json"
    capture(model, {"x": torch.ones(4, 4)}, optimizers(model), path, method=method)
    ours, theirs = read_trace(path), json.loads(BY_HAND.read_text())
    assert ours.modules == theirs["modules"]
    assert ours.events == theirs["events"]
    assert ours.unpacks == theirs["unpacks"]
    assert ours.header["events_sha256"] == theirs["events_sha256"]
    assert ours.header["buckets"] == theirs["buckets"]
    for key in ("param", "grad", "compute", "state"):
        assert ours.header["run"]["dtype"][key] == theirs["run"]["dtype"][key]

    # Transient tensors may be numbered in another order; the order of births tells who is who.
    rename = {t: t for t in range(13)}
    for op, expected in zip(ours.ops, theirs["ops"], strict=True):
        rename.update(zip(op.get("a", []), expected.get("a", []), strict=True))
    for op, expected in zip(ours.ops, theirs["ops"], strict=True):
        for key in ("op", "name", "phase", "m", "e", "flops", "bytes", "cls"):
            assert op.get(key) == expected.get(key)
        for key in ("r", "w", "a", "f"):
            assert {rename[t] for t in op.get(key, ())} == set(expected.get(key, ()))
    assert _eager(ours.ops, rename) == {**_eager(theirs["ops"], {}), SEED: LAST_BACKWARD}
    expected_tensors = {record["t"]: record for record in theirs["tensors"]}
    for record in ours.tensors:
        expected = expected_tensors[rename[record["t"]]]
        record.pop("shape", None)
        assert {**record, "t": rename[record["t"]]} == expected


def test_nothing_of_the_user_changes(tmp_path: Path) -> None:
    model = Classifier()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    parameters = list(model.parameters())
    members = optimizers(model)
    x = torch.ones(4, 4)
    summary = capture(model, (x,), members, tmp_path / "own.jsonl.gz")
    assert summary.counts["ops"] > 0
    assert all(mine is theirs for mine, theirs in zip(model.parameters(), parameters, strict=True))
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    assert all(parameter.grad is None for parameter in parameters)
    assert all(not member.state for member in members)
    assert not model._forward_hooks
    assert not model.fc1._forward_pre_hooks
    assert type(x) is torch.Tensor


def test_layout_follows_the_name(tmp_path: Path) -> None:
    model = Classifier()
    for name, layout in (
        ("a.json", "document"),
        ("a.json.gz", "document"),
        ("a.jsonl", "lines"),
        ("a.jsonl.gz", "lines"),
    ):
        capture(model, (torch.ones(4, 4),), optimizers(model), tmp_path / name, method="dispatch")
        assert read_trace(tmp_path / name).header["layout"] == layout
        validate_file(tmp_path / name)


def test_sgd_and_a_loss_function(tmp_path: Path) -> None:
    """Another optimizer moves what it reads and writes: gradient, parameter, momentum."""
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    path = tmp_path / "sgd.json"
    capture(model, (torch.ones(3, 4),), optimizer, path, loss=lambda out: out.square().mean())
    validate_file(path)
    trace = read_trace(path)
    updates = [op for op in trace.ops if op["phase"] == "o"]
    assert [op["name"] for op in updates] == ["optim.sgd"] * 2
    assert [op["bytes"] for op in updates] == [5 * 4 * 8, 5 * 4 * 2]
    roles = [trace.tensors[t].get("role", trace.tensors[t]["kind"]) for t in updates[0]["r"]]
    assert roles == ["grad", "param", "momentum_buffer"]


def test_own_checkpointing_is_seen(tmp_path: Path) -> None:
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(Classifier):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(super().forward, x, use_reentrant=False)

    model = Checkpointed()
    path = tmp_path / "own.json"
    capture(model, (torch.ones(4, 4),), optimizers(model), path)
    trace = read_trace(path)
    validate_file(path)
    assert trace.header["run"]["checkpoint"] == {"mode": "custom"}
    assert any(op.get("rc") for op in trace.ops)


def test_a_transformers_model_with_weights(tmp_path: Path) -> None:
    """A copy as shapes of a real model with a tied head gives the trace of a model without."""
    step = real_step("opt", 0.1, replace(SETTINGS, checkpoint="layer"))
    path = tmp_path / "own.json"
    members = [bucket.optimizer for bucket in step.buckets]
    capture(step.model, step.inputs, members, path, method="fx")
    ours, known = read_trace(path), recorded("opt", 0.1, checkpoint="layer")
    for section in SECTIONS:
        assert ours.section(section) == known.section(section)


def test_frozen_parameters_are_read_only(tmp_path: Path) -> None:
    model = Classifier()
    model.fc1.requires_grad_(False)
    path = tmp_path / "frozen.json"
    members = optimizers(model.fc2)
    capture(model, (torch.ones(4, 4),), members, path)
    validate_file(path)
    trace = read_trace(path)
    names = {record["t"]: record.get("name") for record in trace.tensors}
    written = {names[t] for op in trace.ops for t in op.get("w", ())}
    assert {"fc2.weight", "fc2.bias"} <= written
    assert not {"fc1.weight", "fc1.bias"} & written
    listed = [names[event["t"]] for event in trace.events if event["event"] == "gradient"]
    assert listed == ["fc2.bias", "fc2.weight"]
    backward = [trace.modules[e["m"]]["path"] for e in trace.events if e["event"] == "backward"]
    assert backward == ["", "fc2"]


class LateInput(nn.Module):
    """A checkpointed region whose second input is read late in it."""

    def __init__(self) -> None:
        super().__init__()
        self.early, self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch.utils.checkpoint import checkpoint

        side = self.early(x)
        return checkpoint(self.region, x, side, use_reentrant=False).sum()

    def region(self, x: torch.Tensor, side: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).relu() * side).exp()


@pytest.mark.parametrize("method", ["fx", "dispatch"])
def test_unpacks_that_no_operator_shows(tmp_path: Path, method: str) -> None:
    """A recomputation needs all its inputs when it starts, before it reads each."""
    model = LateInput()
    path = tmp_path / "late.json"
    capture(model, (torch.ones(2, 4),), optimizers(model), path, method=method)
    validate_file(path)
    trace = read_trace(path)
    side = next(op for op in trace.ops if op["name"] == "aten.addmm.default")["a"][0]
    uses = {record["t"]: record["u"] for record in trace.unpacks}
    assert side in uses
    first_recomputed = next(op for op in trace.ops if op.get("rc"))
    reads_it = next(op for op in trace.ops if op.get("rc") and side in op.get("r", ()))
    assert uses[side][0] <= first_recomputed["e"] < reads_it["e"]
    assert trace.tensors[side]["kind"] == "activation"


def test_other_versions_warn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tencache_trace.header.TESTED_TORCH", "1.0")
    model = Classifier()
    with pytest.warns(UserWarning, match=r"captures were checked with 1\.0"):
        capture(model, (torch.ones(4, 4),), optimizers(model), tmp_path / "x.json")


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        return y.sum() if y.max() > 0 else y.mean()


class Selects(Branches):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)[x > 0].sum()


class Breaks(Branches):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.inner(x) @ x).sum()


@pytest.mark.parametrize("method", ["fx", "dispatch"])
@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Branches, "_local_scalar_dense.*looks at the value.*Try:"),
        (Selects, "nonzero|index.*depends on values.*Try:"),
        (Breaks, "failed after aten.mm.*Try:"),
    ],
)
def test_untraceable_models(
    tmp_path: Path, method: str, model: type[nn.Module], message: str
) -> None:
    """Which operator, why, what to try; and no file is left behind."""
    own = model()
    with pytest.raises(UntraceableModel, match=message):
        capture(own, (torch.ones(3, 4),), optimizers(own), tmp_path / "x.json", method=method)
    assert list(tmp_path.iterdir()) == []


def test_no_loss(tmp_path: Path) -> None:
    class Plain(Classifier):
        def forward(self, x: torch.Tensor) -> dict:
            return {"logits": self.fc1(x)}

    own = Plain()
    with pytest.raises(UntraceableModel, match="cannot find a loss in a dict"):
        capture(own, (torch.ones(3, 4),), optimizers(own), tmp_path / "x.json")


def test_bad_arguments(tmp_path: Path) -> None:
    model = Classifier()
    x = (torch.ones(4, 4),)
    with pytest.raises(BadRequest, match=r"pass a torch\.optim\.Optimizer"):
        capture(model, x, "adam", tmp_path / "x.json")
    with pytest.raises(BadRequest, match="unknown capture method 'export'"):
        capture(model, x, optimizers(model), tmp_path / "x.json", method="export")
    with pytest.raises(BadRequest, match="cannot write"):
        capture(model, x, optimizers(model), tmp_path / "none" / "x.json", method="dispatch")
    assert issubclass(CaptureMismatch, Exception)


def test_batch_and_sequence_are_written_down_and_change_nothing_else(tmp_path: Path) -> None:
    model = Classifier()
    plain, told = tmp_path / "plain.json", tmp_path / "told.json"
    capture(model, {"x": torch.ones(4, 4)}, optimizers(model), plain)
    capture(model, {"x": torch.ones(4, 4)}, optimizers(model), told, batch=4, sequence=16)
    without, given = read_trace(plain), read_trace(told)
    assert "batch" not in without.header["run"] and "seq" not in without.header["run"]
    assert (given.header["run"].pop("batch"), given.header["run"].pop("seq")) == (4, 16)
    assert given.header == without.header
    assert given.ops == without.ops

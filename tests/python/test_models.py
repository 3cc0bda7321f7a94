"""The configurations in the tree have the parameters of the published models."""

from __future__ import annotations

import pytest
import torch
from tencache_trace import BadRequest
from tencache_trace.models import build_model, find_model, load_models, make_config
from torch._subclasses.fake_tensor import FakeTensorMode

# Elements of the causal models, tied head counted once, worked out from the shapes.
PARAMETERS = {
    "facebook/opt-125m": 125_239_296,
    "facebook/opt-350m": 331_196_416,
    "facebook/opt-1.3b": 1_315_758_080,
    "facebook/opt-2.7b": 2_651_596_800,
    "facebook/opt-6.7b": 6_658_473_984,
    "facebook/opt-13b": 12_853_473_280,
    "facebook/opt-30b": 29_974_540_288,
    "openai-community/gpt2": 124_439_808,
    "openai-community/gpt2-medium": 354_823_168,
    "openai-community/gpt2-large": 774_030_080,
    "openai-community/gpt2-xl": 1_557_611_200,
}


def build(name: str, head: str) -> torch.nn.Module:
    _, entry = find_model(name)
    config = make_config(entry["family"], entry["config"])
    with FakeTensorMode():
        return build_model(config, head, torch.bfloat16, "none")


def test_every_model_has_a_known_size() -> None:
    assert set(load_models()) == set(PARAMETERS)


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters(name: str) -> None:
    model = build(name, "causal-lm")
    assert sum(p.numel() for p in model.parameters()) == PARAMETERS[name]
    assert model.training


def test_opt_by_formula() -> None:
    """Embeddings, positions, 12 h^2 + 13 h per layer, last norm; h^2 terms for q, k, v, out, fc."""
    for name, hidden, layers in (("opt-125m", 768, 12), ("opt-13b", 5120, 40)):
        per_layer = 12 * hidden**2 + 13 * hidden
        total = (50_272 + 2_050) * hidden + layers * per_layer + 2 * hidden
        assert PARAMETERS[f"facebook/{name}"] == total


@pytest.mark.parametrize(
    ("name", "tensors", "elements"),
    [
        ("facebook/opt-6.7b", 517, 6_658_482_176),
        ("facebook/opt-13b", 645, 12_853_483_520),
    ],
)
def test_classifiers(name: str, tensors: int, elements: int) -> None:
    parameters = list(build(name, "sequence-classification").parameters())
    assert len(parameters) == tensors
    assert sum(p.numel() for p in parameters) == elements


def test_short_names() -> None:
    assert find_model("gpt2")[0] == "openai-community/gpt2"
    assert find_model("opt-13b")[0] == "facebook/opt-13b"


@pytest.mark.parametrize(
    ("name", "hint"), [("facebook/opt-13B", "facebook/opt-13b"), ("gtp2-large", "gpt2-large")]
)
def test_unknown_names_get_a_hint(name: str, hint: str) -> None:
    with pytest.raises(BadRequest, match=f"did you mean '{hint}'"):
        find_model(name)

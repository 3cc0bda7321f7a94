"""The models that the command line knows, built from configurations kept in this package."""

from __future__ import annotations

import difflib
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib import resources
from typing import Any

import torch

from .errors import BadRequest

HEADS = ("causal-lm", "sequence-classification")
CHECKPOINTS = ("none", "layer")


@dataclass(frozen=True)
class Precision:
    """Which dtypes a training run uses.

    ``master`` is the dtype of the copies that the optimizer works on, None if it works on the
    parameters. ``autocast``: parameters stay as they are and operators compute in ``compute``.
    """

    parameters: torch.dtype
    compute: torch.dtype
    master: torch.dtype | None = None
    autocast: bool = False

    @property
    def state(self) -> torch.dtype:
        """Dtype of the optimizer state."""
        return self.master or self.parameters


PRECISIONS = {
    "bf16-master": Precision(torch.bfloat16, torch.bfloat16, master=torch.float32),
    "fp16-master": Precision(torch.float16, torch.float16, master=torch.float32),
    "bf16": Precision(torch.bfloat16, torch.bfloat16),
    "fp32": Precision(torch.float32, torch.float32),
    "amp-bf16": Precision(torch.float32, torch.bfloat16, autocast=True),
}


def load_models() -> dict[str, dict[str, Any]]:
    """Return all known models: name -> {family, config}."""
    text = resources.files(__package__).joinpath("models.json").read_text(encoding="utf-8")
    return json.loads(text)


def find_model(name: str) -> tuple[str, dict[str, Any]]:
    """Return a known model's full name and entry; the part after the slash is enough.

    Raises BadRequest with the nearest name if there is none.
    """
    models = load_models()
    for full, entry in models.items():
        if name in (full, full.split("/")[1]):
            return full, entry
    candidates = [*models, *(full.split("/")[1] for full in models)]
    near = difflib.get_close_matches(name, candidates, n=1, cutoff=0.4)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    raise BadRequest(f"unknown model '{name}'{hint}; known: {', '.join(models)}")


def make_config(family: str, values: dict[str, Any]) -> Any:
    """Return a transformers configuration of ``family`` without touching the network."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers import AutoConfig

    return AutoConfig.for_model(family, **values)


def build_model(config: Any, head: str, dtype: torch.dtype, checkpoint: str) -> torch.nn.Module:
    """Build a model in training mode. Under a fake tensor mode it takes no memory.

    ``checkpoint`` "layer" recomputes each repeated block in the backward pass.
    """
    if head not in HEADS:
        raise BadRequest(f"unknown head '{head}'; known: {', '.join(HEADS)}")
    if checkpoint not in CHECKPOINTS:
        raise BadRequest(f"unknown checkpoint '{checkpoint}'; known: {', '.join(CHECKPOINTS)}")
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
    from transformers.initialization import no_init_weights

    if head == "sequence-classification" and config.pad_token_id is None:
        # A classifier looks for the last token before the padding and wants to know its id.
        config.pad_token_id = config.eos_token_id
    auto = AutoModelForCausalLM if head == "causal-lm" else AutoModelForSequenceClassification
    # Some initialisations look at values, which fake tensors do not have.
    with torch.device("cpu"), no_init_weights(), _quiet():
        model = auto.from_config(config, dtype=dtype, attn_implementation="sdpa")
    # Skipping the initialisation skips the tying of weights as well.
    model.tie_weights()
    model.train()
    if checkpoint == "layer":
        with _quiet():
            model.activation_checkpointing_enable({"use_reentrant": False})
    return model


def make_inputs(head: str, batch: int, sequence: int) -> dict[str, Any]:
    """Return a batch of token ids [batch, sequence] and labels, without padding.

    No attention mask: a mask of ones would make transformers materialise it.
    """
    labels = (batch, sequence) if head == "causal-lm" else (batch,)
    return {
        "input_ids": torch.zeros(batch, sequence, dtype=torch.long),
        "labels": torch.zeros(labels, dtype=torch.long),
        "use_cache": False,
    }


def describe_config(name: str, family: str, config: Any) -> dict[str, Any]:
    """Return the header's ``model`` entry, except for counts that need the model itself."""
    dropouts = ("dropout", "attention_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop")
    return {
        "name": name,
        "arch": family,
        "hidden": config.hidden_size,
        "heads": config.num_attention_heads,
        "vocab": config.vocab_size,
        **{key: getattr(config, key) for key in dropouts if hasattr(config, key)},
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers' advice about generation and renamed methods off the terminal."""
    with warnings.catch_warnings(), open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        warnings.simplefilter("ignore", FutureWarning)
        yield

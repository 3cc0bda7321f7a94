"""Small models for captures that run in a second, on fake or on real tensors."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from tencache_trace.api import Settings, make_step, record_step
from tencache_trace.header import Options
from tencache_trace.models import make_config
from tencache_trace.step import TrainingStep
from tencache_trace.trace import Trace
from torch._subclasses.fake_tensor import FakeTensorMode

BATCH, SEQUENCE, VOCABULARY = 2, 32, 512
LAYERS = {"gpt2": 4, "opt": 2}
HIDDEN = {"gpt2": 256, "opt": 64}
HEADS = 4
SETTINGS = Settings(batch=BATCH, sequence=SEQUENCE, precision="fp32", implementation="for-loop")


def config_of(family: str, dropout: float) -> Any:
    """Return a configuration: GPT-2 of 4 layers and hidden 256, OPT of 2 layers and hidden 64."""
    if family == "gpt2":
        values = {
            "vocab_size": VOCABULARY,
            "n_positions": 64,
            "n_embd": HIDDEN[family],
            "n_layer": LAYERS[family],
            "n_head": HEADS,
            "resid_pdrop": dropout,
            "embd_pdrop": dropout,
            "attn_pdrop": dropout,
            "bos_token_id": 1,
            "eos_token_id": 1,
        }
    else:
        values = {
            "vocab_size": VOCABULARY,
            "hidden_size": HIDDEN[family],
            "num_hidden_layers": LAYERS[family],
            "ffn_dim": 256,
            "num_attention_heads": HEADS,
            "max_position_embeddings": 64,
            "word_embed_proj_dim": HIDDEN[family],
            "dropout": dropout,
        }
    return make_config(family, values)


def real_step(family: str, dropout: float, settings: Settings) -> TrainingStep:
    """Return a step on real tensors with random weights."""
    torch.manual_seed(0)
    step = make_step(config_of(family, dropout), settings)
    with torch.no_grad():
        for parameter in step.model.parameters():
            parameter.normal_(0, 0.02)
    return step


def record(
    family: str,
    dropout: float = 0.0,
    *,
    fake: bool = True,
    method: str = "dispatch",
    granularity: str = "param",
    kernels: bool = True,
    **changes: Any,
) -> Trace:
    """Record a small model's step. ``changes`` are fields of ``Settings``; plain FP32 without."""
    settings = replace(SETTINGS, **changes)
    options = Options(method=method, granularity=granularity, kernels=kernels)
    with FakeTensorMode(allow_non_fake_inputs=True) if fake else nullcontext():
        if fake:
            step = make_step(config_of(family, dropout), settings)
        else:
            step = real_step(family, dropout, settings)
        return record_step(step, options)


@cache
def recorded(family: str, dropout: float = 0.0, **changes: Any) -> Trace:
    """Return ``record``'s result, the same one for the same arguments; do not change it."""
    return record(family, dropout, **changes)

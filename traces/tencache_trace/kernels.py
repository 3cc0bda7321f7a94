"""Makes a capture on fake CPU tensors record the kernels that a CUDA build would run.

Left alone, PyTorch would record its CPU choices: dropout as three operators with a noise tensor in
the compute dtype, and attention over a stored score matrix as soon as attention dropout is on.
Functions are replaced as module attributes, because a torch function mode is switched off while
``backward`` runs, and a recomputed forward would then see the CPU kernels.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional

_HALF = (torch.float16, torch.bfloat16)
# Bound of the flash kernel on the width of an attention head, in elements.
_FLASH_MAX_WIDTH = 256


@contextmanager
def gpu_kernels(enabled: bool = True) -> Iterator[list[str]]:
    """Replace dropout and attention while the block runs; yields the patches for the header."""
    if not enabled:
        yield []
        return
    saved = functional.scaled_dot_product_attention, functional.dropout
    functional.scaled_dot_product_attention = _attention
    functional.dropout = _dropout
    try:
        yield ["gpu-kernels:attention", "gpu-kernels:dropout"]
    finally:
        functional.scaled_dot_product_attention, functional.dropout = saved


@contextmanager
def unpacked_sequences() -> Iterator[list[str]]:
    """Tell transformers that sequences are not packed, as it finds out itself in a real run.

    Under fake tensors its check cannot look at the position ids and builds a full attention mask.
    Does nothing where transformers is not in use.
    """
    masking = sys.modules.get("transformers.masking_utils")
    if masking is None or not hasattr(masking, "find_packed_sequence_indices"):
        yield []
        return
    saved = masking.find_packed_sequence_indices
    masking.find_packed_sequence_indices = lambda *_args, **_kwargs: None
    try:
        yield ["transformers:unpacked-sequences"]
    finally:
        masking.find_packed_sequence_indices = saved


def _dropout(
    input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> torch.Tensor:
    if p == 0 or not training:
        return input
    return torch.native_dropout(input, p, True)[0]


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Attention over query [batch, heads, length, width]: flash where CUDA has it, else efficient.

    Flash takes half precision without a mask; everything else goes to memory-efficient attention.
    """
    device = query.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    width = query.shape[-1]
    flash = (
        attn_mask is None
        and query.dtype in _HALF
        and width == value.shape[-1]
        and width <= _FLASH_MAX_WIDTH
    )
    if flash:
        return _flash(query, key, value, dropout_p, is_causal, scale)
    if enable_gqa:
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    bias = _additive_mask(attn_mask, query, key)
    needs_logsumexp = any(tensor.requires_grad for tensor in (query, key, value))
    return torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, bias, needs_logsumexp, dropout_p, is_causal, scale=scale
    )[0]


def _flash(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> torch.Tensor:
    """Flash attention; the kernel wants head widths that are multiples of 8, so others are padded.

    The scale is that of the unpadded width.
    """
    width = query.shape[-1]
    padding = -width % 8
    if padding:
        query, key, value = (functional.pad(t, (0, padding)) for t in (query, key, value))
    factor = 1 / math.sqrt(width) if scale is None else scale
    out = torch.ops.aten._scaled_dot_product_flash_attention(
        query, key, value, dropout_p, is_causal, False, scale=factor
    )[0]
    return out[..., :width] if padding else out


def _additive_mask(mask: torch.Tensor | None, query: torch.Tensor, key: torch.Tensor) -> Any:
    """Return the mask as a term to add to the scores, [batch, heads, length, length], or None."""
    if mask is None:
        return None
    if mask.dtype == torch.bool:
        keep = torch.zeros((), dtype=query.dtype, device=query.device)
        drop = torch.full((), -math.inf, dtype=query.dtype, device=query.device)
        mask = torch.where(mask, keep, drop)
    return mask.to(query.dtype).expand(*query.shape[:-1], key.shape[-2])

"""Floating-point operations of one operator call, two per multiply-add.

PyTorch's own formulas are used where they exist. Attention counts a causal mask in full.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count


def _cpu_attention(query: Any, key: Any, value: Any, *_args: Any, **_kwargs: Any) -> int:
    return sdpa_flop_count(query.shape, key.shape, value.shape)


def _cpu_attention_backward(
    grad: Any, query: Any, key: Any, value: Any, *_args: Any, **_kwargs: Any
) -> int:
    return sdpa_backward_flop_count(grad.shape, query.shape, key.shape, value.shape)


# Operators that PyTorch 2.13 has no formula for. A private table: registering them globally would
# change what other users of the registry in the same process count.
_aten = torch.ops.aten
_MISSING = {
    _aten._scaled_dot_product_flash_attention_for_cpu: _cpu_attention,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _cpu_attention_backward,
}


def flops_of(func: Any, args: tuple, kwargs: dict, out: Any) -> int:
    """Return the FLOPs of ``func(*args, **kwargs) -> out``, 0 where no formula applies."""
    packet = func._overloadpacket
    formula = flop_registry.get(packet) or _MISSING.get(packet)
    if formula is None:
        return 0
    return int(formula(*args, **kwargs, out_val=out))

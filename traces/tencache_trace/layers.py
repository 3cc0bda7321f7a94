"""Finds the repeated blocks of a model and numbers them."""

from __future__ import annotations

import torch


def layer_of_modules(model: torch.nn.Module) -> dict[str, int]:
    """Map the path of every module inside a repeated block to the block's index.

    Repeated blocks are the members of the outermost lists of at least two modules of one class.
    """
    lists = [
        path
        for path, module in model.named_modules()
        if isinstance(module, torch.nn.ModuleList)
        and len(module) >= 2
        and len({type(member) for member in module}) == 1
    ]
    outermost = [path for path in lists if not any(path.startswith(f"{other}.") for other in lists)]
    layers: dict[str, int] = {}
    for path, _ in model.named_modules():
        for prefix in outermost:
            if path.startswith(f"{prefix}."):
                layers[path] = int(path[len(prefix) + 1 :].split(".")[0])
    return layers


def count_layers(layers: dict[str, int]) -> int:
    """Return the number of repeated blocks, 0 if there are none."""
    return max(layers.values(), default=-1) + 1

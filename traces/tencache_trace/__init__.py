"""Records one training step of a PyTorch model as a tencache trace.

The package captures on shapes alone: no weights, no GPU, no network. ``capture`` takes a model, an
optimizer and a batch; ``python -m tencache_trace capture`` does it for the models it knows.
"""

from __future__ import annotations

from typing import Any

from .errors import BadRequest, CaptureMismatch, InvalidTrace, TraceError, UntraceableModel
from .version import VERSION as __version__

__all__ = [
    "BadRequest",
    "CaptureMismatch",
    "InvalidTrace",
    "TraceError",
    "UntraceableModel",
    "__version__",
    "capture",
]


def capture(*args: Any, **kwargs: Any) -> Any:
    """Record one training step of your own model; see ``tencache_trace.api.capture``.

    Imported on first use, so that reading and validating traces works without PyTorch.
    """
    from .api import capture as capture_step

    return capture_step(*args, **kwargs)

"""The header of a trace: where it comes from, what was run, what the tables hold."""

from __future__ import annotations

import datetime
import os
import sys
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch

from .errors import BadRequest
from .layers import count_layers, layer_of_modules
from .lifetimes import TraceOperator
from .records import RecordBuilder
from .step import TrainingStep
from .trace import SECTIONS, Record, Trace
from .version import (
    TESTED_TORCH,
    TESTED_TRANSFORMERS,
    TRACE_FORMAT,
    TRACE_VERSION,
    VERSION,
)

METHODS = ("fx", "dispatch")
GRANULARITIES = ("param", "op")


@dataclass
class Options:
    """How to record and what to say about it in the header.

    ``granularity`` "param" joins the optimizer's operators per parameter, "op" keeps them.
    ``model`` and ``run`` are header entries that only the caller knows.
    """

    method: str = "fx"
    granularity: str = "param"
    kernels: bool = True
    command: str | None = None
    model: dict[str, Any] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Raise BadRequest for a value that does not exist."""
        for what, value, known in (
            ("capture method", self.method, METHODS),
            ("optimizer granularity", self.granularity, GRANULARITIES),
        ):
            if value not in known:
                raise BadRequest(f"unknown {what} '{value}'; known: {', '.join(known)}")


def build_header(
    step: TrainingStep,
    options: Options,
    builder: RecordBuilder,
    trace: Trace,
    operators: list[TraceOperator],
    patches: list[str],
) -> Record:
    """Return the header for the tables of ``trace``; ``patches`` were active while recording.

    The layout is put right when the file is written.
    """
    header: Record = {
        "format": TRACE_FORMAT,
        "version": TRACE_VERSION,
        "layout": "lines",
        "generator": _generator(options, patches),
    }
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch:
        created = datetime.datetime.fromtimestamp(int(epoch), tz=datetime.timezone.utc)
        header["created"] = created.isoformat()
    header["provenance"] = {"method": options.method, "order": "eager"}
    header["model"] = {
        **options.model,
        "class": type(step.model).__name__,
        "params": sum(parameter.numel() for parameter in step.model.parameters()),
        "layers": count_layers(layer_of_modules(step.model)),
    }
    header["run"] = _run(step, options, operators)
    header["timing"] = {"source": "none"}
    header["workspace_slack"] = 0
    header["buckets"] = builder.buckets(bucket.parameters for bucket in step.buckets)
    header["events_sha256"] = builder.events_sha256()
    header["counts"] = {name: len(trace.section(name)) for name in SECTIONS}
    header["requires"] = []
    return header


def _generator(options: Options, patches: list[str]) -> dict[str, Any]:
    generator: dict[str, Any] = {"name": "tencache_trace", "version": VERSION}
    generator["torch"] = torch.__version__.split("+")[0]
    transformers = _transformers_version()
    if transformers is not None:
        generator["transformers"] = transformers
    if options.command is not None:
        generator["command"] = options.command
    generator["patches"] = patches
    return generator


def _run(step: TrainingStep, options: Options, operators: list[TraceOperator]) -> dict[str, Any]:
    """Return the header's ``run``: what the caller said, and what the step itself shows."""
    first = step.buckets[0]
    parameter = first.parameters[0]
    compute = step.autocast or parameter.dtype
    masters = [bucket.masters[0].dtype for bucket in step.buckets if bucket.masters]
    dtypes = {"param": parameter.dtype, "grad": parameter.dtype, "compute": compute}
    if masters:
        dtypes["master"] = masters[0]
    dtypes["state"] = masters[0] if masters else parameter.dtype
    run = dict(options.run)
    run.setdefault("micro_batches", 1)
    run["dtype"] = {key: str(dtype).removeprefix("torch.") for key, dtype in dtypes.items()}
    run["loss_scaling"] = False
    run["optimizer"] = {
        "name": type(first.optimizer).__name__.lower(),
        "impl": first.implementation,
        "granularity": options.granularity,
    }
    recomputes = any(operator.recomputes for operator in operators)
    run.setdefault("checkpoint", {"mode": "custom" if recomputes else "none"})
    run["attention"] = _attention_kernels(operators)
    if step.clip_norm is not None:
        run["clip"] = {"kind": "global-norm", "max_norm": step.clip_norm}
    return run


def _attention_kernels(operators: list[TraceOperator]) -> list[str]:
    """Return which fused attention kernels the forward pass ran; none if it ran plain products."""
    kernels = {"flash": "flash_attention", "efficient": "efficient_attention"}
    names = {op.name for op in operators if op.category == "attn" and op.phase == "f"}
    return [key for key, part in kernels.items() if any(part in name for name in names)]


def _transformers_version() -> str | None:
    module = sys.modules.get("transformers")
    return getattr(module, "__version__", None)


def warn_about_versions() -> None:
    """Warn where captures were not checked with the versions in use."""
    found = {"torch": torch.__version__.split("+")[0], "transformers": _transformers_version()}
    tested = {"torch": TESTED_TORCH, "transformers": TESTED_TRANSFORMERS}
    for name, version in found.items():
        if version is not None and version != tested[name]:
            warnings.warn(
                f"{name} {version} is in use, captures were checked with {tested[name]}; "
                "compare --capture fx and --capture dispatch before trusting the trace",
                stacklevel=3,
            )

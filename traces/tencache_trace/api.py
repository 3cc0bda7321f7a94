"""Recording one training step: of your own model, or of a model the package knows."""

from __future__ import annotations

import copy
import os
import resource
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode

from .coalesce import coalesce_optimizer
from .errors import BadRequest
from .graph import record_graph
from .header import Options, build_header, warn_about_versions
from .join import join
from .kernels import gpu_kernels, unpacked_sequences
from .lifetimes import assign_frees, assign_kinds, filter_unpacks, operators_of
from .models import (
    PRECISIONS,
    build_model,
    describe_config,
    find_model,
    make_config,
    make_inputs,
)
from .optimizers import Bucket, adamw_buckets, as_buckets
from .recorder import Recorder
from .records import RecordBuilder
from .step import LossFunction, TrainingStep, loss_of_output
from .trace import Trace
from .writer import layout_for, write_trace


@dataclass
class Summary:
    """What a capture produced: counts, seconds, the largest memory of the process in bytes."""

    path: Path
    file_bytes: int
    counts: dict[str, int]
    seconds: float
    peak_memory: int


@dataclass(frozen=True)
class Settings:
    """How a known model is trained.

    ``batch`` counts sequences and ``sequence`` tokens in each. ``implementation`` is that of AdamW.
    ``clip_norm`` is the global gradient norm to clip to, None for no clipping.
    """

    head: str = "causal-lm"
    batch: int = 4
    sequence: int = 2048
    precision: str = "bf16-master"
    implementation: str = "fused"
    checkpoint: str = "none"
    clip_norm: float | None = None

    def header_entry(self) -> dict[str, Any]:
        """Return what the header's ``run`` says about these settings."""
        return {
            "head": self.head,
            "batch": self.batch,
            "seq": self.sequence,
            "precision": self.precision,
            "checkpoint": {"mode": self.checkpoint},
        }


def capture(
    model: torch.nn.Module,
    inputs: tuple | dict[str, Any],
    optimizer: torch.optim.Optimizer | Bucket | Sequence[torch.optim.Optimizer | Bucket],
    path: str | os.PathLike[str],
    *,
    loss: LossFunction = loss_of_output,
    method: str = "fx",
    layout: str | None = None,
    granularity: str = "param",
    clip_norm: float | None = None,
    autocast: torch.dtype | None = None,
    name: str | None = None,
    batch: int | None = None,
    sequence: int | None = None,
) -> Summary:
    """Record one training step of your own model into ``path``.

    The model, the optimizer and the inputs are copied as shapes, left unchanged and never run.
    ``inputs`` is a tuple of positional or a dictionary of keyword arguments of ``model``. ``loss``
    takes what the model returns and gives a scalar; by default its ``loss``, or the sum of a
    tensor. Pass one optimizer per parameter or per layer to allow offloading between updates. The
    layout follows the file name (``.json`` document, else lines); ``.gz`` at the end compresses.
    ``batch`` sequences of ``sequence`` tokens each are written down, so that reports can say tokens
    per second; nothing else depends on them.

    Raises UntraceableModel with the operator, the reason and what to try; CaptureMismatch if the
    two ways of recording disagree; BadRequest for arguments that do not fit.
    """
    options = Options(method=method, granularity=granularity)
    options.model = {"name": name or type(model).__name__}
    sizes = {"batch": batch, "seq": sequence}
    options.run = {key: size for key, size in sizes.items() if size is not None}
    started = time.monotonic()
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    with FakeCopyMode(fake_mode):
        # One copy of all three: the copied optimizer must hold the copied parameters.
        copied = copy.deepcopy((model, inputs, as_buckets(optimizer)))
    with fake_mode:
        step = TrainingStep(*copied, loss=loss, clip_norm=clip_norm, autocast=autocast)
        trace = record_step(step, options)
    return _write(trace, Path(path), layout, started)


def capture_known(
    name: str,
    path: str | os.PathLike[str],
    settings: Settings,
    options: Options,
    layout: str | None,
) -> Summary:
    """Record one training step with AdamW of a model in ``models.json`` into ``path``.

    Fills in what ``options`` says about model and run. ``layout`` None follows the file name.
    """
    started = time.monotonic()
    full_name, entry = find_model(name)
    config = make_config(entry["family"], entry["config"])
    if settings.sequence > config.max_position_embeddings:
        raise BadRequest(
            f"{full_name} has {config.max_position_embeddings} positions, "
            f"a sequence of {settings.sequence} does not fit"
        )
    options.model = describe_config(full_name, entry["family"], config)
    options.run = settings.header_entry()
    with FakeTensorMode(allow_non_fake_inputs=True):
        trace = record_step(make_step(config, settings), options)
    return _write(trace, Path(path), layout, started)


def make_step(config: Any, settings: Settings) -> TrainingStep:
    """Build a model of ``config`` and its training step; under a fake mode, of shapes only."""
    if settings.precision not in PRECISIONS:
        raise BadRequest(
            f"unknown precision '{settings.precision}'; known: {', '.join(PRECISIONS)}"
        )
    precision = PRECISIONS[settings.precision]
    model = build_model(config, settings.head, precision.parameters, settings.checkpoint)
    return TrainingStep(
        model,
        make_inputs(settings.head, settings.batch, settings.sequence),
        adamw_buckets(model, settings.implementation, precision.master),
        clip_norm=settings.clip_norm,
        autocast=precision.compute if precision.autocast else None,
    )


def record_step(step: TrainingStep, options: Options) -> Trace:
    """Record a step on the tensors it has, fake or real, and return its trace.

    The optimizer's state is created first, and gradients are dropped.
    """
    options.check()
    warn_about_versions()
    for bucket in step.buckets:
        bucket.zero_grad()
        bucket.create_state()
    with ExitStack() as patches:
        applied = patches.enter_context(gpu_kernels(options.kernels))
        applied = applied + patches.enter_context(unpacked_sequences())
        recorder = Recorder(step)
        recording = recorder.record()
        if options.method == "fx":
            recording = join(recording, record_graph(step))
    operators = operators_of(recording)
    if options.granularity == "param":
        names = [f"optim.{type(b.optimizer).__name__.lower()}" for b in step.buckets]
        operators = coalesce_optimizer(operators, recording, names)
    assign_kinds(operators, recording)
    unpacks = filter_unpacks(operators, recording)
    assign_frees(operators, recording, unpacks)
    builder = RecordBuilder(recorder.observer, recording, operators, unpacks)
    trace = Trace(
        {},
        builder.tensors(),
        builder.modules(),
        builder.events(),
        builder.unpacks(),
        builder.ops(),
    )
    trace.header = build_header(step, options, builder, trace, operators, applied)
    return trace


def _write(trace: Trace, path: Path, layout: str | None, started: float) -> Summary:
    layout = layout or layout_for(path)
    trace.header["layout"] = layout
    size = write_trace(trace, path, layout)
    # ru_maxrss is in KiB on Linux.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Summary(path, size, trace.header["counts"], time.monotonic() - started, peak)

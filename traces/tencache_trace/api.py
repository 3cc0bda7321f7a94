"""Recording one training step: of your own model, or of a model the package knows."""

from __future__ import annotations

import copy
import datetime
import os
import resource
import time
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode

from .coalesce import coalesce_optimizer
from .errors import BadRequest
from .graph import record_graph
from .join import join
from .kernels import gpu_kernels, unpacked_sequences
from .layers import count_layers, layer_of_modules
from .lifetimes import (
    TraceOperator,
    assign_frees,
    assign_kinds,
    filter_unpacks,
    operators_of,
)
from .models import (
    PRECISIONS,
    build_model,
    describe_config,
    find_model,
    make_config,
    make_inputs,
)
from .observer import StepObserver
from .optimizers import Bucket, adamw_buckets, as_buckets
from .recorder import Recorder
from .records import RecordBuilder, Trace
from .step import LossFunction, TrainingStep, loss_of_output
from .version import (
    TESTED_TORCH,
    TESTED_TRANSFORMERS,
    TRACE_FORMAT,
    TRACE_VERSION,
    VERSION,
)
from .writer import layout_for, write_trace

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
        for value, known in ((self.method, METHODS), (self.granularity, GRANULARITIES)):
            if value not in known:
                raise BadRequest(f"unknown value '{value}'; known: {', '.join(known)}")


@dataclass
class Summary:
    """What a capture produced: counts, seconds, the largest memory of the process in bytes."""

    path: Path
    file_bytes: int
    counts: dict[str, int]
    seconds: float
    peak_memory: int


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
) -> Summary:
    """Record one training step of your own model into ``path``.

    The model, the optimizer and the inputs are copied as shapes, left unchanged and never run.
    ``inputs`` is a tuple of positional or a dictionary of keyword arguments of ``model``. ``loss``
    takes what the model returns and gives a scalar; by default its ``loss``, or the sum of a
    tensor. Pass one optimizer per parameter or per layer to allow offloading between updates. The
    layout follows the file name (``.json`` document, else lines); ``.gz`` is added compression.

    Raises UntraceableModel with the operator, the reason and what to try; CaptureMismatch if the
    two ways of recording disagree; BadRequest for arguments that do not fit.
    """
    options = Options(method=method, granularity=granularity)
    options.model = {"name": name or type(model).__name__}
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
    *,
    head: str = "causal-lm",
    batch: int = 4,
    sequence: int = 2048,
    precision: str = "bf16-master",
    implementation: str = "fused",
    granularity: str = "param",
    checkpoint: str = "none",
    clip_norm: float | None = None,
    method: str = "fx",
    layout: str | None = None,
    command: str | None = None,
) -> Summary:
    """Record one training step with AdamW of a model in ``models.json`` into ``path``.

    ``batch`` and ``sequence`` are counts of sequences and of tokens in each.
    """
    started = time.monotonic()
    full_name, entry = find_model(name)
    config = make_config(entry["family"], entry["config"])
    if sequence > config.max_position_embeddings:
        raise BadRequest(
            f"{full_name} has {config.max_position_embeddings} positions, "
            f"a sequence of {sequence} does not fit"
        )
    options = Options(method=method, granularity=granularity, command=command)
    options.model = describe_config(full_name, entry["family"], config)
    options.run = {
        "head": head,
        "batch": batch,
        "seq": sequence,
        "precision": precision,
        "optimizer": {"name": "adamw", "impl": implementation},
        "checkpoint": {"mode": checkpoint},
    }
    with FakeTensorMode(allow_non_fake_inputs=True):
        step = make_step(
            config, head, batch, sequence, precision, implementation, checkpoint, clip_norm
        )
        trace = record_step(step, options)
    return _write(trace, Path(path), layout, started)


def make_step(
    config: Any,
    head: str,
    batch: int,
    sequence: int,
    precision: str,
    implementation: str,
    checkpoint: str,
    clip_norm: float | None = None,
) -> TrainingStep:
    """Build a model of ``config`` and its AdamW training step; under a fake mode, of shapes only."""
    if precision not in PRECISIONS:
        raise BadRequest(f"unknown precision '{precision}'; known: {', '.join(PRECISIONS)}")
    kind = PRECISIONS[precision]
    model = build_model(config, head, kind.parameters, checkpoint)
    return TrainingStep(
        model,
        make_inputs(head, batch, sequence),
        adamw_buckets(model, implementation, kind.master),
        clip_norm=clip_norm,
        autocast=kind.compute if kind.autocast else None,
    )


def record_step(step: TrainingStep, options: Options) -> Trace:
    """Record a step on the tensors it has, fake or real, and return its trace.

    The optimizer's state is created first; gradients are dropped.
    """
    options.check()
    _warn_about_versions()
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
    trace.header = _header(step, options, builder, trace, operators, recorder.observer, applied)
    return trace


def _header(
    step: TrainingStep,
    options: Options,
    builder: RecordBuilder,
    trace: Trace,
    operators: list[TraceOperator],
    observer: StepObserver,
    patches: list[str],
) -> dict[str, Any]:
    header: dict[str, Any] = {
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
        "params": sum(parameter.numel() for _, parameter in observer.parameters),
        "layers": count_layers(layer_of_modules(step.model)),
    }
    header["run"] = _run(step, options, operators)
    header["timing"] = {"source": "none"}
    header["workspace_slack"] = 0
    header["buckets"] = builder.buckets(bucket.parameters for bucket in step.buckets)
    header["events_sha256"] = builder.events_sha256()
    header["counts"] = {
        "tensors": len(trace.tensors),
        "modules": len(trace.modules),
        "events": len(trace.events),
        "unpacks": len(trace.unpacks),
        "ops": len(trace.ops),
    }
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
    optimizer = dict(run.get("optimizer", {"name": type(first.optimizer).__name__.lower()}))
    run["optimizer"] = {**optimizer, "granularity": options.granularity}
    recomputes = any(operator.recomputes for operator in operators)
    run.setdefault("checkpoint", {"mode": "custom" if recomputes else "none"})
    run["attention"] = _attention_kernels(operators)
    if step.clip_norm is not None:
        run["clip"] = {"kind": "global-norm", "max_norm": step.clip_norm}
    return run


def _attention_kernels(operators: list[TraceOperator]) -> list[str]:
    """Return which attention kernels the forward pass ran; none means plain matrix products."""
    kernels = {"flash": "flash_attention", "efficient": "efficient_attention"}
    names = {op.name for op in operators if op.category == "attn" and op.phase == "f"}
    found = [key for key, part in kernels.items() if any(part in name for name in names)]
    return found or ["math"]


def _write(trace: Trace, path: Path, layout: str | None, started: float) -> Summary:
    layout = layout or layout_for(path)
    trace.header["layout"] = layout
    size = write_trace(trace, path, layout)
    # ru_maxrss is in KiB on Linux.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Summary(path, size, trace.header["counts"], time.monotonic() - started, peak)


def _transformers_version() -> str | None:
    import sys

    module = sys.modules.get("transformers")
    return getattr(module, "__version__", None)


def _warn_about_versions() -> None:
    found = {"torch": torch.__version__.split("+")[0], "transformers": _transformers_version()}
    tested = {"torch": TESTED_TORCH, "transformers": TESTED_TRANSFORMERS}
    for name, version in found.items():
        if version is not None and version != tested[name]:
            warnings.warn(
                f"{name} {version} is in use, captures were checked with {tested[name]}; "
                "compare --capture fx and --capture dispatch before trusting the trace",
                stacklevel=3,
            )

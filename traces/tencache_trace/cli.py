"""Command line: ``python -m tencache_trace capture ...``."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path

from .errors import BadRequest, InvalidTrace, TraceError
from .version import VERSION

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2

_EXAMPLES = """examples:
  # the causal OPT-13B of the shipped traces, recomputing each layer
  python -m tencache_trace capture --model facebook/opt-13b --batch 4 --seq 2048 \\
      --checkpoint layer -o opt13b.json

  # fine-tuning for classification in half precision, as in the 10Cache paper
  python -m tencache_trace capture --model facebook/opt-6.7b --head sequence-classification \\
      --batch 16 --seq 64 --precision fp16-master -o opt6.7b-paper.jsonl.gz

  # check a file against every rule of the format
  python -m tencache_trace validate opt13b.json

Your own model: see tencache_trace.capture in Python. Exit codes: 0 done, 1 failed, 2 bad input.
"""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all verbs."""
    parser = argparse.ArgumentParser(
        prog="tencache_trace",
        description="Records one training step of a PyTorch model as a tencache trace, on shapes "
        "alone: no weights, no GPU, no network.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tencache_trace {VERSION}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    _add_capture(verbs)
    validate = verbs.add_parser("validate", help="check trace files against the format's rules")
    validate.add_argument("files", nargs="+", type=Path, metavar="FILE")
    return parser


def _add_capture(verbs: argparse._SubParsersAction) -> None:
    capture = verbs.add_parser(
        "capture",
        help="record one training step of a known model",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = capture.add_argument
    add("--model", required=True, metavar="NAME", help="such as facebook/opt-13b or gpt2")
    add("--head", default="causal-lm", choices=("causal-lm", "sequence-classification"))
    add("--batch", type=_positive, default=4, metavar="N", help="sequences (default 4)")
    add("--seq", type=_positive, default=2048, metavar="N", help="tokens each (default 2048)")
    add(
        "--precision",
        default="bf16-master",
        choices=("bf16-master", "fp16-master", "bf16", "fp32", "amp-bf16"),
        help="dtype of parameters; -master adds an FP32 copy for the optimizer, amp-bf16 is "
        "autocast over FP32 parameters (default bf16-master)",
    )
    add("--optimizer", default="adamw", choices=("adamw",))
    add("--optimizer-impl", default="fused", choices=("fused", "foreach", "for-loop"))
    add(
        "--optimizer-granularity",
        default="param",
        choices=("param", "op"),
        help="one operator per parameter, or the operators of the implementation (default param)",
    )
    add(
        "--checkpoint",
        default="none",
        choices=("layer", "none"),
        help="recompute each layer in the backward pass, or keep all activations (default none)",
    )
    add("--clip-norm", type=float, metavar="X", help="clip the global gradient norm to X")
    add(
        "--capture",
        default="fx",
        choices=("fx", "dispatch"),
        help="fx traces a graph and checks it against a dispatch recording (default); dispatch "
        "records only, is faster, and writes the same file",
    )
    add(
        "--layout",
        choices=("document", "lines"),
        help="one JSON object, or a JSON record a line (default: document for .json, else lines)",
    )
    add(
        "-o", "--output", required=True, type=Path, metavar="FILE", help="gzipped if it ends in .gz"
    )


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    options = build_parser().parse_args(arguments)
    try:
        if options.verb == "validate":
            return _validate(options)
        return _capture(options, arguments)
    except (BadRequest, InvalidTrace) as error:
        print(f"tencache_trace: {error}", file=sys.stderr)
        return EXIT_USAGE
    except TraceError as error:
        print(f"tencache_trace: {error}", file=sys.stderr)
        return EXIT_FAILED


def _capture(options: argparse.Namespace, arguments: list[str]) -> int:
    # Nothing of a capture may touch the network, and nothing in it computes.
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        from .api import Options, Settings, capture_known
    except ImportError as error:
        raise TraceError(
            f"a capture needs PyTorch and transformers ({error}). Try: pip install "
            "--extra-index-url https://download.pytorch.org/whl/cpu './traces[capture]'"
        ) from error
    settings = Settings(
        head=options.head,
        batch=options.batch,
        sequence=options.seq,
        precision=options.precision,
        implementation=options.optimizer_impl,
        checkpoint=options.checkpoint,
        clip_norm=options.clip_norm,
    )
    recording = Options(
        method=options.capture,
        granularity=options.optimizer_granularity,
        command=shlex.join(["python", "-m", "tencache_trace", *arguments]),
    )
    summary = capture_known(options.model, options.output, settings, recording, options.layout)
    counts = ", ".join(f"{number} {name}" for name, number in summary.counts.items())
    print(
        f"{summary.path}: {counts}; {summary.file_bytes} bytes, {summary.seconds:.1f} s, "
        f"peak memory {summary.peak_memory / 2**20:.0f} MiB",
        file=sys.stderr,
    )
    return EXIT_OK


def _validate(options: argparse.Namespace) -> int:
    from .validate import validate_file

    for path in options.files:
        report = validate_file(path)
        print(f"{path}: {report}")
    return EXIT_OK


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive whole number")
    return value

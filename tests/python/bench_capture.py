"""Measures the capture of traces/opt13b.json as a user would run it.

Usage: bench_capture.py [FOLDER]. Prints seconds, start of Python included, and peak memory of the
process in bytes.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TRACES = Path(__file__).resolve().parents[2] / "traces"
COMMAND = (
    "capture --model facebook/opt-13b --batch 4 --seq 2048 --precision bf16-master "
    "--checkpoint layer -o opt13b.json"
)


def main() -> None:
    """Run the command in a process of its own and print what it took."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = sys.argv[1] if len(sys.argv) > 1 else temporary
        started = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "tencache_trace", *COMMAND.split()],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(TRACES), "OMP_NUM_THREADS": "1"},
            check=True,
            stderr=subprocess.DEVNULL,
        )
        seconds = time.monotonic() - started
    # ru_maxrss is in KiB on Linux.
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    print(f"seconds={seconds:.1f} peak_bytes={peak}")


if __name__ == "__main__":
    main()

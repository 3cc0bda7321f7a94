"""OPT-13B is captured within 1 GB of memory; run with -s to see the seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import HAVE_TORCH, REPOSITORY, WHY_SKIPPED


@pytest.mark.skipif(not HAVE_TORCH, reason=WHY_SKIPPED)
def test_opt13b_capture(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "tests" / "python" / "bench_capture.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    print(done.stdout)
    figures = dict(word.split("=") for word in done.stdout.split())
    assert int(figures["peak_bytes"]) < 10**9
    shipped = (REPOSITORY / "traces" / "opt13b.json").read_bytes()
    assert (tmp_path / "opt13b.json").read_bytes() == shipped

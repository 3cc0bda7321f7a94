"""Makes the exporter importable from the tree, and says why tests are skipped without PyTorch."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "traces"))

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

HAVE_TORCH = find_spec("torch") is not None and find_spec("transformers") is not None
WHY_SKIPPED = (
    "PyTorch and transformers are not installed; captures were not tested. "
    "Install: pip install --extra-index-url https://download.pytorch.org/whl/cpu "
    "'./traces[capture,test]'"
)
# Test files that import PyTorch themselves: without it they cannot even be loaded.
NEEDS_TORCH = (
    "test_attribution.py",
    "test_capture.py",
    "test_events.py",
    "test_flops.py",
    "test_models.py",
    "test_profiler.py",
    "test_real_step.py",
    "test_traps.py",
    "test_user_model.py",
)

collect_ignore = [] if HAVE_TORCH else list(NEEDS_TORCH)

if HAVE_TORCH:
    import torch

    torch.set_num_threads(1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print why, where test files were left out."""
    if not HAVE_TORCH:
        names = ", ".join(NEEDS_TORCH)
        terminalreporter.write_line(f"skipped {names}: {WHY_SKIPPED}")


@pytest.fixture(scope="session")
def traces() -> Path:
    """Folder of the shipped traces."""
    return REPOSITORY / "traces"

"""The command line: help, exit codes, hints. Needs no PyTorch except where it says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import HAVE_TORCH, REPOSITORY, WHY_SKIPPED
from tencache_trace.cli import main
from tencache_trace.reader import read_trace
from tencache_trace.validate import validate_file

needs_torch = pytest.mark.skipif(not HAVE_TORCH, reason=WHY_SKIPPED)


@pytest.mark.parametrize("arguments", [["--help"], ["capture", "--help"]])
def test_help_has_examples(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "examples:" in text
    assert "python -m tencache_trace capture --model facebook/opt-13b" in text


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["record"],
        ["capture"],
        ["capture", "--model", "gpt2", "--batch", "0", "-o", "x"],
        ["capture", "--model", "gpt2", "--precision", "int4", "-o", "x"],
    ],
)
def test_usage_errors(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().err


@needs_torch
def test_unknown_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "--model", "facebook/opt-13", "-o", str(tmp_path / "x.json")]) == 2
    assert "did you mean 'facebook/opt-13b'?" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@needs_torch
def test_sequence_too_long(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.json"
    assert main(["capture", "--model", "gpt2", "--seq", "1025", "-o", str(path)]) == 2
    assert "1024 positions" in capsys.readouterr().err


@needs_torch
def test_whole_command(tmp_path: Path) -> None:
    """As a user runs it, in a process of its own, away from the tree."""
    command = ["--model", "gpt2", "--batch", "1", "--seq", "8", "--capture", "dispatch"]
    done = subprocess.run(
        [sys.executable, "-m", "tencache_trace", "capture", *command, "-o", "out.json"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(REPOSITORY / "traces"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
    assert "peak memory" in done.stderr
    validate_file(tmp_path / "out.json")
    header = read_trace(tmp_path / "out.json").header
    assert header["generator"]["command"] == (
        "python -m tencache_trace capture --model gpt2 --batch 1 --seq 8 --capture dispatch "
        "-o out.json"
    )
    assert header["run"]["batch"] == 1


@pytest.mark.skipif(HAVE_TORCH, reason="PyTorch is installed: its absence cannot be tested")
def test_capture_without_torch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "--model", "gpt2", "-o", str(tmp_path / "x.json")]) == 1
    assert "pip install" in capsys.readouterr().err

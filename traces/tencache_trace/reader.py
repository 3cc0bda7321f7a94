"""Reads a trace file of either layout into records."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

from .errors import InvalidTrace
from .trace import SECTIONS, Record, Trace

_GZIP_MAGIC = b"\x1f\x8b"
# The key that only records of one kind have, in the order of the sections.
_SECTION_OF_KEY = {
    "kind": "tensors",
    "path": "modules",
    "event": "events",
    "u": "unpacks",
    "op": "ops",
}


def read_trace(path: Path) -> Trace:
    """Read a whole trace. Raises InvalidTrace for anything that is not one, with file and line."""
    try:
        data = path.read_bytes()
        if data.startswith(_GZIP_MAGIC):
            data = gzip.decompress(data)
        text = data.decode("utf-8")
    except OSError as error:
        raise InvalidTrace(f"{path}: {error.strerror or error}") from error
    except (EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InvalidTrace(f"{path}: not a JSON or gzip file: {error}") from error
    first, _, _ = text.partition("\n")
    if '"document"' in first:
        return _read_document(path, text)
    return _read_lines(path, text)


def _read_document(path: Path, text: str) -> Trace:
    document = _parse(path, 1, text)
    header = {key: value for key, value in document.items() if key not in SECTIONS}
    sections = {name: document.get(name) for name in SECTIONS}
    for name, records in sections.items():
        if not isinstance(records, list):
            raise InvalidTrace(f"{path}: section '{name}' is missing or no list")
    return Trace(header, **sections)


def _read_lines(path: Path, text: str) -> Trace:
    lines = text.splitlines()
    if not lines:
        raise InvalidTrace(f"{path}: the file is empty")
    sections: dict[str, list[Record]] = {name: [] for name in SECTIONS}
    reached = 0
    end: Record | None = None
    header = _parse(path, 1, lines[0])
    for number, line in enumerate(lines[1:], start=2):
        record = _parse(path, number, line)
        if end is not None:
            raise InvalidTrace(f"{path}:{number}: a record after the end record")
        if "end" in record:
            end = record
            continue
        key = next((key for key in _SECTION_OF_KEY if key in record), None)
        if key is None:
            raise InvalidTrace(f"{path}:{number}: a record of no known kind: {line[:80]}")
        section = SECTIONS.index(_SECTION_OF_KEY[key])
        if section < reached:
            raise InvalidTrace(f"{path}:{number}: a record of '{SECTIONS[section]}' comes too late")
        reached = section
        sections[SECTIONS[section]].append(record)
    if end is None:
        raise InvalidTrace(f"{path}: no end record: the file was cut off")
    for name in ("ops", "tensors"):
        if end.get(name) != len(sections[name]):
            raise InvalidTrace(
                f"{path}: the end record counts {end.get(name)} {name}, "
                f"the file has {len(sections[name])}"
            )
    return Trace(header, **sections)


def _parse(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidTrace(f"{path}:{number}: {error}") from error
    if not isinstance(value, dict):
        raise InvalidTrace(f"{path}:{number}: expected an object, found {type(value).__name__}")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number in a trace")

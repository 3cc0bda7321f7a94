"""Writes a trace to a file, in either layout, gzipped or not, and never half of one."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from .errors import BadRequest
from .trace import SECTIONS, Trace

LAYOUTS = ("document", "lines")


def layout_for(path: Path) -> str:
    """Return the layout that a file name suggests: ``.json`` is a document, others are lines."""
    name = path.name.removesuffix(".gz")
    return "document" if name.endswith(".json") else "lines"


def write_trace(trace: Trace, path: Path, layout: str) -> int:
    """Write ``trace`` to ``path`` and return the bytes written; gzipped if it ends in ``.gz``.

    The file appears under its name only when it is complete. Raises BadRequest if the folder
    cannot be written to.
    """
    text = render(trace, layout).encode()
    if path.name.endswith(".gz"):
        # No time and no name inside: the same trace gives the same bytes.
        text = gzip.compress(text, compresslevel=9, mtime=0)
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise BadRequest(f"cannot write {path}: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(text)
        # mkstemp makes files for the owner only; give what a plain open would have given.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except OSError as error:
        os.unlink(temporary)
        raise BadRequest(f"cannot write {path}: {error.strerror}") from error
    return len(text)


def render(trace: Trace, layout: str) -> str:
    """Return the text of a trace file, one record a line in both layouts."""
    if layout == "lines":
        return _render_lines(trace)
    if layout == "document":
        return _render_document(trace)
    raise BadRequest(f"unknown layout '{layout}'; known: {', '.join(LAYOUTS)}")


def _render_lines(trace: Trace) -> str:
    lines = [_json(trace.header)]
    for name in SECTIONS:
        lines.extend(_json(record) for record in trace.section(name))
    lines.append(_json({"end": True, "ops": len(trace.ops), "tensors": len(trace.tensors)}))
    return "\n".join(lines) + "\n"


def _render_document(trace: Trace) -> str:
    parts = [_json(trace.header)[:-1]]
    for name in SECTIONS:
        records = trace.section(name)
        body = ",\n".join(_json(record) for record in records)
        parts.append(f'"{name}": [\n{body}\n]' if records else f'"{name}": []')
    return ",\n".join(parts) + "\n}\n"


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)

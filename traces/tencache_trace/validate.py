"""Checks a trace against every rule of the format, in ``FORMAT.md``'s words.

Independent of the code that writes traces: it knows the format only.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import InvalidTrace
from .reader import read_trace
from .trace import SECTIONS, Record, Trace
from .validate_ops import OperatorRules
from .version import TRACE_FORMAT

SHOWN_PROBLEMS = 20
LARGEST_TENSOR = 2**50

KINDS = {"param", "grad", "optimizer_state", "activation", "input", "buffer", "temp"}
BIND_OF_KIND = {
    "param": {"param"},
    "grad": {"grad"},
    "optimizer_state": {"state", "master"},
    "activation": {"saved"},
    "temp": {"saved"},
    "buffer": {"buffer"},
    "input": {"input"},
}
EVENT_SUBJECT = {
    "start": None,
    "micro_batch": "mb",
    "forward_pre": "m",
    "forward_post": "m",
    "backward_start": None,
    "backward": "m",
    "gradient": "t",
    "norm": "t",
    "optimizer": "b",
    "end": None,
}
ELEMENT_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "uint64": 8,
}
KNOWN_FEATURES = {"subrange"}


@dataclass
class Report:
    """What a valid trace holds. Peaks are bytes, by last use and as PyTorch frees."""

    counts: dict[str, int]
    peak_last_use: int
    peak_eager: int
    unused: int

    def __str__(self) -> str:
        counts = ", ".join(f"{number} {name}" for name, number in self.counts.items())
        return (
            f"valid; {counts}; peak {self.peak_last_use} bytes by last use, "
            f"{self.peak_eager} as PyTorch frees; {self.unused} tensors unused"
        )


def validate_file(path: Path) -> Report:
    """Read and check a trace. Raises InvalidTrace with the first problems and their number."""
    trace = read_trace(path)
    try:
        problems, report = check_trace(trace)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise InvalidTrace(
            f"{path}: a record lacks a key or has a value of the wrong type: "
            f"{type(error).__name__}: {error}"
        ) from error
    if problems:
        shown = "\n  ".join(problems[:SHOWN_PROBLEMS])
        more = len(problems) - SHOWN_PROBLEMS
        rest = f"\n  and {more} more" if more > 0 else ""
        raise InvalidTrace(f"{path}: {len(problems)} problems\n  {shown}{rest}")
    return report


def check_trace(trace: Trace) -> tuple[list[str], Report]:
    """Return all problems of a trace, and the report that holds if there are none."""
    checker = _Checker(trace)
    checker.check()
    operators = OperatorRules(trace)
    operators.check()
    counts = {name: len(trace.section(name)) for name in SECTIONS}
    report = Report(counts, operators.peak("f"), operators.peak("fe"), operators.unused())
    return checker.problems + operators.problems, report


class _Checker:
    """Rules about the header and the tables; those about operators are in validate_ops."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.problems: list[str] = []

    def check(self) -> None:
        self._header()
        for name, key in (("tensors", "t"), ("modules", "m"), ("events", "e"), ("ops", "op")):
            self._dense(name, key)
        for record in self.trace.tensors:
            self._tensor(record)
        self._modules()
        self._buckets()
        self._events()
        self._event_hash()

    def _require(self, holds: bool, message: str) -> bool:
        if not holds:
            self.problems.append(message)
        return holds

    def _header(self) -> None:
        header = self.trace.header
        self._require(header.get("format") == TRACE_FORMAT, f"format is {header.get('format')!r}")
        version = str(header.get("version"))
        self._require(version.startswith("1."), f"version is {version}, expected 1.x")
        self._require(header.get("layout") in ("lines", "document"), "layout is missing or unknown")
        unknown = set(header.get("requires", [])) - KNOWN_FEATURES
        self._require(not unknown, f"requires unknown features {sorted(unknown)}")
        self._require(header.get("workspace_slack", -1) >= 0, "workspace_slack is missing")
        dtypes = header["run"]["dtype"]
        for key in ("param", "grad", "compute", "state"):
            self._require(dtypes.get(key) in ELEMENT_BYTES, f"run.dtype.{key} is {dtypes.get(key)}")
        for name, count in header["counts"].items():
            found = len(self.trace.section(name))
            self._require(count == found, f"counts.{name} is {count}, the file has {found}")

    def _dense(self, section: str, key: str) -> None:
        for index, record in enumerate(self.trace.section(section)):
            if not self._require(
                record[key] == index, f"{section}: expected id {index}, found {record[key]}"
            ):
                return

    def _tensor(self, record: Record) -> None:
        name = _label(record)
        kind, size = record["kind"], record["bytes"]
        self._require(kind in KINDS, f"{name}: unknown kind '{kind}'")
        self._require(0 < size <= LARGEST_TENSOR, f"{name}: {size} bytes")
        width = ELEMENT_BYTES.get(record["dtype"])
        if self._require(width is not None, f"{name}: unknown dtype '{record['dtype']}'"):
            self._require(size % width == 0, f"{name}: {size} bytes are no whole elements")
        if "shape" in record and width is not None:
            expected = width
            for extent in record["shape"]:
                expected *= extent
            self._require(size == expected, f"{name}: {size} bytes, the shape says {expected}")
        if kind in ("grad", "optimizer_state"):
            self._owner(name, record)
        self._binding(name, record)

    def _owner(self, name: str, record: Record) -> None:
        owner = record.get("of")
        known = isinstance(owner, int) and 0 <= owner < len(self.trace.tensors)
        if self._require(known, f"{name}: 'of' is {owner}, no tensor"):
            kind = self.trace.tensors[owner]["kind"]
            self._require(kind == "param", f"{name}: belongs to tensor {owner}, a {kind}")
        if record["kind"] == "optimizer_state":
            self._require("role" in record, f"{name}: optimizer state without a role")

    def _binding(self, name: str, record: Record) -> None:
        bind = record.get("bind")
        self._require(
            (bind is None) == ("bound_at" not in record), f"{name}: bind and bound_at go together"
        )
        if bind is None or "bound_at" not in record:
            self._require(
                record["kind"] in ("temp", "activation", "grad"), f"{name}: has no binding"
            )
            return
        allowed = BIND_OF_KIND.get(record["kind"], set())
        self._require(
            bind["kind"] in allowed, f"{name}: a {record['kind']} bound as '{bind['kind']}'"
        )
        last = len(self.trace.events) - 1
        bound = record["bound_at"]
        self._require(-1 <= bound <= last, f"{name}: bound_at {bound} is no event")
        if bind["kind"] in ("grad", "saved") and not record.get("persist"):
            self._require(bound >= 0, f"{name}: cannot exist before the step")
        if bind["kind"] == "saved":
            self._require(bind.get("ord", -1) >= 0, f"{name}: a saved tensor without an ordinal")
        if bind["kind"] == "grad" and 0 <= bound <= last:
            event = self.trace.events[bound]
            self._require(
                event["event"] == "gradient" and event.get("t") == record.get("of"),
                f"{name}: bound_at {bound} is not the gradient event of tensor {record.get('of')}",
            )

    def _modules(self) -> None:
        paths = Counter(record["path"] for record in self.trace.modules)
        for path, count in paths.items():
            self._require(count == 1, f"module '{path}' occurs {count} times")
        owned = set()
        for record in self.trace.modules:
            owned.update(record["params"])
            for tensor in record["params"]:
                known = 0 <= tensor < len(self.trace.tensors)
                kind = self.trace.tensors[tensor]["kind"] if known else "missing"
                self._require(
                    kind == "param", f"module '{record['path']}' owns tensor {tensor}, {kind}"
                )
        for record in self.trace.tensors:
            if record["kind"] == "param":
                self._require(record["t"] in owned, f"{_label(record)}: owned by no module")

    def _buckets(self) -> None:
        members = Counter(tensor for bucket in self.trace.header["buckets"] for tensor in bucket)
        for tensor, count in members.items():
            known = 0 <= tensor < len(self.trace.tensors)
            kind = self.trace.tensors[tensor]["kind"] if known else "missing"
            self._require(kind == "param", f"a bucket holds tensor {tensor}, {kind}")
            self._require(count == 1, f"tensor {tensor} is in {count} buckets")

    def _events(self) -> None:
        events = self.trace.events
        kinds = [record["event"] for record in events]
        self._require(kinds[:1] == ["start"], "the first event is not start")
        self._require(kinds[-1:] == ["end"], "the last event is not end")
        for kind in ("start", "backward_start", "end"):
            self._require(kinds.count(kind) == 1, f"{kinds.count(kind)} events '{kind}'")
        updated = Counter(record.get("b") for record in events if record["event"] == "optimizer")
        for bucket in range(len(self.trace.header["buckets"])):
            self._require(updated[bucket] == 1, f"bucket {bucket} has {updated[bucket]} events")
        running: list[int] = []
        for record in events:
            self._event(record, running)
        self._require(not running, f"modules {running} never leave their forward")

    def _event(self, record: Record, running: list[int]) -> None:
        name = f"event {record['e']} '{record['event']}'"
        if not self._require(record["event"] in EVENT_SUBJECT, f"{name}: unknown"):
            return
        subject = EVENT_SUBJECT[record["event"]]
        present = {key for key in ("m", "t", "b", "mb") if key in record}
        if not self._require(
            present == ({subject} if subject else set()), f"{name}: concerns {sorted(present)}"
        ):
            return
        limits = {
            "m": len(self.trace.modules),
            "t": len(self.trace.tensors),
            "b": len(self.trace.header["buckets"]),
        }
        if subject in limits:
            index = record[subject]
            if not self._require(0 <= index < limits[subject], f"{name}: no {subject} {index}"):
                return
        if subject == "t":
            kind = self.trace.tensors[record["t"]]["kind"]
            self._require(kind == "param", f"{name}: tensor {record['t']} is a {kind}")
        if record["event"] == "forward_pre":
            running.append(record["m"])
        elif record["event"] == "forward_post":
            innermost = running.pop() if running else None
            self._require(
                innermost == record["m"], f"{name}: leaves module {record['m']}, not {innermost}"
            )

    def _event_hash(self) -> None:
        digest = hashlib.sha256()
        for record in self.trace.events:
            digest.update(f"{record['event']}\t{self._subject(record)}\n".encode())
        stated = self.trace.header.get("events_sha256")
        self._require(
            stated == digest.hexdigest(),
            f"events_sha256 is {stated}, the events give {digest.hexdigest()}",
        )

    def _subject(self, record: Record) -> Any:
        for key, table, name in (("m", "modules", "path"), ("t", "tensors", "name")):
            if key in record:
                records = self.trace.section(table)
                # An id out of range has been reported; any text makes the hash differ.
                return records[record[key]].get(name) if 0 <= record[key] < len(records) else None
        return record.get("b", record.get("mb", ""))


def _label(record: Record) -> str:
    return f"tensor {record['t']}" + (f" ({record['name']})" if "name" in record else "")

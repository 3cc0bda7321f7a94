"""A trace in memory: the header and its five tables of records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Record = dict[str, Any]

# The tables, in the order in which a file holds them.
SECTIONS = ("tensors", "modules", "events", "unpacks", "ops")


@dataclass
class Trace:
    """A whole trace as records; a record is the JSON object that a file holds."""

    header: Record
    tensors: list[Record]
    modules: list[Record]
    events: list[Record]
    unpacks: list[Record]
    ops: list[Record]

    def section(self, name: str) -> list[Record]:
        """Return a table by its name in ``SECTIONS``."""
        return getattr(self, name)

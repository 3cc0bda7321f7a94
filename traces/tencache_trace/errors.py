"""Errors a user can act on. Every message says what happened, why, and what to try."""


class TraceError(Exception):
    """Base of all errors this package raises on purpose; its text is meant for the user."""


class BadRequest(TraceError):
    """The caller asked for something that does not exist or does not fit together."""


class UntraceableModel(TraceError):
    """The model cannot be run on shapes alone, or touches a tensor that nobody named."""


class CaptureMismatch(TraceError):
    """The FX graph and the dispatch recording of the same step differ."""


class InvalidTrace(TraceError):
    """A trace file breaks a rule of the format."""

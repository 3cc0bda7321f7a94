"""Versions of this package, of the trace format, and of the libraries the capture was proven on."""

VERSION = "0.1.0"
TRACE_FORMAT = "tencache-trace"
TRACE_VERSION = "1.0"
TESTED_TORCH = "2.13.0"
TESTED_TRANSFORMERS = "5.24.0"

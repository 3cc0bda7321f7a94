"""A capture on shapes equals a capture of a real step on the CPU, operator by operator.

The kernel patch is off in both: a CPU cannot run the kernels of a GPU.
"""

from __future__ import annotations

import pytest
from small import record
from tencache_trace.trace import SECTIONS

CASES = {
    "fp32": {},
    "checkpointed": {"checkpoint": "layer"},
    "bf16-master": {"precision": "bf16-master"},
    "foreach": {"implementation": "foreach", "granularity": "op"},
}


@pytest.mark.parametrize(
    ("family", "dropout", "case"),
    [
        ("gpt2", 0.0, "fp32"),
        ("gpt2", 0.0, "checkpointed"),
        *(("gpt2", 0.1, case) for case in CASES),
        *(("opt", dropout, case) for dropout in (0.0, 0.1) for case in CASES),
    ],
)
def test_fake_equals_real(family: str, dropout: float, case: str) -> None:
    fake = record(family, dropout, kernels=False, **CASES[case])
    real = record(family, dropout, fake=False, kernels=False, **CASES[case])
    assert len(fake.ops) > 50
    for section in SECTIONS:
        for ours, theirs in zip(fake.section(section), real.section(section), strict=True):
            assert ours == theirs
    assert fake.header == real.header

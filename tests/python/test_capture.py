"""The two ways of capturing write the same file, and the same file every time."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from small import record, recorded
from tencache_trace.errors import CaptureMismatch
from tencache_trace.graph import GraphRecording, record_graph
from tencache_trace.join import join
from tencache_trace.recorder import Recorder
from tencache_trace.trace import Trace
from tencache_trace.validate import check_trace
from tencache_trace.writer import render, write_trace

CASES = {
    "plain": {},
    "checkpointed": {"checkpoint": "layer"},
    "bf16-master": {"precision": "bf16-master", "implementation": "fused"},
    "foreach-ops": {"implementation": "foreach", "granularity": "op"},
    "amp": {"precision": "amp-bf16"},
    "classifier-clipped": {"head": "sequence-classification", "clip_norm": 1.0},
}


def without_header(trace: Trace) -> str:
    """Return the file's text without its first line."""
    return render(trace, "lines").partition("\n")[2]


@pytest.mark.parametrize(
    ("family", "dropout", "case"),
    [
        ("gpt2", 0.0, "plain"),
        ("gpt2", 0.0, "checkpointed"),
        ("gpt2", 0.1, "checkpointed"),
        ("gpt2", 0.1, "bf16-master"),
        ("gpt2", 0.1, "foreach-ops"),
        ("opt", 0.0, "plain"),
        ("opt", 0.0, "checkpointed"),
        *(("opt", 0.1, case) for case in CASES),
    ],
)
def test_fx_and_dispatch_write_the_same_file(family: str, dropout: float, case: str) -> None:
    by_graph = record(family, dropout, method="fx", **CASES[case])
    by_dispatch = recorded(family, dropout, **CASES[case])
    assert without_header(by_graph) == without_header(by_dispatch)
    header = copy.deepcopy(by_graph.header)
    assert header["provenance"].pop("method") == "fx"
    expected = copy.deepcopy(by_dispatch.header)
    assert expected["provenance"].pop("method") == "dispatch"
    assert header == expected


@pytest.mark.parametrize(
    ("family", "case"),
    [("gpt2", "checkpointed"), ("gpt2", "bf16-master"), *(("opt", case) for case in CASES)],
)
def test_small_traces_are_valid(family: str, case: str) -> None:
    problems, report = check_trace(recorded(family, 0.1, **CASES[case]))
    assert problems == []
    assert report.peak_last_use <= report.peak_eager


def test_same_capture_gives_same_bytes(tmp_path: Path) -> None:
    for name in ("a.json.gz", "b.json.gz"):
        write_trace(record("opt", 0.1, checkpoint="layer"), tmp_path / name, "document")
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json.gz", "b.json.gz"]


def test_created_only_where_the_build_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert "created" not in record("opt").header
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert record("opt").header["created"] == "1970-01-02T00:00:00+00:00"


class TestJoin:
    """Each difference between graph and recording is an error that names it."""

    @pytest.fixture
    def pair(self) -> tuple:
        from dataclasses import replace

        from small import SETTINGS, config_of
        from tencache_trace.api import make_step
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode(allow_non_fake_inputs=True):
            step = make_step(config_of("opt", 0.0), replace(SETTINGS, precision="bf16"))
            for bucket in step.buckets:
                bucket.create_state()
            return Recorder(step).record(), record_graph(step)

    def test_equal_recordings_join(self, pair: tuple) -> None:
        recording, graph = pair
        assert join(recording, graph).operators == recording.operators

    def test_missing_operator(self, pair: tuple) -> None:
        recording, graph = pair
        del graph.operators[-1]
        with pytest.raises(CaptureMismatch, match="only dispatch has is aten"):
            join(recording, graph)

    def test_other_name(self, pair: tuple) -> None:
        recording, graph = pair
        graph.operators[5].call.name = "aten.other.default"
        with pytest.raises(CaptureMismatch, match=r"operator 5: the name.*aten\.other"):
            join(recording, graph)

    @pytest.mark.parametrize("field", ["reads", "writes", "fresh"])
    def test_other_storages(self, pair: tuple, field: str) -> None:
        recording, graph = pair
        index = next(i for i, op in enumerate(graph.operators) if op.call.fresh and op.call.reads)
        setattr(graph.operators[index].call, field, [])
        with pytest.raises(CaptureMismatch, match=f"operator {index}, .*{field} differs"):
            join(recording, graph)

    def test_other_event(self, pair: tuple) -> None:
        recording, graph = pair
        graph = GraphRecording(graph.table, graph.operators, graph.events[:-1])
        with pytest.raises(CaptureMismatch, match="event list"):
            join(recording, graph)

    def test_swapped_parameters(self, pair: tuple) -> None:
        """Two parameters of the same size exchanged everywhere are noticed: labels decide."""
        recording, graph = pair
        sizes = [storage.bytes for storage in graph.table.storages]
        names = [storage.names[:1] for storage in graph.table.storages]
        first = names.index(["model.decoder.layers.0.self_attn.k_proj.weight"])
        second = names.index(["model.decoder.layers.0.self_attn.v_proj.weight"])
        assert sizes[first] == sizes[second]
        swap = {first: second, second: first}
        for operator in graph.operators:
            operator.call.reads = [swap.get(n, n) for n in operator.call.reads]
        with pytest.raises(CaptureMismatch, match="reads differs"):
            join(recording, graph)

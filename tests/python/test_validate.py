"""The validator accepts the shipped traces and refuses every kind of damage.

Needs no PyTorch.
"""

from __future__ import annotations

import copy
import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tencache_trace.errors import InvalidTrace
from tencache_trace.reader import read_trace
from tencache_trace.trace import Trace
from tencache_trace.validate import SHOWN_PROBLEMS, check_trace, validate_file
from tencache_trace.writer import write_trace

REPOSITORY = Path(__file__).resolve().parents[2]
SHIPPED = sorted(
    path
    for path in (REPOSITORY / "traces").iterdir()
    if ".json" in path.suffixes or ".jsonl" in path.suffixes
)
BY_HAND = REPOSITORY.parent / "shared" / "cases" / "trace-v1" / "mlp.json"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_traces_are_valid(path: Path) -> None:
    report = validate_file(path)
    assert report.unused == 0
    assert report.peak_last_use <= report.peak_eager


def test_five_traces_are_shipped() -> None:
    assert len(SHIPPED) == 5


@pytest.mark.skipif(not BY_HAND.exists(), reason=f"{BY_HAND} is not there")
def test_trace_by_hand_is_valid() -> None:
    """Peak by hand: 856 bytes of parameters, state and input, and what backward holds."""
    report = validate_file(BY_HAND)
    assert report.counts == {"tensors": 24, "modules": 4, "events": 24, "unpacks": 0, "ops": 15}


@pytest.fixture(scope="module")
def sound() -> Trace:
    return read_trace(REPOSITORY / "traces" / "gpt2.jsonl.gz")


def first(trace: Trace, name: str) -> dict:
    return next(op for op in trace.ops if op["name"] == name)


def _use_before_birth(trace: Trace) -> None:
    trace.ops[0]["r"].append(trace.ops[-2]["f"][0])


def _use_after_death(trace: Trace) -> None:
    dead = next(op for op in trace.ops if op.get("f"))["f"][0]
    trace.ops[200]["r"].append(dead)


def _swap_births(trace: Trace) -> None:
    trace.ops[0]["a"], trace.ops[3]["a"] = trace.ops[3]["a"], trace.ops[0]["a"]


def _early_eager_free(trace: Trace) -> None:
    eager = trace.ops[-1]["fe"].pop()
    next(op for op in trace.ops if eager in op.get("a", ()))["fe"] = [eager]


def _unneeded_unpack(trace: Trace) -> None:
    operator = first(trace, "aten.tanh.default")
    trace.unpacks.append({"t": operator["r"][0], "u": [operator["e"]]})


def _unbalanced(trace: Trace) -> None:
    trace.events[4]["m"] = trace.events[4]["m"] + 1


def _gradient_too_early(trace: Trace) -> None:
    event = next(event for event in trace.events if event["event"] == "gradient")
    gradient = next(t for t in trace.tensors if t["kind"] == "grad" and t["of"] == event["t"])
    late = next(op for op in trace.ops if op["phase"] == "b" and op["e"] > event["e"] + 4)
    born = next(op for op in trace.ops if gradient["t"] in op.get("a", ()))
    born["a"].remove(gradient["t"])
    born["w"].remove(gradient["t"])
    late.setdefault("a", []).append(gradient["t"])
    late["w"].append(gradient["t"])


def _gradient_added_to(trace: Trace) -> None:
    event = next(event for event in trace.events if event["event"] == "gradient")
    gradient = next(t for t in trace.tensors if t["kind"] == "grad" and t["of"] == event["t"])
    late = next(op for op in trace.ops if op["phase"] == "b" and op["e"] > event["e"])
    late["w"].append(gradient["t"])


def _keep_gradients(trace: Trace) -> None:
    """As with ``zero_grad(set_to_none=False)``: no births, no deaths, zeroed at the end."""
    kept = [tensor for tensor in trace.tensors if tensor["kind"] == "grad"]
    for tensor in kept:
        tensor["persist"] = 1
    ids = {tensor["t"] for tensor in kept}
    for operator in trace.ops:
        for key in ("a", "f", "fe"):
            if key in operator:
                operator[key] = [tensor for tensor in operator[key] if tensor not in ids]
    zero = {"op": len(trace.ops), "name": "aten._foreach_zero_.default", "phase": "z", "cls": "elt"}
    trace.ops.append({**zero, "e": trace.ops[-1]["e"], "w": sorted(ids)})
    trace.header["counts"]["ops"] += 1


DAMAGE: dict[str, tuple[Callable[[Trace], object], str]] = {
    "format": (lambda t: t.header.update(format="x"), "format is"),
    "version": (lambda t: t.header.update(version="2.0"), "version is 2.0"),
    "feature": (lambda t: t.header.update(requires=["magic"]), "unknown features"),
    "count": (lambda t: t.header["counts"].update(ops=3), "counts.ops is 3"),
    "hash": (lambda t: t.header.update(events_sha256="0"), "events_sha256 is 0"),
    "tensor id": (lambda t: t.tensors[3].update(t=9), "expected id 3, found 9"),
    "no bytes": (lambda t: t.tensors[700].update(bytes=0), "0 bytes"),
    "many bytes": (lambda t: t.tensors[700].update(bytes=2**51), "bytes"),
    "shape": (lambda t: t.tensors[2].update(shape=[3, 5]), "the shape says"),
    "kind": (lambda t: t.tensors[700].update(kind="thing"), "unknown kind"),
    "dtype": (lambda t: t.tensors[700].update(dtype="float9"), "unknown dtype"),
    "owner": (lambda t: t.tensors[160].update(of=700), "belongs to tensor 700"),
    "role": (lambda t: t.tensors[160].pop("role"), "without a role"),
    "binding": (lambda t: t.tensors[2].update(bind={"kind": "saved", "ord": 0}), "bound as"),
    "bound_at": (lambda t: t.tensors[2].pop("bound_at"), "go together"),
    "module twice": (lambda t: t.modules[4].update(path=""), "occurs 2 times"),
    "module's tensor": (lambda t: t.modules[4]["params"].append(0), "owns tensor 0, input"),
    "bucket": (lambda t: t.header["buckets"].append([2]), "is in 2 buckets"),
    "first event": (lambda t: t.events[0].update(event="end"), "first event is not start"),
    "event kind": (lambda t: t.events[5].update(event="blink"), "unknown"),
    "event subject": (lambda t: t.events[0].update(m=0), "concerns"),
    "event module": (lambda t: t.events[2].update(m=999), "no m 999"),
    "nesting": (_unbalanced, "leaves module"),
    "phase": (lambda t: t.ops[9].update(phase="q"), "unknown phase"),
    "phase order": (lambda t: t.ops[9].update(phase="b"), "after phase b"),
    "class": (lambda t: t.ops[9].update(cls="odd"), "unknown class"),
    "event order": (lambda t: t.ops[9].update(e=700), "after event 700"),
    "no event": (lambda t: t.ops[9].update(e=9999), "no event 9999"),
    "no module": (lambda t: t.ops[9].update(m=9999), "no module 9999"),
    "no tensor": (lambda t: t.ops[9]["r"].append(99999), "no tensor 99999"),
    "twice": (lambda t: t.ops[9]["r"].append(t.ops[9]["r"][0]), "occurs twice in 'r'"),
    "negative": (lambda t: t.ops[9].update(flops=-1), "flops is -1"),
    "persistent": (lambda t: t.ops[9].setdefault("f", []).append(2), "frees tensor 2, a param"),
    "born persistent": (lambda t: t.ops[9]["a"].append(2), "allocates tensor 2, a param"),
    "born twice": (lambda t: t.ops[9]["a"].extend(t.ops[0]["a"]), "a second time"),
    "before birth": (_use_before_birth, "before it is allocated"),
    "after death": (_use_after_death, "after its 'f'"),
    "births swapped": (_swap_births, "does not write"),
    "eager free": (_early_eager_free, "dies before its last use|after its 'fe'"),
    "late free": (lambda t: t.ops[-1]["f"].extend(t.ops[5].pop("f")), "last used by op"),
    "unpack": (_unneeded_unpack, "reads it anyway"),
    "gradient": (_gradient_too_early, "comes before its birth|before it is allocated"),
    "gradient added to": (_gradient_added_to, "adds to tensor .* after its gradient event"),
    "recomputation": (lambda t: t.ops[9].update(rc=1), "outside of the backward pass"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found(sound: Trace, damage: str) -> None:
    import re

    change, message = DAMAGE[damage]
    broken = copy.deepcopy(sound)
    change(broken)
    problems, _ = check_trace(broken)
    assert any(re.search(message, problem) for problem in problems), problems[:5]


def test_sound_trace_has_no_problem(sound: Trace) -> None:
    assert check_trace(sound)[0] == []


def test_gradients_may_be_persistent(sound: Trace) -> None:
    kept = copy.deepcopy(sound)
    _keep_gradients(kept)
    assert check_trace(kept)[0] == []
    birth = next(op for op in kept.ops if op["phase"] == "b" and op.get("a"))
    birth["a"].append(kept.ops[-1]["w"][0])
    assert any("a grad" in problem for problem in check_trace(kept)[0])


def test_persistent_gradients_may_be_zeroed_before_forward(sound: Trace) -> None:
    kept = copy.deepcopy(sound)
    _keep_gradients(kept)
    zero = kept.ops.pop()
    for operator in kept.ops:
        operator["op"] += 1
    kept.ops.insert(0, {**zero, "op": 0, "e": 0})
    assert check_trace(kept)[0] == []


def test_first_problems_are_shown_and_the_rest_counted(sound: Trace, tmp_path: Path) -> None:
    broken = copy.deepcopy(sound)
    for op in broken.ops:
        op["cls"] = "odd"
    path = tmp_path / "broken.jsonl"
    write_trace(broken, path, "lines")
    with pytest.raises(InvalidTrace) as caught:
        validate_file(path)
    text = str(caught.value)
    assert f"{len(broken.ops)} problems" in text
    assert f"and {len(broken.ops) - SHOWN_PROBLEMS} more" in text
    assert text.count("unknown class") == SHOWN_PROBLEMS


def test_both_layouts_hold_the_same(sound: Trace, tmp_path: Path) -> None:
    for name, layout in (("a.json", "document"), ("a.jsonl", "lines"), ("b.json.gz", "document")):
        sound.header["layout"] = layout
        write_trace(sound, tmp_path / name, layout)
        assert read_trace(tmp_path / name) == sound
    lines = (tmp_path / "a.json").read_text().splitlines()
    assert json.loads("{" + lines[-3].rstrip(",") + "}" if lines[-3][0] != "{" else lines[-3])


class TestFiles:
    """What is no trace is refused with the file's name."""

    def refuse(self, path: Path, message: str) -> None:
        with pytest.raises(InvalidTrace, match=message) as caught:
            validate_file(path)
        assert str(path) in str(caught.value)

    def test_truncated(self, tmp_path: Path) -> None:
        lines = gzip.decompress((REPOSITORY / "traces" / "gpt2.jsonl.gz").read_bytes()).splitlines(
            keepends=True
        )
        path = tmp_path / "cut.jsonl"
        path.write_bytes(b"".join(lines[:-1]))
        self.refuse(path, "no end record")
        path.write_bytes(b"".join(lines[:-2] + lines[-1:]))
        self.refuse(path, "the end record counts")

    def test_corrupt_gzip(self, tmp_path: Path) -> None:
        data = bytearray((REPOSITORY / "traces" / "gpt2.jsonl.gz").read_bytes())
        path = tmp_path / "x.gz"
        path.write_bytes(data[: len(data) // 2])
        self.refuse(path, "not a JSON or gzip file")
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data)
        self.refuse(path, "x.gz")

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "empty"),
            (b"\x00\xff\x80binary", "not a JSON"),
            (b"[1, 2]\n", "expected an object"),
            (b'{"format":"tencache-trace","x":NaN}\n', "NaN is no number"),
            (b'{"a":' * 100_000, "x:1"),
            (b"{}\n{}\n", "no known kind"),
            (b'{}\n{"op":0}\n{"t":0,"kind":"temp"}\n', "comes too late"),
            (b'{"format":"tencache-trace","layout":"document"}', "section 'tensors'"),
            (b'{}\n{"end":true,"ops":0,"tensors":0}\n', "lacks a key"),
        ],
    )
    def test_content(self, tmp_path: Path, content: bytes, message: str) -> None:
        path = tmp_path / "x"
        path.write_bytes(content)
        self.refuse(path, message)

    def test_folder_and_nothing(self, tmp_path: Path) -> None:
        self.refuse(tmp_path, "[Dd]irectory")
        self.refuse(tmp_path / "missing", "No such file")


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tencache_trace.cli import main

    good = shutil.copy(REPOSITORY / "traces" / "gpt2.jsonl.gz", tmp_path / "good.gz")
    assert main(["validate", str(good)]) == 0
    assert "valid; 1357 tensors" in capsys.readouterr().out
    bad = tmp_path / "bad"
    bad.write_bytes(b"{}")
    assert main(["validate", str(bad)]) == 2
    assert "no end record" in capsys.readouterr().err

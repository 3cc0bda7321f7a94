"""Rules about operators: order, lifetimes, steps and unpacks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from .trace import Record, Trace

PERSISTENT = {"param", "buffer", "optimizer_state", "input"}
PHASES = "fbozx"
CLASSES = {"gemm", "attn", "elt", "red", "gather", "opt", "comm", "copy"}
LARGEST_INTEGER = 2**53


class OperatorRules:
    """Walks the operators once and collects problems, births and deaths."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.problems: list[str] = []
        self._kinds = [record["kind"] for record in trace.tensors]
        self._persistent = [
            bool(record.get("persist", record["kind"] in PERSISTENT)) for record in trace.tensors
        ]
        self._sizes = [record["bytes"] for record in trace.tensors]
        self._born: dict[int, int] = {}
        self._last_use: dict[int, int] = {}
        self._deaths: dict[str, dict[int, int]] = {"f": {}, "fe": {}}

    def check(self) -> None:
        """Check all rules; problems are in ``problems`` afterwards."""
        event_before = -1
        phase_before = "f"
        for record in self.trace.ops:
            if not self._shape(record):
                continue
            self._order(record, event_before, phase_before)
            event_before, phase_before = record["e"], record["phase"]
            self._accesses(record)
        self._backward_start()
        self._deaths_fit()
        self._unpacks()
        self._gradients()

    def peak(self, frees: str) -> int:
        """Return the largest number of bytes alive at once; ``frees`` is "f" or "fe"."""
        live = sum(size for size, stays in zip(self._sizes, self._persistent, strict=True) if stays)
        highest = live
        for record in self.trace.ops:
            live += sum(self._sizes[tensor] for tensor in record.get("a", ()))
            highest = max(highest, live + record.get("ws", 0))
            live -= sum(self._sizes[tensor] for tensor in record.get(frees, ()))
        return highest

    def unused(self) -> int:
        """Return the number of tensors that no operator touches."""
        return sum(tensor not in self._last_use for tensor in range(len(self._kinds)))

    def _problem(self, record: Record, text: str) -> None:
        self.problems.append(f"op {record['op']} {record['name']}: {text}")

    def _shape(self, record: Record) -> bool:
        """Check values and references; False if the operator cannot be followed any further."""
        if record["phase"] not in PHASES:
            self._problem(record, f"unknown phase '{record['phase']}'")
        if record.get("cls") not in CLASSES:
            self._problem(record, f"unknown class '{record.get('cls')}'")
        for key in ("flops", "bytes", "ws"):
            if not 0 <= record.get(key, 0) < LARGEST_INTEGER:
                self._problem(record, f"{key} is {record[key]}")
        if "m" in record and not 0 <= record["m"] < len(self.trace.modules):
            self._problem(record, f"no module {record['m']}")
        if not 0 <= record["e"] < len(self.trace.events):
            self._problem(record, f"no event {record['e']}")
            return False
        sound = True
        for key in ("r", "w", "a", "f", "fe"):
            tensors = record.get(key, [])
            if len(set(tensors)) != len(tensors):
                self._problem(record, f"a tensor occurs twice in '{key}'")
            for tensor in tensors:
                if not 0 <= tensor < len(self._kinds):
                    self._problem(record, f"no tensor {tensor}")
                    sound = False
        return sound

    def _order(self, record: Record, event_before: int, phase_before: str) -> None:
        if record["e"] < event_before:
            self._problem(record, f"event {record['e']} after event {event_before}")
        zeroed_first = phase_before == "z" and self._before_forward(event_before)
        if not zeroed_first and PHASES.find(record["phase"]) < PHASES.find(phase_before):
            self._problem(record, f"phase {record['phase']} after phase {phase_before}")
        kind = self.trace.events[record["e"]]["event"]
        if record["phase"] == "f" and kind in ("backward", "gradient", "optimizer"):
            self._problem(record, f"a forward operator after a {kind} event")
        if record.get("rc") and record["phase"] != "b":
            self._problem(record, "a recomputation outside of the backward pass")
        zeroed_first = record["phase"] == "z" and self._before_forward(record["e"])
        expected = (kind == "optimizer") == (record["phase"] in "oz") or kind == "norm"
        if not expected and not zeroed_first:
            self._problem(record, f"phase {record['phase']} after a {kind} event")

    def _before_forward(self, event: int) -> bool:
        """Persistent gradients may be zeroed there; PyTorch itself drops them at the end."""
        return event >= 0 and self.trace.events[event]["event"] in ("start", "micro_batch")

    def _accesses(self, record: Record) -> None:
        index = record["op"]
        fresh = record.get("a", [])
        for tensor in fresh:
            self._birth(record, tensor)
        if not set(fresh) <= set(record.get("w", [])):
            self._problem(record, "allocates a tensor that it does not write")
        if set(fresh) & set(record.get("r", [])):
            self._problem(record, "reads a tensor that it allocates")
        for tensor in {*record.get("r", ()), *record.get("w", ())}:
            self._use(record, tensor)
            self._last_use[tensor] = index
        for key in ("f", "fe"):
            for tensor in record.get(key, ()):
                self._death(record, key, tensor)

    def _birth(self, record: Record, tensor: int) -> None:
        if self._persistent[tensor]:
            self._problem(record, f"allocates tensor {tensor}, a {self._kinds[tensor]}")
        if tensor in self._born:
            self._problem(record, f"allocates tensor {tensor} a second time")
        self._born[tensor] = record["op"]

    def _use(self, record: Record, tensor: int) -> None:
        if self._persistent[tensor]:
            return
        if tensor not in self._born:
            self._problem(record, f"uses tensor {tensor} before it is allocated")
        for key in ("f", "fe"):
            if tensor in self._deaths[key]:
                self._problem(record, f"uses tensor {tensor} after its '{key}'")

    def _death(self, record: Record, key: str, tensor: int) -> None:
        if self._persistent[tensor]:
            self._problem(record, f"frees tensor {tensor}, a {self._kinds[tensor]}")
        elif tensor not in self._born:
            self._problem(record, f"frees tensor {tensor} before it is allocated")
        elif tensor in self._deaths[key]:
            self._problem(record, f"frees tensor {tensor} a second time ('{key}')")
        self._deaths[key][tensor] = record["op"]

    def _backward_start(self) -> None:
        first = next((record for record in self.trace.ops if record["phase"] == "b"), None)
        if first is not None:
            kind = self.trace.events[first["e"]]["event"]
            if kind != "backward_start":
                self._problem(first, f"the first backward operator follows a {kind} event")

    def _deaths_fit(self) -> None:
        """``f`` is the last use by operator or unpack; PyTorch frees no earlier."""
        unpacked = {record["t"] for record in self.trace.unpacks}
        for tensor, dead in self._deaths["f"].items():
            last = self._last_use.get(tensor, self._born.get(tensor, dead))
            if dead != last and tensor not in unpacked:
                self._problem(
                    self.trace.ops[dead], f"frees tensor {tensor}, last used by op {last}"
                )
            eager = self._deaths["fe"].get(tensor)
            if eager is not None and eager < dead:
                self._problem(
                    self.trace.ops[eager], f"tensor {tensor} dies before its last use {dead}"
                )

    def _unpacks(self) -> None:
        steps = sorted({record["e"] for record in self.trace.ops})
        step_ops: dict[int, list[Record]] = {}
        for record in self.trace.ops:
            step_ops.setdefault(record["e"], []).append(record)
        for record in self.trace.unpacks:
            tensor = record["t"]
            if not record["u"] or record["u"] != sorted(set(record["u"])):
                self.problems.append(f"unpack of tensor {tensor}: events not in order")
            for event in record["u"]:
                following = bisect_left(steps, event)
                if following == len(steps):
                    self.problems.append(f"unpack of tensor {tensor}: no step after event {event}")
                    continue
                operators = step_ops[steps[following]]
                self._unpack(tensor, operators)

    def _unpack(self, tensor: int, operators: list[Record]) -> None:
        where = f"unpack of tensor {tensor} in the step of event {operators[0]['e']}"
        if any(tensor in operator.get("r", ()) for operator in operators):
            self.problems.append(f"{where}: an operator of the step reads it anyway")
        if self._persistent[tensor]:
            return
        if self._born.get(tensor, len(self.trace.ops)) > operators[-1]["op"]:
            self.problems.append(f"{where}: before it is allocated")
        if self._deaths["f"].get(tensor, len(self.trace.ops)) < operators[0]["op"]:
            self.problems.append(f"{where}: after its last use")

    def _gradients(self) -> None:
        """A gradient exists, and is complete, when its ``gradient`` event fires."""
        self._complete()
        event_of_birth = {
            tensor: self.trace.ops[index]["e"] for tensor, index in self._born.items()
        }
        for record in self.trace.tensors:
            if record["kind"] != "grad" or "bound_at" not in record:
                continue
            if self._persistent[record["t"]]:
                continue
            born = event_of_birth.get(record["t"])
            if born is None or born >= record["bound_at"]:
                self.problems.append(
                    f"tensor {record['t']}: its gradient event {record['bound_at']} comes before "
                    f"its birth after event {born}"
                )

    def _complete(self) -> None:
        """Within a backward pass nothing adds to a gradient after its last event."""
        events = self.trace.events
        passes = [index for index, event in enumerate(events) if event["event"] == "backward_start"]
        last = {
            (event["t"], bisect_right(passes, index)): index
            for index, event in enumerate(events)
            if event["event"] == "gradient"
        }
        for record in self.trace.ops:
            if record["phase"] != "b":
                continue
            for tensor in record.get("w", ()):
                owner = self.trace.tensors[tensor].get("of")
                event = last.get((owner, bisect_right(passes, record["e"])))
                if self._kinds[tensor] == "grad" and event is not None and record["e"] >= event:
                    self._problem(
                        record, f"adds to tensor {tensor} after its gradient event {event}"
                    )

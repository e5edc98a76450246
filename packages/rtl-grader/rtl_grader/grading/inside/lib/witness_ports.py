"""Watches the ports of a simulation's top level, to detect a design that never does anything.

Standard library only, with few imports: lib/witness.py loads it in every Python of a job.
"""

import itertools

_MAX_LEAVES = 64
"""Elements of an unpacked array to watch."""
_VECTORS = ("LOGIC", "LOGIC_ARRAY", "PACKED_STRUCTURE", "INTEGER", "ENUM", "REG", "NET")
"""The simulator's kinds of objects that have bits, in cocotb 2 and 1. Reals, strings and arrays have none."""


class Ports:
    """Watches whether the top level's outputs change while its inputs change.

    `watch` is the JSON text of [inputs, outputs]. Outputs are sampled when an input changes (rises, if it
    is a single bit), just before the change and at the end of its time step. The first input with `ENOUGH`
    changes becomes the pacer, and only samples at its changes count. It is usually the clock: copies of it
    and pulses between its edges do not count as behaviour. An output has moved when two samples of one kind
    differ and have no unknown bits; then watching ends.
    """

    ENOUGH = 32

    def __init__(self, watch):
        self.changes = 0
        self.moved = False
        self.pacer = ""
        self.counts: dict = {}
        self.before: dict = {}
        self.after: dict = {}
        self.inputs: dict = {}
        self.outputs: dict = {}
        self.waiting: dict = {}
        if not watch:
            return
        import json

        import cocotb
        from cocotb import simulator

        self.register = simulator.register_value_change_callback
        self.settle = simulator.register_readonly_callback
        self.edge = getattr(simulator, "VALUE_CHANGE", 3)
        vectors = {getattr(simulator, kind, None) for kind in _VECTORS}

        def leaves(name, handle):
            """Yield what has bits of a port: itself, or an unpacked array's elements. On others the
            simulator would crash."""
            kind = None
            if handle is not None:
                kind = handle.get_type()
            if kind == simulator.NETARRAY:
                bounds = sorted(handle.get_range()[:2])
                for index in range(bounds[0], bounds[1] + 1):
                    yield from leaves(f"{name}[{index}]", handle.get_handle_by_index(index))
            elif kind is not None and kind in vectors:
                yield name, handle

        def handles(names):
            top = cocotb.top._handle
            ports = (leaves(name, top.get_handle_by_name(name)) for name in names)
            return {
                name: leaf
                for port in ports
                for name, leaf in itertools.islice(port, _MAX_LEAVES)
            }

        try:
            self.inputs, self.outputs = map(handles, json.loads(watch))
        except Exception:
            return
        if self.outputs:
            for name in self.inputs:
                self._wait(name)

    def _wait(self, name):
        try:
            self.waiting[name] = self.register(
                self.inputs[name], self._changed, self.edge, name
            )
        except Exception:
            self.waiting.pop(name, None)

    def _changed(self, name):
        self.waiting.pop(name, None)
        if self.moved or self.pacer not in ("", name):
            return
        self.changes += 1
        self.counts[name] = self.counts.get(name, 0) + 1
        value = self.inputs[name].get_signal_val_binstr()
        if self.counts[name] == self.ENOUGH:
            self._set_pace(name)
        if len(value) == 1 and value != "1":
            self._wait(name)
            return
        self._look(name, self.before)
        if not self.moved:
            self.waiting[name] = self.settle(self._settled, name)

    def _set_pace(self, name):
        # Callbacks of other inputs stay: removing one during its time step can crash the simulator.
        self.pacer = name
        before = self.before.get(name, {})
        after = self.after.get(name, {})
        self.moved = "" in before.values() or "" in after.values()

    def _settled(self, name):
        self.waiting.pop(name, None)
        self._look(name, self.after)
        if not self.moved:
            self._wait(name)

    def _look(self, name, kind):
        """Sample the outputs and compare them with earlier samples of this kind; "" marks an output with two values."""
        samples = kind.setdefault(name, {})
        for output, handle in self.outputs.items():
            value = handle.get_signal_val_binstr()
            is_known = not set(value) - {"0", "1"}
            if is_known and samples.setdefault(output, value) != value:
                samples[output] = ""
        if self.pacer == name:
            self.moved = "" in samples.values()

    def report(self):
        """Return the result. Removes pending callbacks: a simulator that ends with them may crash."""
        for callback in self.waiting.values():
            if hasattr(callback, "deregister"):
                callback.deregister()
        self.waiting.clear()
        if not self.pacer:
            # Without a pacer, an output has moved if any two samples differ, whichever inputs they belong to.
            values: dict = {}
            for samples in (*self.before.values(), *self.after.values()):
                for output, value in samples.items():
                    values.setdefault(output, set()).add(value)
            self.moved = any("" in own or len(own) > 1 for own in values.values())
        moved = self.moved or not self.outputs
        return {"changes": self.changes, "moved": moved, "pacer": self.pacer}

"""Stands in the simulator's Python path as `pytest`.

cocotb runs without pytest too: it needs it only to rewrite bare assertions, and ours carry their own message. To import
it would more than double the CPU time of a run.
"""

raise ModuleNotFoundError("not wanted in the simulator", name="pytest")

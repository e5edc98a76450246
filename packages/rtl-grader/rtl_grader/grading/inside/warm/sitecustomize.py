"""Loaded by the Python of a warm vvp before it reads a design. Serves jobs.

`serve` returns only in a fork that becomes a simulator and continues as vvp with the given design.
"""

import warm

warm.serve()

"""Loaded by the Python inside a warm vvp, before it has read any design: serves jobs instead of going on.

`serve` returns only in a forked child that is to be a simulator; it goes on as vvp, with the design it was given.
"""

import warm

warm.serve()

"""Checks before a run. `rtl-distill check` runs all of them (preflight.py); a run skips those that its own
start makes redundant."""

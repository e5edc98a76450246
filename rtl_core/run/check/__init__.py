"""Checks before a run. `rtl-distill check` makes all of them (preflight.py); a run itself leaves out what it does anyway."""

"""Designs of a user's own with benches of their own, a folder each: what is read, guessed and understood.

`description.py` holds the keys of `problem.toml`, `files.py` reads files, `make.py` a Makefile, `bench.py` finds the
bench, `design.py` the design, `harnesses.py` makes the harness, and `reader.py` the problem.
"""

"""Designs of a user's own with benches of their own, a folder each: what is read, guessed and understood.

`description.py` holds the keys of `problem.toml`, `files.py` reads files and lists of them, `design.py` finds the
design, `bench.py` its bench, and `reader.py` makes the problem.
"""

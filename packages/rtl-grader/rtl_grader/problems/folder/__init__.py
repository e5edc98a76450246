"""Designs of a user's own with benches of their own, a folder each: what is read, guessed and understood.

`description.py` holds the keys of `problem.toml`, `files.py` reads files and lists, `makefile.py` reads cocotb's
Makefiles, `guesses.py` finds what is not stated, `problem.py` puts the problem together.
"""

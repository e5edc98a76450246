"""Synthetic problems: variants of problems with a verified answer, and repairs of near misses; kept only when they hold up.

Every candidate is a CVDP record like any other, and goes through the validation that every problem goes through: its golden answer
must pass and mutants of it must fail. Candidates close to a held-out problem are dropped first.
"""

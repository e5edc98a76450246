"""Synthetic problems: variants of problems with a verified answer, and repairs of near misses.

Every candidate is a CVDP record and is validated like any other problem: its golden answer must pass, and
mutants of it must fail. Candidates close to a held-out problem are dropped first.
"""

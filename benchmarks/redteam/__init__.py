"""A red team for the grader: attacks that must not be paid and honest answers that must pass, as data.

    python -m benchmarks.redteam            grade all of them (minutes)
    python -m benchmarks.redteam.fuzz       mutate and combine them for a given time

`attack.py` holds the noun and designs to attack with, `problems.py` the problems, `catalogue.py` the list of groups. A new attack is a row of its
group's table in `tables/`; `tables.py` says what a table may hold.
"""

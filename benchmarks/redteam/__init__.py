"""A red team for the grader: attacks that must not be paid and honest answers that must pass, as data.

    python -m benchmarks.redteam            grade all of them (minutes)
    python -m benchmarks.redteam.fuzz       mutate and combine them for a given time

`attack.py` has attacks and designs for them, `problems.py` the problems, `catalogue.py` the groups. A new attack is a row in its group's table in
`tables/`; `tables.py` describes the tables.
"""

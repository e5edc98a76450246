"""A red team for the grader, as data: attacks that must not be paid and honest answers that must pass.

`attack.py` has attacks and designs for them, `problems.py` the problems, `catalogue.py` the groups;
`tables.py` describes the tables in `tables/`.
"""

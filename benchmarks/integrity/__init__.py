"""How reliable graders of RTL are: attacks that no grader may pay, each with an honest twin that every grader must pay.

    python -m benchmarks.integrity                     our grader in bubblewrap, and a bare harness
    python -m benchmarks.integrity --write cases.jsonl the cases for other people's graders

`judges.py` makes the cases from the red team's attacks and has the graders, `__main__.py` counts.
"""

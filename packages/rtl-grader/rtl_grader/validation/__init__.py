"""Validation of problems, before anything is sampled for them.

`mutants` and `stubs` make wrong answers, `equivalence` checks whether these really differ from the golden
answer, `validate` grades them, and `table` and `document` summarize a problem set. `doubts` audits passing
answers during and after a run.
"""

"""From a plan of problems to a train step: sample, grade and score groups, evaluation, and the step itself.

Each function starts from what the history already holds, so calling it again after a crash does only what is missing.
"""

"""The data types that all rooms share: Problem, Answer, Verdict."""

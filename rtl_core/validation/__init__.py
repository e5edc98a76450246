"""Problems worth training on: what a problem must show before a token is sampled for it.

`mutants` and `stubs` make wrong answers, `equivalence` tells whether a wrong answer can be told from the golden one at
all, `validate` grades them, and `survey` sums a set up.
"""

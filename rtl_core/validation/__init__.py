"""Problems worth training on: what a problem must show before a token is sampled for it.

`mutants` and `stubs` make wrong answers, the room `equivalence` tells whether one can be told from the golden answer at all, `validate`
grades them, and `table` and `document` sum a set up. `doubts` looks at passes while a run trains, and after it.
"""

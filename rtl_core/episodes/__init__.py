"""Episodes: a model works on a problem with tools, in a sandbox without harness, until it submits files
that the grader judges."""

"""Cards: one evaluation as a file to cite, made from the history, checked against its verdicts, and compared."""

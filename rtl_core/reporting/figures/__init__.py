"""The report's figures and tables: one module per question, each a function of a `Source` that returns its blocks."""

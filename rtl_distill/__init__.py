"""The command, the flows and their tasks, and the processes around them, under one name.

In a checkout the four folders at its root are linked here; in an installed package they lie here.
"""

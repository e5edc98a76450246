"""Readers of problem sets and folders, tasks about any RTL (`rtl`), the split, and rewritten test benches."""

"""Grading: files and harness to a verdict."""

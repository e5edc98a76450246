"""Grading as a service: the grader of `rtl-distill grade` over HTTP, for a trainer on another machine or in
another language."""

"""Grading as a service: the grader of `rtl-grader grade` over HTTP, for a trainer on another machine or in
another language."""

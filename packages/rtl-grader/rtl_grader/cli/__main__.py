"""`python -m rtl_grader.cli`: the same as `rtl-grader`, for when the console script is not installed."""

from rtl_grader.cli import main

main()

"""`python -m rtl_distill.cli`: the same as `rtl-distill`, for when the console script is not installed."""

from rtl_distill.cli import main

main()

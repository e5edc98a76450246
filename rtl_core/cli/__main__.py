"""`python -m rtl_core.cli`: the same as `rtl-distill`, where the console script is not installed."""

from rtl_core.cli import main

main()

"""`python -m cli`: the same as `rtl-distill`, where the console script is not installed."""

from cli import main

main()

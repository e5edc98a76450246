"""The web view of a history on the loopback address: curves, steps, groups, rollouts, tokens and waveforms.

    server.py     routes, refused requests, error pages; pages.py: a function per page
    questions.py  queries for runs, steps, groups and lists of rollouts; failures.py: queries for failures
    figures.py    the report's figures, whose points are links
    one.py        everything about a rollout: code.py (colours, differences), tokens.py (overlays),
                  pieces.py (texts of tokens), waves.py (waveforms)
    page/         templates; static/: style and script

Each page opens the history once, for a few milliseconds, and closes it before the page is rendered.
"""

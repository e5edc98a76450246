"""The page on loopback over a history: from curves to steps, groups, rollouts, tokens and waveforms.

    server.py     the address, what is refused, what becomes of errors; pages.py: a function a page
    questions.py  what pages ask of runs, steps, groups and lists of rollouts; failures.py: what the model gets wrong
    one.py        a rollout whole: code.py (colours, differences), tokens.py (overlays), pieces.py (texts of tokens), waves.py (waveforms)
    charts.py     curves and stacks as SVG; page/ holds the templates, static/ style and script

Each page opens the history once, for some milliseconds, and lets go of it before the page is put together.
"""

"""How reliable graders of RTL are, measured by the red team's attacks (`judges.py`), each with an honest
twin; `__main__.py` counts."""

"""Any RTL as problems: files (filelist.py), what is in them (scan.py), designs with all that they need
(designs.py), and tasks about them (tasks.py)."""

"""Where state lives: one contract (`base.py`), one folder for each store that keeps it."""

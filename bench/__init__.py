"""Figures that qo is built for, measured as ratios in one run. `python -m bench` prints them all."""

"""Figures, the HTML report and console tables."""

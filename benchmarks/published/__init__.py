"""Figures that others print, measured by the same recipe."""

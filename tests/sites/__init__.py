"""Tests of real sites behind nginx, configured as in docs/recipes, with visitors in Chromium."""

"""Real sites behind nginx, configured as in docs/recipes, and visitors in Chromium."""

"""Real sites behind nginx, as the recipes in docs/ configure it, and visitors in Chromium."""

"""The Lua design: nginx decides by itself, by single Redis commands in its access phase.

Its cap is checked and then taken, in two steps, so requests at once may overshoot it.
"""

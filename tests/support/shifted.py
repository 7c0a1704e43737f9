"""Runs the waitroom command with a clock that is wrong by a number of seconds.

Usage: python shifted.py SECONDS serve …
"""

import sys
import time

SHIFT_S = float(sys.argv.pop(1))
_now, _now_ns = time.time, time.time_ns
time.time = lambda: _now() + SHIFT_S
time.time_ns = lambda: _now_ns() + int(SHIFT_S * 1e9)

if __name__ == "__main__":
    from sidecar.cli import main

    main()

"""`python -m loadtest.jobs [--quick]`: measures, writes the report.

Ends with status 1 where a job was not done, or one too many.
"""

import argparse
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import uvloop

from loadtest import machine, quiet
from loadtest.jobs import report
from loadtest.jobs.measure import QUICK, WHOLE, measure

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest.jobs", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="half a minute, into .run/reports")
    parser.add_argument("--rounds", type=int, help="another number than five")
    options = parser.parse_args()
    amount = QUICK if options.quick else WHOLE
    if options.rounds:
        amount = replace(amount, rounds=options.rounds)
    watch = quiet.begin(quiet.REPORTS if amount == WHOLE else quiet.PARTS)
    began = time.monotonic()
    figures = uvloop.run(measure(amount))
    folder = watch.folder()
    report.write(figures, machine.describe(), folder)
    for problem in figures.problems:
        print(f"PROBLEM {problem}", file=sys.stderr)
    print(f"{folder.relative_to(ROOT)}/jobs.md, after {time.monotonic() - began:.0f} s")
    return 1 if figures.problems else 0


if __name__ == "__main__":
    # What it started ends with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main())
    except quiet.NotQuietError as error:
        sys.exit(f"{error}")
    except KeyboardInterrupt:
        sys.exit(130)

"""`python -m loadtest.opening [--quick]`: measures, writes the report.

Ends with status 1 where somebody does not stand where the lot says, or a script held Redis too
long.
"""

import argparse
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import uvloop

from loadtest import machine, quiet
from loadtest.opening import report
from loadtest.opening.measure import QUICK, WHOLE, measure

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest.opening", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="seconds, into .run/reports")
    parser.add_argument("--rounds", type=int, help="another number than five")
    options = parser.parse_args()
    amount = QUICK if options.quick else WHOLE
    if options.rounds:
        amount = replace(amount, rounds=options.rounds)
    watch = quiet.begin(quiet.REPORTS if amount == WHOLE else quiet.PARTS)
    began, rounds = time.monotonic(), []
    for number in range(amount.rounds):
        rounds.append(uvloop.run(measure(amount)))
        print(
            f"round {number + 1}: {report.longest(rounds)[-1]:.1f} ms, all answered after "
            f"{rounds[-1].answered_s:.1f} s (load {rounds[-1].load:.1f})",
            flush=True,
        )
    folder = watch.folder()
    report.write(rounds, amount, machine.describe(), folder)
    for problem in report.problems(rounds):
        print(f"PROBLEM {problem}", file=sys.stderr)
    print(f"{folder.relative_to(ROOT)}/opening.md, after {time.monotonic() - began:.0f} s")
    return 1 if report.problems(rounds) else 0


if __name__ == "__main__":
    # What it started ends with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main())
    except quiet.NotQuietError as error:
        sys.exit(f"{error}")
    except KeyboardInterrupt:
        sys.exit(130)

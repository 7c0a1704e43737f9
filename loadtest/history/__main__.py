"""`python -m loadtest.history [--quick]`: measures, writes the report, removes all it made.

Ends with status 1 where a look-up does not take exactly one partition of its table.
"""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from loadtest import machine, quiet
from loadtest.history import report
from loadtest.history.measure import measure_all
from loadtest.history.result import QUICK, WHOLE, Amount

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest.history", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about a minute, into .run/reports")
    parser.add_argument("--stays", type=int, help="another number than ten million")
    parser.add_argument("--home", type=Path, help="where the databases lie meanwhile")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    amount = QUICK if options.quick else Amount(stays=options.stays or WHOLE.stays)
    watch = quiet.begin(quiet.REPORTS if amount == WHOLE else quiet.PARTS)
    home = options.home or Path(tempfile.gettempdir())
    need_gb, free_gb = 3 + 0.7 * amount.stays / 1e6, shutil.disk_usage(home).free / 1e9
    if free_gb < need_gb:
        print(f"{home} has {free_gb:.0f} GB, {need_gb:.0f} are needed: --home", file=sys.stderr)
        return 1
    began = time.monotonic()
    result = measure_all(amount, home)
    folder = watch.folder()
    report.write(result, machine.describe(), folder)
    for problem in result.problems():
        print(f"PROBLEM {problem}", file=sys.stderr)
    print(f"{folder.relative_to(ROOT)}/history.md, after {time.monotonic() - began:.0f} s")
    return 1 if result.problems() else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except quiet.NotQuietError as error:
        sys.exit(f"{error}")
    except KeyboardInterrupt:
        sys.exit(130)

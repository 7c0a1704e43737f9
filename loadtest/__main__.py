"""`python -m loadtest NAME [--quick]`: measure, write the report, stop everything that was started.

Exit status 1 means that a measurement found a problem: it measured something else than it claims,
or a promise was broken.
"""

import argparse
import importlib
import signal
import sys
import time
from dataclasses import fields, replace

from loadtest import machine, quiet

ROOT = quiet.REPORTS.parents[1]
#: Each module has `WHOLE` and `QUICK`, how much is measured; `add_options(parser)`, options that
#: change the amount; and `measure_reports(amount)`, which yields a report when there is a new one.
MODULES = {
    "bench": "loadtest.bench.report",
    "cluster": "loadtest.cluster",
    "history": "loadtest.history.report",
    "jobs": "loadtest.jobs.report",
    "limits": "loadtest.limits.report",
    "opening": "loadtest.opening",
}


def main(words: list[str]) -> int:
    names = argparse.ArgumentParser(prog="python -m loadtest", description=__doc__, add_help=False)
    names.add_argument("name", choices=MODULES)
    name = names.parse_known_args(words[:1])[0].name
    module = importlib.import_module(MODULES[name])
    parser = argparse.ArgumentParser(prog=f"python -m loadtest {name}", description=module.__doc__)
    parser.add_argument("--quick", action="store_true", help="much less, into .run/reports")
    parser.add_argument("--rounds", type=int, help="another number of rounds, into .run/reports")
    module.add_options(parser)
    options = vars(parser.parse_args(words[1:]))
    amount = module.QUICK if options["quick"] else module.WHOLE
    of_amount = {field.name for field in fields(amount)}
    amount = replace(
        amount,
        **{key: value for key, value in options.items() if key in of_amount and value is not None},
    )
    # SIGTERM stops everything that was started, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    watch = quiet.begin(quiet.REPORTS if amount == module.WHOLE else quiet.PARTS)
    began, problems = time.monotonic(), {}
    for report in module.measure_reports(amount):
        folder = watch.folder()
        report.write(folder, machine.describe())
        problems[report.name] = report.problems
        print(
            f"{folder.relative_to(ROOT)}/{report.name}.md, after {time.monotonic() - began:.0f} s",
            flush=True,
        )
        final = report
    for target in final.targets:
        print(f"{target.what}: {target.figure}, wanted {target.wanted}")
    for problem in (problem for each in problems.values() for problem in each):
        print(f"PROBLEM {problem}", file=sys.stderr)
    return 1 if any(problems.values()) else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except quiet.NotQuietError as error:
        sys.exit(f"{error}")
    except KeyboardInterrupt:
        sys.exit(130)

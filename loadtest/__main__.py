"""`python -m loadtest NAME [--quick]`: measure, write the report, stop everything that was started.

Exit status 1 means that a measurement found a problem: it measured something else than it claims,
or a promise was broken.
"""

import argparse
import importlib
import signal
import sys
import time
from dataclasses import replace

from loadtest import quiet
from loadtest.amount import add_options

ROOT = quiet.REPORTS.parents[1]
#: Measurements. Each module has the amounts `WHOLE` and `QUICK`, and `measure_reports(amount)`,
#: which yields each report once it is ready.
MODULES = {
    "adaptive": "loadtest.adaptive",
    "bench": "loadtest.bench.compare",
    "client": "loadtest.client",
    "cluster": "loadtest.cluster",
    "history": "loadtest.history.measure",
    "jobs": "loadtest.jobs.measure",
    "limits": "loadtest.limits.measure",
    "opening": "loadtest.opening",
    "scaling": "loadtest.scaling",
    "waits": "loadtest.waits",
}


def main(arguments: list[str]) -> int:
    names = argparse.ArgumentParser(prog="python -m loadtest", description=__doc__, add_help=False)
    names.add_argument("name", choices=MODULES)
    name = names.parse_known_args(arguments[:1])[0].name
    module = importlib.import_module(MODULES[name])
    parser = argparse.ArgumentParser(prog=f"python -m loadtest {name}", description=module.__doc__)
    parser.add_argument("--quick", action="store_true", help="much less, into .run/reports")
    parser.add_argument("--rounds", type=int, help="another number of rounds, into .run/reports")
    add_options(parser, module.WHOLE)
    options = vars(parser.parse_args(arguments[1:]))
    amount = module.QUICK if options.pop("quick") else module.WHOLE
    amount = replace(amount, **{k: value for k, value in options.items() if value is not None})
    # On SIGTERM, stop everything that was started, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    quiet_watch = quiet.begin(quiet.REPORTS if amount == module.WHOLE else quiet.PARTS)
    start_s, problems = time.monotonic(), {}
    for report in module.measure_reports(amount):
        folder = quiet_watch.folder()
        report.write(folder)
        problems[report.name] = report.problems
        print(
            f"{folder.relative_to(ROOT)}/{report.name}.md,"
            f" after {time.monotonic() - start_s:.0f} s",
            flush=True,
        )
        last_report = report
    for target in last_report.targets:
        print(f"{target.what}: {target.figure}, wanted {target.wanted}")
    for problem in (problem for listed in problems.values() for problem in listed):
        print(f"PROBLEM {problem}", file=sys.stderr)
    return 1 if any(problems.values()) else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except quiet.NotQuietError as error:
        sys.exit(f"{error}")
    except KeyboardInterrupt:
        sys.exit(130)

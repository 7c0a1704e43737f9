"""Listeners to Locust's events: options, mix, shape, merging of reports, and the verdict."""

import json
import time
import urllib.request
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gevent
from locust import events
from locust.env import Environment
from locust.runners import MasterRunner, WorkerRunner
from locust.stats import StatsEntry

from loadtest.ledger import LEDGER
from loadtest.options import add_options, options_of, read_mix
from loadtest.verdict import FIGURES_BEGIN, WORDS, Finding, judge, peak_inside

PERCENTILES = (50, 95, 99)
#: Messages between processes: a worker's last report, and the start of the measured time.
_LAST = "waitroom_last"
_MEASURE = "waitroom_measure"

#: Numbers of sessions, cap and waiting visitors, read from the ops listener once a second.
_counts: list[tuple[int, int, int]] = []


def listen() -> None:
    hooks: tuple[tuple[Any, Any], ...] = (
        (events.init_command_line_parser, add_options),
        (events.init, _on_init),
        (events.test_start, _on_test_start),
        (events.test_stop, _on_test_stop),
        (events.request, _on_request),
        (events.user_error, _on_user_error),
        (events.report_to_master, _on_report_to_master),
        (events.worker_report, _on_worker_report),
        (events.quitting, _on_quitting),
    )
    for hook, listener in hooks:
        hook.add_listener(listener)


def _on_init(environment: Any, **_: Any) -> None:
    options = options_of(environment)
    weights = read_mix(options.waitroom_mix)
    users = {user.journey: user for user in environment.user_classes}
    if unknown := set(weights) - set(users):
        raise ValueError(f"waitroom-mix: {sorted(unknown)} are none of {sorted(users)}")
    for name, user in users.items():
        user.weight = weights.get(name, 0)
    environment.user_classes = [user for user in users.values() if user.weight]
    runner = environment.runner
    if isinstance(runner, MasterRunner):
        runner.register_message(_LAST, _on_last)
    if isinstance(runner, WorkerRunner):
        runner.register_message(_MEASURE, _reset_figures)
    elif options.waitroom_shape:
        from loadtest.shapes import read_shape  # noqa: PLC0415 - locust would list it as its own

        environment.shape_class = read_shape(options.waitroom_shape)
        environment.shape_class.runner = runner


def _on_test_start(environment: Environment, **_: Any) -> None:
    LEDGER.clear()
    if isinstance(environment.runner, WorkerRunner):
        return
    _counts.clear()
    options = options_of(environment)
    if options.waitroom_ops:
        gevent.spawn(_poll_room, environment)
    if options.waitroom_warm_up:
        gevent.spawn_later(options.waitroom_warm_up, _start_figures, environment)


def _start_figures(environment: Environment) -> None:
    print(FIGURES_BEGIN, flush=True)
    if isinstance(environment.runner, MasterRunner):
        environment.runner.send_message(_MEASURE)
    environment.stats.reset_all()


def _reset_figures(environment: Environment, **_: Any) -> None:
    environment.stats.reset_all()


def _poll_room(environment: Environment) -> None:
    options = options_of(environment)
    request = urllib.request.Request(
        f"{options.waitroom_ops.rstrip('/')}/admin/rooms/{options.waitroom_room}",
        headers={"Authorization": f"Bearer {options.waitroom_admin_token}"},
    )
    while environment.runner is not None and environment.runner.state != "stopped":
        try:
            with urllib.request.urlopen(request, timeout=5) as response:
                room = json.load(response)
        except OSError:
            pass  # A replica may be down. The verdict fails if no replica ever responded.
        else:
            cap = room["settings"]["total_active_users"]
            _counts.append((room["active"], cap, room["waiting"]))
        gevent.sleep(1)


def _on_request(name: str, exception: BaseException | None, **_: Any) -> None:
    if exception is not None:
        LEDGER.record_error(f"{name}: {exception}")


def _on_user_error(exception: BaseException, **_: Any) -> None:
    LEDGER.record_error(f"a journey broke: {type(exception).__name__}: {exception}")


def _on_report_to_master(data: dict[str, Any], **_: Any) -> None:
    data["waitroom"] = LEDGER.take_report()


def _on_worker_report(data: dict[str, Any], **_: Any) -> None:
    if "waitroom" in data:
        LEDGER.add_report(data["waitroom"])


def _on_test_stop(environment: Environment, **_: Any) -> None:
    """Send a worker's last report now, because Locust's own reports would arrive too late."""
    runner = environment.runner
    if isinstance(runner, WorkerRunner):
        data: dict[str, Any] = {}
        environment.events.report_to_master.fire(client_id=runner.client_id, data=data)  # type: ignore[no-untyped-call]
        runner.send_message(_LAST, data)


def _on_last(environment: Environment, msg: Any, **_: Any) -> None:
    environment.events.worker_report.fire(client_id=msg.node_id, data=msg.data)  # type: ignore[no-untyped-call]


def _on_quitting(environment: Environment, **_: Any) -> None:
    if isinstance(environment.runner, WorkerRunner):
        return
    options = options_of(environment)
    log = options.waitroom_origin_log
    inside = None
    if log:
        with Path(log).open(encoding="utf-8", errors="replace") as lines:
            inside = peak_inside(lines)
    findings = judge(
        requests=environment.stats.total.num_requests,
        errors=LEDGER.errors,
        stays=list(LEDGER.stays.values()),
        sessions=[(active, cap) for active, cap, _ in _counts] if options.waitroom_ops else None,
        inside=inside,
        cap=options.waitroom_cap or None,
    )
    print("\nWaiting room")
    for finding in findings:
        print(f"  {WORDS[finding.kept]:10}  {finding.promise}: {finding.text}")
    fine = {True, None} if options.waitroom_allow_untested else {True}
    environment.process_exit_code = 0 if {finding.kept for finding in findings} <= fine else 1
    if options.waitroom_report:
        report = _describe(environment, findings, inside)
        Path(options.waitroom_report).write_text(json.dumps(report, indent=1) + "\n")


def _describe(
    environment: Environment, findings: list[Finding], inside: int | None
) -> dict[str, Any]:
    total = environment.stats.total
    seconds = (total.last_request_timestamp or time.time()) - total.start_time
    kinds = {entry.name: _figures(entry) for entry in environment.stats.entries.values()}
    return {
        "verdict": WORDS[min((each.kept for each in findings), key=[False, None, True].index)],
        "findings": [asdict(each) for each in findings],
        "seconds": seconds,
        "requests_per_s": total.num_requests / seconds if seconds > 0 else 0.0,
        "total": _figures(total),
        "kinds": kinds,
        "errors": dict(LEDGER.errors),
        "peak_sessions": max((active for active, _, _ in _counts), default=None),
        "peak_waiting": max((waiting for _, _, waiting in _counts), default=None),
        "peak_inside": inside,
    }


def _figures(entry: StatsEntry) -> dict[str, float]:
    return {
        "requests": entry.num_requests,
        "failures": entry.num_failures,
        "mean_ms": entry.avg_response_time,
        **{f"p{p}_ms": entry.get_response_time_percentile(p / 100) for p in PERCENTILES},
    }

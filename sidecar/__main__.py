"""The process of a command: `waitroom`, or `python -m sidecar`."""

import os
import signal

_INTERRUPTED = 130


def main() -> None:
    """Run the command. Ctrl-C ends it with 130 and no traceback, also during imports and exit,
    unless the process was started to ignore Ctrl-C."""
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    _leave_at_ctrl_c(is_ignored)
    from sidecar.cli import main as run  # noqa: PLC0415 - takes long

    if not is_ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run()
    except KeyboardInterrupt:
        os._exit(_INTERRUPTED)
    finally:
        _leave_at_ctrl_c(is_ignored)


def _leave_at_ctrl_c(is_ignored: bool) -> None:
    if not is_ignored:
        signal.signal(signal.SIGINT, _leave)


def _leave(_number: int, _frame: object) -> None:
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()

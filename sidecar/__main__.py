"""The entry point of `waitroom` and of `python -m sidecar`."""

import os
import signal

_CTRL_C_EXIT_CODE = 130


def main() -> None:
    """Run the command. Ctrl-C ends the process with exit code 130 and no traceback, also during
    imports and at exit, unless the process has been started with SIGINT ignored."""
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    _exit_on_ctrl_c(is_ignored)
    from sidecar.cli import main as run  # noqa: PLC0415 - slow to import

    if not is_ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run()
    except KeyboardInterrupt:
        os._exit(_CTRL_C_EXIT_CODE)
    finally:
        _exit_on_ctrl_c(is_ignored)


def _exit_on_ctrl_c(is_ignored: bool) -> None:
    if not is_ignored:
        signal.signal(signal.SIGINT, _exit_now)


def _exit_now(_number: int, _frame: object) -> None:
    os._exit(_CTRL_C_EXIT_CODE)


if __name__ == "__main__":
    main()

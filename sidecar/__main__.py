"""The entry point of `waitroom` and of `python -m sidecar`."""

import os
import signal

_CTRL_C_EXIT_CODE = 130


def main() -> None:
    """Run the command. Ctrl-C ends the process with exit code 130 and no traceback, even during
    imports and at exit. If the process was started with SIGINT ignored, it stays ignored."""
    is_sigint_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    _exit_on_ctrl_c(is_sigint_ignored)
    from sidecar.cli import main as run  # noqa: PLC0415 - slow to import

    if not is_sigint_ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run()
    except KeyboardInterrupt:
        os._exit(_CTRL_C_EXIT_CODE)
    finally:
        _exit_on_ctrl_c(is_sigint_ignored)


def _exit_on_ctrl_c(is_sigint_ignored: bool) -> None:
    if not is_sigint_ignored:
        signal.signal(signal.SIGINT, _exit_now)


def _exit_now(_signal_number: int, _frame: object) -> None:
    os._exit(_CTRL_C_EXIT_CODE)


if __name__ == "__main__":
    main()

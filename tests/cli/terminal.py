"""Runs a command in a pseudo-terminal."""

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from contextlib import AbstractContextManager

from tests.support.processes import CLEAN, Forked

#: Control sequences of a terminal, for example for colours or for the cursor.
CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]m")
#: The control sequence with which a full-screen program begins each frame.
HOME = "\x1b[H"


class Terminal(AbstractContextManager["Terminal"]):
    """A running command whose standard streams are a pseudo-terminal, except those in `others`."""

    def __init__(self, command, *, columns=80, lines=24, environment=None, **others):
        self._own, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        ends = {"stdin": theirs, "stdout": theirs, "stderr": theirs, **others}
        self.text = ""
        terminal = {"TERM": "xterm-256color", "LINES": "", "COLUMNS": ""}
        self._process = Forked(
            command, **ends, terminal=True, env={**CLEAN, **terminal, **(environment or {})}
        )
        os.close(theirs)

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(10)
        os.close(self._own)

    def read(self, timeout_s: float = 0.1) -> bool:
        """Read output for at most `timeout_s`. Return False if the command has ended."""
        if select.select([self._own], [], [], timeout_s)[0]:
            try:
                self.text += os.read(self._own, 65_536).decode(errors="replace")
            except OSError:  # The command has ended.
                return False
        return True

    def wait_for(self, pattern: str, timeout_s: float = 20) -> list[str]:
        """Wait until a frame on the screen matches. Return its lines without control sequences."""
        self.text = self.text.rpartition(HOME)[2]
        end = time.monotonic() + timeout_s
        while time.monotonic() < end and self.read():
            # The last frame may be incomplete.
            for frame in self.text.split(HOME)[:-1]:
                plain = CONTROLS.sub("", frame)
                if re.search(pattern, plain):
                    return plain.splitlines()
        raise AssertionError(f"{pattern} did not appear: {self.text[-2000:]}")

    def press(self, key: str) -> None:
        """Send a key, or several, to the command."""
        os.write(self._own, key.encode())

    def terminate(self) -> None:
        self._process.terminate()

    def end(self, timeout_s: float = 20) -> int:
        """Wait until the command ends, and read its output into `text`. Return the exit code."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end and self.read():
            pass
        return self._process.wait(max(1, end - time.monotonic()))

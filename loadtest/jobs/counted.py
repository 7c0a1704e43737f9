"""`python -m loadtest.jobs.counted FILE COMMAND…`: runs the waitroom command, and writes the number
of its SQL statements to FILE."""

import os
import sys
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

from sidecar.cli import main


def count_statements(file: str) -> None:
    handle, number = os.open(file, os.O_CREAT | os.O_WRONLY, 0o644), 0

    def add(*_: Any) -> None:
        nonlocal number
        number += 1
        os.pwrite(handle, str(number).encode(), 0)

    os.pwrite(handle, b"0", 0)
    event.listen(Engine, "before_cursor_execute", add)


if __name__ == "__main__":
    count_statements(sys.argv[1])
    main(sys.argv[2:])

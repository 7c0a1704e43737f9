"""`python -m loadtest.jobs.counted FILE COMMAND…`: the waitroom command; FILE has the number of
statements that it sent to SQL."""

import os
import sys
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

from sidecar.cli import main


def count(file: str) -> None:
    handle, number = os.open(file, os.O_CREAT | os.O_WRONLY, 0o644), 0

    def add(*_: Any) -> None:
        nonlocal number
        number += 1
        os.pwrite(handle, str(number).encode(), 0)

    os.pwrite(handle, b"0", 0)
    event.listen(Engine, "before_cursor_execute", add)


if __name__ == "__main__":
    count(sys.argv[1])
    main(sys.argv[2:])

"""Writes files atomically."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

#: The mode of a file that only its owner may read and write.
PRIVATE_MODE = 0o600


@contextlib.contextmanager
def atomic_write(path: Path, *, mode: int = PRIVATE_MODE) -> Iterator[IO[bytes]]:
    """Open a temporary file for writing, and rename it to `path` when the block ends without an
    error, so that no process reads half a file. Raises OSError."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, mode)
            yield file
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise

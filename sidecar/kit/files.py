"""Replaces files atomically."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

#: The mode of a file that only its owner may read.
SECRET = 0o600


@contextlib.contextmanager
def replacing(path: Path, *, mode: int = SECRET) -> Iterator[IO[bytes]]:
    """Open a new file that replaces `path` when the block ends without an error, so that no process
    reads half a file. By default no other user can read the file. Raises OSError."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, mode)
            yield file
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise

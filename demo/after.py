"""`after.py HTTP-ADDRESS-OR-SOCKET… -- COMMAND…`: wait for servers, then execute a command."""

import os
import sys
import time
import urllib.request
from pathlib import Path

PATIENCE_S = 60


def main(arguments: list[str]) -> None:
    end = arguments.index("--")
    needed, command = arguments[:end], arguments[end + 1 :]
    give_up = time.monotonic() + PATIENCE_S
    while missing := [address for address in needed if not answers(address)]:
        if time.monotonic() > give_up:
            sys.exit(f"After {PATIENCE_S} s there is no answer yet from {' '.join(missing)}")
        time.sleep(0.1)
    os.execv(command[0], command)


def answers(address: str) -> bool:
    if not address.startswith("http:"):
        return Path(address).is_socket()
    try:
        with urllib.request.urlopen(address, timeout=2):
            return True
    except OSError:
        return False


if __name__ == "__main__":
    main(sys.argv[1:])

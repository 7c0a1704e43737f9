"""A user who first does work that only one user may do at a time, and then leases a title.

`preparer.py URL HOLDER MARK` prints every response. The folder MARK exists while a user does that
work. A concurrency limit, "prepare", allows one user at a time.
"""

import sys
import time
from pathlib import Path

from tests.support.service import Api, print_document

#: The longest pause between two requests for the permit. Its holder may release it at any time.
ASK_S = 0.05
PREPARES_S = 0.1


def main(url: str, holder: str, mark: Path) -> None:
    api = Api(url)
    while True:
        status, permit = api.call("POST", "/limits/prepare/acquire", {"id": holder})
        print_document(permit)
        if status == 200:
            break
        time.sleep(min(ASK_S, permit["wait_seconds"]))
    mark.mkdir()  # fails if another user prepares
    time.sleep(PREPARES_S)
    mark.rmdir()
    api.call("POST", "/limits/prepare/release", {"permit": permit["permit"]})
    # The lease comes last, so that its term does not pass while the user waits for the permit.
    _, lease = api.call("POST", f"/leases/title/of-{holder}", {"holder": holder})
    print_document(lease)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))

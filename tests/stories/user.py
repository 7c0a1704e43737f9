"""A user of one resource, who requests a lease and polls until it is granted.

`user.py URL RESOURCE HOLDER` begins at the first line of its input. When it has the lease, a line
"release" releases the lease, and a line "renew" renews it.
"""

import sys
import time

from tests.support.service import Api, print_document


def main(url: str, resource: str, holder: str) -> None:
    api, path = Api(url), f"/leases/{resource}"
    sys.stdin.readline()
    _, lease = api.call("POST", path, {"holder": holder})
    print_document(lease)
    while lease["state"] == "waiting":
        time.sleep(lease["refresh_after_seconds"])
        _, lease = api.call("GET", f"{path}?holder={holder}")
        print_document(lease)
    for word in sys.stdin:
        if word.strip() == "renew":
            status, said = api.call("PUT", path, {"holder": holder, "fence": lease["fence"]})
        else:
            status, said = api.call("DELETE", f"{path}?holder={holder}&fence={lease['fence']}")
        print_document({"status": status, **said})


if __name__ == "__main__":
    main(*sys.argv[1:])

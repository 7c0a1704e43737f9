"""A user who requests the lease of a resource, and polls until it is granted.

`user.py URL RESOURCE HOLDER` begins when it reads the first line of its standard input. When it has
the lease, it releases the lease for each line "release", and renews it for each line "renew".
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
            status, body = api.call("PUT", path, {"holder": holder, "fence": lease["fence"]})
        else:
            status, body = api.call("DELETE", f"{path}?holder={holder}&fence={lease['fence']}")
        print_document({"status": status, **body})


if __name__ == "__main__":
    main(*sys.argv[1:])

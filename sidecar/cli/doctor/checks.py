"""All checks, in the order of the report, and the function that runs them."""

import time
from collections.abc import Callable, Iterator

from yarl import URL

from sidecar.cli.doctor import cookie, gate, surroundings
from sidecar.cli.doctor.findings import Finding
from sidecar.cli.doctor.visit import Options, Visit, visit_site

#: All checks in the order of the report: earlier findings explain later ones.
CHECKS: tuple[Callable[[Visit], Iterator[Finding]], ...] = (
    gate.site,
    gate.sidecar,
    gate.replicas,
    gate.room,
    surroundings.store,
    gate.gate,
    gate.spellings,
    gate.front_controller,
    gate.error_page,
    gate.other_origins,
    gate.waiting_page,
    gate.assets,
    gate.policy,
    cookie.presence,
    cookie.attributes,
    cookie.cached,
    cookie.heartbeat,
    cookie.recognition,
    cookie.stamps,
    surroundings.encryption,
    surroundings.ops_port,
    surroundings.edge_port,
    surroundings.ops_through_site,
    surroundings.address,
    surroundings.verdicts,
    surroundings.clocks,
    cookie.leaving,
)


async def diagnose(
    address: str, options: Options | None = None, *, now_s: Callable[[], float] = time.time
) -> list[Finding]:
    """Visit a page and return the findings. Raises ValueError if `address` is not a page's URL."""
    url = URL(address if "://" in address else f"http://{address}")
    if url.scheme not in {"http", "https"} or not url.host:
        raise ValueError(f"{address} is no address of a page; write http://shop.example/")
    visit = await visit_site(url, options or Options(), now_s=now_s)
    checks = CHECKS
    if not visit.prefetch.status:
        checks = (gate.site,)
    elif visit.is_limited:  # the other replies may be nginx's refusals
        checks = (gate.site, gate.limited)
    return [finding for check in checks for finding in check(visit)]

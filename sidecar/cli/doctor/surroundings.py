"""Checks of the gate's surroundings: ports, addresses, clocks, encryption, Redis."""

import contextlib
import ipaddress
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from stat import S_IWGRP, S_IWOTH

from sidecar.cli.doctor.findings import Finding, find
from sidecar.cli.doctor.visit import FALSE_ADDRESS, Visit
from sidecar.storage.redis.eviction import SAFE, UNSEEN

#: How far clocks may differ, in seconds.
CLOCK_TOLERANCE_S = 30


def encryption(visit: Visit) -> Iterator[Finding]:
    """Check that the site uses https."""
    if visit.page.scheme != "https" and not visit.is_loopback:
        yield find("plain_http")


def ops_port(visit: Visit) -> Iterator[Finding]:
    """Check that health, metrics and administration are private."""
    is_open = visit.ops.document.get("status") == "ok"
    name = "ops_here" if visit.is_loopback else "ops_open"
    yield find(name if is_open else "ops_closed", port=visit.options.ops_port)


def edge_port(visit: Visit) -> Iterator[Finding]:
    """Check that only nginx reaches the edge port, which believes the addresses in requests."""
    if "X-Waitroom-State" in visit.edge.headers and not visit.is_loopback:
        yield find("edge_open", port=visit.options.edge_port)


def ops_through_site(visit: Visit) -> Iterator[Finding]:
    """Check that the site does not proxy requests to the ops listener."""
    titles = {"A token is needed", "Administration is off"}
    for path, reply in visit.through_site.items():
        if "\nwaitroom_" in reply.body or reply.document.get("title") in titles:
            yield find("ops_through_site", path=path)


def verdicts(visit: Visit) -> Iterator[Finding]:
    """Check that only root can write to the folders above the one of nginx's verdicts."""
    for folder in visit.verdicts.parents if visit.verdicts else ():
        with contextlib.suppress(OSError):
            status = folder.stat()
            if status.st_uid or status.st_mode & (S_IWGRP | S_IWOTH):
                yield find("verdicts", folder=visit.verdicts, parent=folder)
                return


def store(visit: Visit) -> Iterator[Finding]:
    """Check that all replicas share one store, and that it outlives them."""
    stores = visit.stores
    in_memory = [name for name in stores if name.startswith("memory")]
    if len(stores) > 1:
        memory = ", each in its own memory" if len(in_memory) == len(stores) else ""
        yield find("stores", count=len(stores), memory=memory)
    elif stores:
        yield find("in_memory" if in_memory else "one_store")
    policy = visit.poll.document.get("eviction")
    if policy not in {None, SAFE}:
        yield find("eviction_unseen" if policy == UNSEEN else "evicts", eviction=policy)


def address(visit: Visit) -> Iterator[Finding]:
    """Check that the sidecar sees the visitor's address, not a balancer's or a forged one."""
    client = visit.poll.document.get("client")
    if not isinstance(client, str):
        return
    parsed = _parse_address(client)
    is_public = parsed is not None and parsed.is_global
    if visit.false_address.document.get("client") == FALSE_ADDRESS:
        yield find("believes_visitors" if is_public else "believes_us", client=client)
    elif client == visit.own_address:
        yield find("own_address", client=client)
    else:
        # Visitors of a public site do not have private addresses.
        is_local = parsed is not None and parsed.is_loopback
        is_public_site = any(address.is_global for address in visit.addresses)
        is_implausible = not visit.is_loopback if is_local else is_public_site
        is_right = parsed is not None and (is_public or not is_implausible)
        yield find("address" if is_right else "balancer", client=client)


def _parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def clocks(visit: Visit) -> Iterator[Finding]:
    """Check that the clocks of nginx and of the store agree with this machine's."""
    date, updated_at = visit.poll.headers.get("Date"), visit.poll.document.get("updated_at")
    times: dict[str, datetime] = {}
    with contextlib.suppress(ValueError):
        times["nginx"] = parsedate_to_datetime(str(date))
    with contextlib.suppress(ValueError):
        times["the store (Redis)"] = datetime.fromisoformat(str(updated_at))
    offsets = {name: _utc_s(time) - visit.poll.at_s for name, time in times.items()}
    wrong = {name: by_s for name, by_s in offsets.items() if abs(by_s) > CLOCK_TOLERANCE_S}
    if offsets and not wrong:
        yield find("clocks")
    elif len(wrong) == 2 and max(wrong.values()) - min(wrong.values()) <= CLOCK_TOLERANCE_S:
        yield find("all_clocks", by=_format_offset(wrong["nginx"]))
    else:
        for name, by_s in wrong.items():
            yield find("clock", name=name, by=_format_offset(by_s))


def _utc_s(time: datetime) -> float:
    return time.replace(tzinfo=time.tzinfo or UTC).timestamp()


def _format_offset(seconds: float) -> str:
    return f"{abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'}"

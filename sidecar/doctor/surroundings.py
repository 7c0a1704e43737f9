"""Findings about what is around the gate: ports, addresses, clocks, encryption."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from sidecar.doctor.finding import Finding, ok, problem, warning
from sidecar.doctor.visit import FALSE_ADDRESS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.doctor.visit import Visit

#: Clocks may differ by this much, seconds.
CLOCK_TOLERANCE_S = 30


def encryption(seen: Visit) -> Iterator[Finding]:
    if seen.page.scheme != "https" and not seen.is_loopback:
        yield warning(
            "the site is on plain http: whoever listens can take a visitor's place",
            "Serve it by https.",
        )


def ops_port(seen: Visit) -> Iterator[Finding]:
    """Health, metrics and administration are private."""
    is_open = seen.ops.document.get("status") == "ok"
    port = seen.options.ops_port
    if is_open and not seen.is_loopback:
        yield problem(
            f"the sidecar's ops port {port} is open to the outside",
            "Let `ops_listen` be 127.0.0.1 or a private address, or close the port in the "
            "firewall.",
        )
    elif is_open:
        yield ok(
            f"the ops port {port} answers on this machine, as it should; only a visit from "
            "another machine tells whether the world reaches it"
        )
    else:
        yield ok(f"the ops port {port} is closed to us")


def edge_port(seen: Visit) -> Iterator[Finding]:
    """Only nginx talks to the edge: it takes nginx's word for a visitor's address."""
    if "X-Waitroom-State" in seen.edge.headers and not seen.is_loopback:
        yield problem(
            f"the sidecar's edge port {seen.options.edge_port} is open to the outside",
            "Let `edge_listen` be 127.0.0.1, a private address or a unix socket, or close the "
            "port in the firewall.",
        )


def ops_through_site(seen: Visit) -> Iterator[Finding]:
    """The site does not hand the ops listener on to everybody."""
    titles = {"A token is needed", "Administration is off"}
    for path, reply in seen.through_site.items():
        if "\nwaitroom_" in reply.body or reply.document.get("title") in titles:
            yield problem(
                f"{path} of the sidecar is open to everybody through the site",
                "Take the `proxy_pass` to `ops_listen` out of nginx, or let "
                "only your own addresses in with `allow` and `deny`.",
            )


def store(seen: Visit) -> Iterator[Finding]:
    """All replicas share one store, which outlives them."""
    stores, in_memory = seen.stores, [name for name in seen.stores if name.startswith("memory")]
    fix = "Let `store` be the same for all, such as `redis://127.0.0.1:6379/0` (WAITROOM_STORE)."
    if len(stores) > 1:
        which = ", each in its own memory" if len(in_memory) == len(stores) else ""
        yield problem(
            f"replicas do not share a store: {len(stores)} of them answered{which}; each has a "
            "line of its own and lets in as many as the cap says",
            fix,
        )
    elif in_memory:
        yield warning(
            "the replica keeps its rooms in its own memory: they are gone when it stops, and a "
            "second replica would have lines and caps of its own",
            fix,
        )
    elif stores:
        yield ok("the replicas that answered share a store")


def address(seen: Visit) -> Iterator[Finding]:
    """The sidecar is told the visitor's address, not a balancer's and not a made-up one."""
    told, told_falsely = (reply.document.get("client") for reply in (seen.door, seen.false_address))
    if not isinstance(told, str):
        return
    if told_falsely == FALSE_ADDRESS:
        text = "nginx believes X-Forwarded-For or X-Real-IP"
        fix = "Let `set_real_ip_from` name your balancers only."
        if _is_public(told):
            yield problem(f"{text} of any visitor", fix)
        else:
            yield warning(
                f"{text} from here ({told})",
                f"{fix} If this machine is one of them, ask again from outside.",
            )
        return
    if told == seen.own_address:
        yield ok(f"the sidecar is told our address, {told}")
    elif _is_ip(told) and (_is_public(told) or not _should_be_other(seen, told)):
        yield ok(f"the sidecar is told that we are {told}")
    else:
        yield warning(
            f"the sidecar is told that we are {told}, which looks like a balancer's address",
            "All visitors look like one. Write `set_real_ip_from <the balancer>;` and "
            "`real_ip_header X-Forwarded-For;` in nginx.",
        )


def _should_be_other(seen: Visit, told: str) -> bool:
    """Whether a visitor of such a site cannot have this private address."""
    if ipaddress.ip_address(told).is_loopback:
        return not seen.is_loopback
    return any(address.is_global for address in seen.addresses)


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_public(text: str) -> bool:
    return _is_ip(text) and ipaddress.ip_address(text).is_global


def clocks(seen: Visit) -> Iterator[Finding]:
    """The clocks of nginx and of the store agree with this machine's."""
    offsets: dict[str, float] = {}
    nginx_s = _from_date(seen.door.headers.get("Date"))
    store_s = _from_iso(seen.door.document.get("updated_at"))
    if nginx_s is not None:
        offsets["nginx"] = nginx_s - seen.door.at_s
    if store_s is not None:
        offsets["the store (Redis)"] = store_s - seen.door.at_s
    off = {name: by for name, by in offsets.items() if abs(by) > CLOCK_TOLERANCE_S}
    if not off:
        if offsets:
            yield ok("the clocks agree")
        return
    agree = len(off) == 2 and max(off.values()) - min(off.values()) <= CLOCK_TOLERANCE_S
    if agree:
        by = _ahead(off["nginx"])
        yield warning(
            f"the site's clocks are {by} this machine's",
            "One of them is wrong, perhaps this one: let all keep time by NTP.",
        )
        return
    for name, by_s in off.items():
        yield warning(
            f"the clock of {name} is {_ahead(by_s)} this machine's",
            "Let its machine keep time by NTP.",
        )


def _ahead(seconds: float) -> str:
    return f"{abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'}"


def _from_date(text: str | None) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() if text else None
    except ValueError:
        return None


def _from_iso(text: object) -> float | None:
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found.replace(tzinfo=found.tzinfo or UTC).timestamp() if found else None

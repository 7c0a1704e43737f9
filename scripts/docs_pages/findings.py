"""Generator of docs/doctor-findings.md from the texts of `waitroom doctor`."""

import re
from pathlib import Path

from sidecar.cli.doctor import findings
from sidecar.cli.doctor.findings import Level, get_finding

_INTRODUCTION = """\
# The doctor's findings

[The doctor](doctor.md) checks in this order, and prints these texts, with your addresses, rooms
and numbers."""
_GROUP = re.compile(r"(?<=\n\n)# (.+)\.\n\n|^\[(\w+)\]$", re.MULTILINE)
_EXAMPLES = {
    "address": "unix:/run/waitroom/edge-2.sock",
    "back": "waitroom rooms set shop total_active_users=null",
    "by": "45 s ahead of",
    "client": "192.0.2.7",
    "count": 2,
    "directive": "script-src",
    "eviction": "allkeys-lru",
    "error": "connection refused",
    "folder": "/dev/shm/waitroom",  # noqa: S108 - what the finding is about
    "header": "max-age=600",
    "memory": "",
    "more": "",
    "name": "waitroom_shop",
    "names": "waiting.css (404)",
    "option": "tickets",
    "parent": "/dev/shm",  # noqa: S108 - what the finding is about
    "page": "https://shop.example/tickets",
    "path": "/metrics",
    "policy": "script-src 'none'",
    "port": 8401,
    "room": "shop",
    "seconds": 10,
    "secure": ", Secure",
    "state": "waiting",
    "states": "not_queued",
    "status": 404,
    "visit": "this visit was let in",
    "why": "A `return` or `rewrite` in the same location answers before the gate.",
    "wrong": "without HttpOnly",
}
#: Other values, for the findings in which those of _EXAMPLES make no sense.
_OTHERS = {
    "odd_path": {"path": "//health/tickets"},
    "bare_error_page": {"path": "/assets/waitroom-doctor"},
    "unheard": {"inside": 40},
    "changed": {"what": "shop: total_active_users: 1, file: 300"},
    "untrusted": {"error": "its certificate is not trusted"},
    "sidecar_fails": {"status": 500},
    "no_sidecar": {"status": 502},
    "refused": {"status": 403},
    "bare_refusal": {"status": 401},
    "refused_page": {"status": 403},
    "retry_after": {"status": 503},
    "no_retry_after": {"status": 503},
    "cannot_join": {"status": 403},
    "no_heartbeat": {"error": 404},
    "edge_open": {"port": 8400},
    "believes_us": {"client": "10.0.0.4"},
    "balancer": {"client": "10.0.0.4"},
    "cached": {"name": "the waiting page"},
    "clock": {"name": "nginx"},
    "no_post": {"error": 405},
    "not_left": {"error": "no answer in time"},
}


def page() -> str:
    parts, rights = [_INTRODUCTION], list[str]()
    for heading, name in _GROUP.findall(Path(findings.__file__).with_suffix(".ini").read_text()):
        if heading:
            parts += [*_all_right(rights), f"## {heading}"]
            rights = []
            continue
        found = get_finding(name, **_EXAMPLES | _OTHERS.get(name, {}))
        if found.level is Level.OK:
            rights.append(f"- {found.what}")
        else:
            parts.append(f"- **{found.level}:** {found.what}\n\n    {found.fix}")
    return "\n\n".join([*parts, *_all_right(rights)]) + "\n"


def _all_right(texts: list[str]) -> list[str]:
    return ["**ok:**", "\n".join(texts)] if texts else []

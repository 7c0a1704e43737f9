"""Creates signed passes, tickets and stamp cookies with any age and secret."""

import socket
import time

from sidecar.gate.nginx_key import NginxKey
from sidecar.gate.stamps import compute_stamp_md5
from sidecar.kit.clock import StoreClock
from sidecar.visitors.model import Pass, Ticket
from sidecar.visitors.tokens import Tokens, new_visitor
from tests.support.site import SECRET

SESSION_S = 300
KEY = NginxKey.derive_from(SECRET)
#: nginx' $hostname is in lower case.
HOST = socket.gethostname().lower()


def signed_pass(room: str, *, secret: str = SECRET, age_s: int = 0) -> str:
    """Create a signed pass that is valid for five minutes, and was renewed `age_s` ago."""
    tokens, now_ms = _make_signer(room, secret, age_s)
    pass_ = Pass(new_visitor(), now_ms * 1000, now_ms, 0, now_ms, renewed_ms=now_ms + 1,
                 expires_ms=now_ms + SESSION_S * 1000)  # fmt: skip
    return tokens.write(pass_)


def signed_ticket(room: str, *, secret: str = SECRET, age_s: int = 0) -> str:
    """Create the signed ticket of a visitor who joined `age_s` ago."""
    tokens, now_ms = _make_signer(room, secret, age_s)
    return tokens.write(Ticket(new_visitor(), now_ms * 1000, now_ms, 0))


def _make_signer(room: str, secret: str, age_s: int) -> tuple[Tokens, int]:
    clock = StoreClock()
    clock.observe(clock.now_ms() - age_s * 1000)
    return Tokens(room, [secret], clock), clock.now_ms()


def stamp(room: str, *, secret: str = KEY.secret, host: str = HOST, in_s: int = 1) -> str:
    """Create a stamp, with which nginx admits a visitor to a room without asking a replica.
    It expires in `in_s` seconds."""
    until = int(time.time()) + in_s
    return f"{compute_stamp_md5(until, room, host, secret)}.{until}.{KEY.id}"

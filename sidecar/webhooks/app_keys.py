"""Where handlers find the webhooks in their application, and the one that a request names."""

from aiohttp import web

from sidecar.webhooks.service import Receiver, Webhooks

WEBHOOKS: web.AppKey[Webhooks] = web.AppKey("webhooks", Webhooks)


def receiver_of(request: web.Request) -> Receiver:
    """Raises UnknownNameError."""
    return request.app[WEBHOOKS].get(request.match_info["webhook"])

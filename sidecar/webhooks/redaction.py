"""Hides a webhook's secrets in a response, because the receiver may repeat them."""

import html

from yarl import URL

from sidecar.kit.signing import STANDARD_PREFIX
from sidecar.webhooks.settings import Webhook

#: How many characters of a response are stored.
RESPONSE_LENGTH = 500

#: The length of the shortest part of a URL that is hidden in responses.
_MIN_SECRET_LENGTH = 4


def redact_response(webhook: Webhook, response: bytes | str) -> str:
    """Return the first part of a response as one line of text. Hide the webhook's secret and the
    parts of its URL, because the response may repeat them."""
    text = response.decode(errors="replace") if isinstance(response, bytes) else response
    url = URL(webhook.url)
    query_parts = (part for pair in url.query.items() for part in pair)
    secrets = {webhook.url, *webhook.secrets, url.user, url.password, url.raw_path_qs, url.path_qs}
    secrets |= {secret.removeprefix(STANDARD_PREFIX) for secret in webhook.secrets}
    secrets |= {url.query_string, url.fragment, *url.parts, *url.raw_parts, *query_parts}
    secrets |= {html.escape(secret) for secret in secrets if secret}
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        if len(secret) >= _MIN_SECRET_LENGTH:
            text = text.replace(secret, "…")
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:RESPONSE_LENGTH]

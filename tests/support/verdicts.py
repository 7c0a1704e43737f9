"""Checks the response headers of verdicts, the sidecar's answers to nginx, against their models."""

#: Headers that aiohttp adds to any response.
_AIOHTTP_HEADERS = {"Date", "Server", "Content-Length", "Content-Type", "Connection"}


def find_unsent_headers(endpoint, replies, *besides: str) -> set[str]:
    """Return the headers in the models of an endpoint's responses that no reply contains.

    Fail if a header of a reply is invalid by its model. Fail also if it is unknown: not in the
    model, not added by aiohttp, and not in `besides`.
    """
    models = {status: headers for status, (_, _, headers) in endpoint.replies.items()}
    unsent = {
        (model, field.alias) for model in models.values() for field in model.model_fields.values()
    }
    for reply in replies:
        model = models[reply.status]
        model.model_validate_strings(dict(reply.headers))
        unsent -= {(model, name) for name in reply.headers}
        described = {field.alias for field in model.model_fields.values()}
        assert set(reply.headers) - _AIOHTTP_HEADERS - set(besides) <= described
    return {name for _, name in unsent}

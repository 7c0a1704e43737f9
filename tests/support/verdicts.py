"""Checks of response headers of verdicts against their models."""

#: Headers that aiohttp adds to any response.
_OF_HTTP = {"Date", "Server", "Content-Length", "Content-Type", "Connection"}


def find_unsent(endpoint, replies, *besides: str) -> set[str]:
    """Return the headers of the endpoint's models that no reply has.

    Fail if a reply has a header that differs from its model, or one that is neither in the model,
    nor added by aiohttp, nor in `besides`.
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
        assert set(reply.headers) - _OF_HTTP - set(besides) <= described
    return {name for _, name in unsent}

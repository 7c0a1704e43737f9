"""Whether the headers of verdicts are those of their models."""

#: What aiohttp sends with any response.
_OF_HTTP = {"Date", "Server", "Content-Length", "Content-Type", "Connection"}


def find_unsent(endpoint, replies, *besides: str) -> set[str]:
    """Headers that are described and that none of the replies has; each that one has is described,
    and as its model says, but for those of HTTP and `besides`."""
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

"""Makes operators' calls of a replica's room."""

from tests.support.replica import ADMIN_TOKEN, check_response

TOKEN = {"Authorization": f"Bearer {ADMIN_TOKEN}"}


async def ask(site, method, what="", body=None, *, status=200, by=None, **query):
    """Make an operator's call whose response must have a status. Check the response against the
    OpenAPI document, and return its JSON body."""
    headers = TOKEN if by is None else {**TOKEN, "X-Waitroom-Operator": by}
    path = f"/admin/rooms/{site.room.name}{what}"
    reply = await site.ops.request(method, path, json=body, params=query, headers=headers)
    assert reply.status == status, await reply.text()
    await check_response(method, reply.url.raw_path, reply)
    return await reply.json()


async def told(site, what="", status=200, **query):
    return await ask(site, "GET", what, status=status, **query)

"""The shop's page of pictures, which submits a job for each picture and shows the state of jobs.

The studio draws slowly, one picture at a time. Visitors need no token.
"""

import asyncio
import html
import random
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

import aiohttp
from aiohttp import web

DRAWING_S = 1.0
AT_ONCE = 5
SERVICE = web.AppKey("service", aiohttp.ClientSession)

Page: TypeAlias = Callable[[str, str], web.Response]


async def draw(_request: web.Request) -> web.Response:
    """Draw a picture. Jobs call this endpoint."""
    await asyncio.sleep(DRAWING_S)
    shapes = "".join(
        f'<circle cx="{random.randrange(100)}" cy="{random.randrange(60)}" '
        f'r="{random.randrange(5, 25)}" fill="hsl({random.randrange(360)} 60% 55%)"/>'
        for _ in range(7)
    )
    picture = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 60">{shapes}</svg>'
    return web.Response(text=picture, content_type="image/svg+xml")


def add_pictures(app: web.Application, page: Page, url: str, token: str) -> None:
    """Add the page to the shop. `url` is the ops listener of a replica."""

    async def service(app: web.Application) -> AsyncIterator[None]:
        headers = {"Authorization": f"Bearer {token}"}
        async with aiohttp.ClientSession(url, headers=headers) as session:
            app[SERVICE] = session
            yield

    async def order(request: web.Request) -> web.Response:
        ids = []
        for _ in range(AT_ONCE):
            asked = {"target": "studio", "path": "draw"}
            async with request.app[SERVICE].post("/v1/jobs", json=asked) as reply:
                reply.raise_for_status()
                ids.append((await reply.json())["id"])
        raise web.HTTPSeeOther("/pictures/?of=" + ".".join(ids))

    async def show(request: web.Request) -> web.Response:
        ids = [id_ for id_ in request.query.get("of", "").split(".")[:AT_ONCE] if id_]
        jobs = await asyncio.gather(*(read_job(request.app[SERVICE], id_) for id_ in ids))
        cards = "".join(f"<li>{render_job(job)}</li>" for job in jobs)
        is_waiting = any(job.get("state") in {"pending", "processing"} for job in jobs)
        again = '<meta http-equiv="refresh" content="1">' if is_waiting else ""
        return page(
            "Pictures",
            f"{again}<p>The studio draws one at a time.</p>"
            f'<form method="post"><button class="go">Draw {AT_ONCE}</button></form>'
            f"<ul>{cards}</ul>",
        )

    app.cleanup_ctx.append(service)
    app.add_routes(
        [web.get("/pictures/", show), web.post("/pictures/", order), web.get("/studio/draw", draw)]
    )


async def read_job(session: aiohttp.ClientSession, id_: str) -> dict[str, Any]:
    async with session.get(f"/v1/jobs/{id_}") as reply:
        job: dict[str, Any] = await reply.json()
        return job


def render_job(job: dict[str, Any]) -> str:
    if job.get("state") == "completed":
        # The studio is trusted, so its SVG is not escaped.
        return str(job["result"]["body"])
    text = str(job.get("state", "unknown"))
    if job.get("position"):
        text += f", number {job['position']} in the queue, about {job['wait_seconds']:.0f} s"
    return html.escape(text)

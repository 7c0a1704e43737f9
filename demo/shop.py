"""A small shop behind a waiting room. The shop itself contains no code for the waiting room."""

import argparse
import html

import pictures
from aiohttp import web

THINGS = {
    "lamp": ("Table lamp", "€ 39"),
    "chair": ("Reading chair", "€ 240"),
    "clock": ("Wall clock", "€ 55"),
    "radio": ("Kitchen radio", "€ 89"),
}

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --paper: #fbfaf7; --line: #d9d5cc; --go: #0b6b53 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e9e6df; --paper: #16191e; --line: #363b44; --go: #4fc3a1 }
}
* { box-sizing: border-box }
body { font: 1.05rem/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 46rem; margin: 0 auto; padding: 2rem 1.25rem 4rem }
a { color: var(--go) }
ul { display: grid; grid-template-columns: repeat(auto-fill, minmax(12rem, 1fr)); gap: 1rem;
  list-style: none; padding: 0 }
li { border: 1px solid var(--line); border-radius: .75rem; padding: 1rem }
.go { display: inline-block; background: var(--go); color: var(--paper); text-decoration: none;
  border-radius: .6rem; padding: .6rem 1.1rem }
pre { border: 1px solid var(--line); border-radius: .6rem; padding: .75rem 1rem; overflow: auto }
small { opacity: .75 }
img { inline-size: 100%; border-radius: .75rem }
"""


def page(title: str, body: str) -> web.Response:
    text = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<link rel="icon" href="/art/logo.svg"><style>{STYLE}</style>'
        f'<img src="/art/shop.svg" alt=""><h1>{html.escape(title)}</h1>{body}'
    )
    return web.Response(text=text, content_type="text/html")


async def landing(request: web.Request) -> web.Response:
    things = "".join(
        f'<li><a href="/thing/{key}">{name}</a><br>{price}</li>'
        for key, (name, price) in THINGS.items()
    )
    drawn = (
        ', or have <a href="/pictures/">pictures</a> drawn'
        if pictures.SERVICE in request.app
        else ""
    )
    return page(
        "The little shop",
        "<p>You are inside. Few fit in at a time; the others wait in line.</p>"
        f"<ul>{things}</ul>"
        f'<p>Or choose <a href="/seats/">a seat in our café</a>{drawn}.</p>'
        '<p><a class="go" href="/checkout/done">Buy and finish</a></p>'
        "<p><small>Finishing frees your slot for the next in line. To see the line, open this "
        "address in private windows, or bring visitors:</small></p>"
        "<pre>make crowd VISITORS=20</pre>",
    )


async def thing(request: web.Request) -> web.Response:
    name, price = THINGS.get(request.match_info["thing"], ("Nothing", "€ 0"))
    asked = html.escape(request.path_qs)
    return page(
        name,
        f"<p>{price}</p><p><small>The address you asked for: <code>{asked}</code></small></p>"
        '<p><a class="go" href="/checkout/done">Buy and finish</a> &nbsp; <a href="/">Back</a></p>',
    )


async def seats(_request: web.Request) -> web.Response:
    listed = "".join(f'<li><a href="/seats/{seat}/">Seat {seat}</a></li>' for seat in range(1, 7))
    return page(
        "Seats in the café",
        f"<p>Each seat is one visitor's at a time, for a minute.</p><ul>{listed}</ul>",
    )


async def seat(request: web.Request) -> web.Response:
    number = html.escape(request.match_info["seat"])
    return page(
        f"Seat {number} is yours",
        "<p>For a minute from when you came. To see its line, open this address in a private "
        "window.</p>"
        f'<p><a class="go" href="/seats/{number}/done">Give it to the next</a></p>',
    )


async def stand_up(_request: web.Request) -> web.Response:
    return page("Thank you", '<p>The seat is free.</p><p><a href="/seats/">All seats</a></p>')


async def stock(_request: web.Request) -> web.Response:
    return web.json_response({key: name for key, (name, _) in THINGS.items()})


async def done(_request: web.Request) -> web.Response:
    return page(
        "Thank you",
        "<p>Your slot goes to the next in line in a few seconds.</p>"
        '<p><a href="/">Come in again</a></p>',
    )


async def health(_request: web.Request) -> web.Response:
    return web.Response(text="ok")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument("--socket", help="listen on this unix socket instead")
    parser.add_argument("--ops", help="a replica's ops listener, which takes jobs")
    parser.add_argument("--token", default="", help="the service_token")
    options = parser.parse_args()
    app = web.Application()
    app.add_routes(
        [
            web.get("/", landing),
            web.get("/thing/{thing}", thing),
            web.get("/checkout/done", done),
            web.get("/seats/", seats),
            web.get("/seats/{seat}/", seat),
            web.get("/seats/{seat}/done", stand_up),
            web.get("/api/stock", stock),
            web.get("/health", health),
        ]
    )
    if options.ops:
        pictures.add_pictures(app, page, options.ops, options.token)
    address = (
        {"path": options.socket} if options.socket else {"host": options.host, "port": options.port}
    )
    web.run_app(app, print=None, access_log=None, **address)


if __name__ == "__main__":
    main()

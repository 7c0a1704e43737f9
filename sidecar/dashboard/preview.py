"""Previews a room's waiting page, with the current settings or with settings not yet saved.

The dashboard shows the preview in a frame without an origin, so that no script in the preview can
act as the operator.
"""

import secrets
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from aiohttp import web

from sidecar.gate.page.preview import SCRIPT, STATES, TEMPLATE_STATES, Preview, render_template
from sidecar.gate.page.render import Page
from sidecar.http.app_keys import SETTINGS, TEMPLATES
from sidecar.http.auth.session import find_operator
from sidecar.http.problems import problem
from sidecar.kit.errors import InputError
from sidecar.kit.share import find_share
from sidecar.rooms.appearance import APPEARANCE
from sidecar.rooms.service import ROOMS

#: The settings that may be tried in a preview.
PREVIEW_SETTINGS = APPEARANCE | {"site_name", "logo", "message"}
#: The path of the preview's static files.
_FILES = "/dashboard/preview/static/"
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; "
    "img-src 'self' data: {site}; font-src 'self' {site}; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'; sandbox allow-scripts"
)
#: The policy of a site's own template, which may load the same files as on the site.
_TEMPLATE_POLICY = (
    "default-src 'self' https: data: 'unsafe-inline'; connect-src 'none'; object-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'; sandbox allow-scripts"
)


async def show_preview(request: web.Request) -> web.Response:
    """Return the preview for `room`, `state`, `language` and `scheme` in the query. A posted form
    may contain settings to try; an empty one stands for the configured value."""
    if find_operator(request) is None:
        return problem(401, "Nobody is logged in")
    query = request.query
    room = request.app[ROOMS].find(query.get("room", ""))
    page, state = _load_page(_static_folder(request)), query.get("state", "waiting")
    language = query.get("language", "en")
    if room is None or state not in STATES or language not in page.languages.tags:
        return problem(404, "Not Found", detail="Unknown room, state or language.")
    tried, configured = await _read_form(request), room.file_settings
    values = {name: value or getattr(configured, name) for name, value in tried.items()}
    settings = room.settings.with_overrides(values)
    nonce, site = secrets.token_urlsafe(16), settings.public_url or ""
    scheme = query["scheme"] if query.get("scheme") in {"light", "dark"} else ""
    template = request.app[TEMPLATES].find(settings.template) if settings.template else None
    preview = Preview(page, room.name, settings, language, _FILES, site, nonce, scheme)
    text, policy = preview.html(state), _POLICY.format(nonce=nonce, site=site)
    if template is not None and state in TEMPLATE_STATES:
        text, policy = render_template(template, preview, state), _TEMPLATE_POLICY
    return web.Response(
        text=text,
        content_type="text/html",
        charset="utf-8",
        headers={**_HEADERS, "Content-Security-Policy": policy},
    )


async def list_languages(request: web.Request) -> web.Response:
    """Return the tags of the page's languages, including those that the site has added."""
    return web.json_response(_load_page(_static_folder(request)).languages.tags)


async def get_file(request: web.Request) -> web.StreamResponse:
    """Return a static file of the page, without a log-in, because the frame sends no cookie."""
    name, folder = request.match_info["name"], _static_folder(request).resolve()
    path = SCRIPT if name == SCRIPT.name else (folder / name).resolve()
    if path != SCRIPT and not (path.is_relative_to(folder) and path.is_file()):
        return problem(404, "Not Found")
    return web.FileResponse(path, headers={**_HEADERS, "Access-Control-Allow-Origin": "*"})


def _static_folder(request: web.Request) -> Path:
    return request.app[SETTINGS].static_dir or find_share("static")


#: Loads the page from a static folder, once for each folder.
_load_page = cache(Page)


async def _read_form(request: web.Request) -> dict[str, Any]:
    """Return the settings in a posted form. Raises InputError if one is not in PREVIEW_SETTINGS."""
    if request.method != "POST":
        return {}
    text = (await request.read()).decode(errors="replace")
    try:
        fields = parse_qs(text, keep_blank_values=True, max_num_fields=len(PREVIEW_SETTINGS))
    except ValueError:
        raise InputError(["send the settings of the page as a form"]) from None
    if unknown := fields.keys() - PREVIEW_SETTINGS:
        raise InputError([f"{name}: no setting of the page" for name in sorted(unknown)])
    # Browsers send CRLF at the end of lines.
    return {name: values[0].replace("\r\n", "\n").strip() for name, values in fields.items()}


ROUTES = (
    web.get("/dashboard/preview", show_preview),
    web.post("/dashboard/preview", show_preview),
    web.get("/dashboard/preview/languages", list_languages),
    web.get(_FILES + "{name:.+}", get_file),
)

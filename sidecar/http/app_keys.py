"""The application keys by which handlers find the settings, the templates and the stop flag.

Other keys are defined beside their classes, such as METRICS in metrics.py. The classes of the keys
in this file are used by commands too, which would start slowly if they imported aiohttp.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from aiohttp import web

from sidecar.http.auth.rights import Scope
from sidecar.kit.templates import Templates


class SiteSettings(Protocol):
    """The settings that handlers of all products read."""

    @property
    def admin_token(self) -> str: ...
    @property
    def service_token(self) -> str: ...
    @property
    def tokens(self) -> Mapping[str, str]: ...
    @property
    def scopes(self) -> Mapping[str, frozenset[Scope]]: ...
    @property
    def is_in_memory(self) -> bool: ...
    @property
    def static_dir(self) -> Path | None: ...


#: The site's own page templates.
TEMPLATES = web.AppKey("templates", Templates)
SETTINGS: web.AppKey[SiteSettings] = web.AppKey("settings")
#: A list that is empty until the replica stops. The flag has to be an object that can change,
#: because a running application takes no new values.
STOPPING = web.AppKey("stopping", list[bool])

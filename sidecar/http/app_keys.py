"""Where handlers find the settings, the templates and whether the replica stops.

Other keys are beside what they name: METRICS in metrics.py, OPERATORS in auth/session.py. Keys that
commands would load with their settings are not, because importing aiohttp takes long.
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


#: The site's own templates of pages.
TEMPLATES = web.AppKey("templates", Templates)
SETTINGS: web.AppKey[SiteSettings] = web.AppKey("settings")
#: Not empty once the replica stops. A list, because a running application is frozen.
STOPPING = web.AppKey("stopping", list[bool])

"""The keys under which aiohttp's application has the settings, the templates and the stop flag.

Other keys are defined beside the classes of their values, such as METRICS in metrics.py. The keys
here are not, because commands import those classes too, and would start slowly with aiohttp.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from aiohttp import web

from sidecar.http.auth.rights import Scope
from sidecar.kit.templates import Templates


class SiteSettings(Protocol):
    """The settings that handlers of several parts read (rooms, leases, limits, jobs)."""

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
#: A list that is empty until the replica stops. It is no bool, because aiohttp does not let a
#: running application replace a value.
STOPPING = web.AppKey("stopping", list[bool])

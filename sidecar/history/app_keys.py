"""Where handlers find the history in their application."""

from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:  # SQL is an extra
    from sidecar.history.store.stays import History


#: Missing where no history is kept.
HISTORY: "web.AppKey[History]" = web.AppKey("history", object)  # type: ignore[arg-type] # to import it costs a third of the start

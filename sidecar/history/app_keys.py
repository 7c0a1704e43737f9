"""Where handlers find the history in their application."""

from aiohttp import web

from sidecar.history.store.stays import History

#: Missing where no history is kept.
HISTORY: web.AppKey[History] = web.AppKey("history", object)  # type: ignore[arg-type] # to import it costs a third of the start

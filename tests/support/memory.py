"""A quicker Lua for the store in memory.

fakeredis compiles a script each time it runs and then collects Lua's garbage. Redis compiles a
script once, and so does this runtime.
"""

from typing import Any

from fakeredis.commands_mixins import scripting_mixin


class CompilingOnce(scripting_mixin.LUA_MODULE.LuaRuntime):
    """A chunk's locals are new with each call, so a compiled script may run again."""

    def execute(self, code: bytes | str, *arguments: Any) -> Any:
        if code == "collectgarbage()":
            return None
        compiled = self.__dict__.setdefault("compiled", {})
        if code not in compiled:
            compiled[code] = self.compile(code)
        return compiled[code](*arguments)


def compile_scripts_once() -> None:
    scripting_mixin.LUA_MODULE.LuaRuntime = CompilingOnce

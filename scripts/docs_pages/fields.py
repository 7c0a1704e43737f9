"""Lists of the fields of documents, from their JSON Schema. Tables are too wide for phones."""

import json
from collections import Counter
from collections.abc import Iterator

from scripts.docs_pages.markdown import bullet, indented, one_line
from sidecar.app.openapi.operations import Json
from sidecar.http.models import MAX_NUMBER

#: Links in place of the schemas that are described on other pages.
_ELSEWHERE = {
    "RoomSettings": "the [settings of a room](settings.md#a-room)",
    "Changes": "[settings of a room](settings.md#a-room) by name; null resets one to its "
    "configured value",
    "TargetSettings": "the [settings of a target](settings.md#a-target)",
    "TargetChanges": "[settings of a target](settings.md#a-target) by name",
    "Problem": "the [problem document](problems.md)",
}
#: An example of more characters is shown on several lines.
_WIDTH = 60
_TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "object",
    "null": "null",
}
_UNITS = {"_seconds": "seconds", "_ms": "ms since 1970"}


class Documents:
    """The schemas of an OpenAPI document.

    A schema that is used once is described where it is used; all others have their own section.
    """

    def __init__(self, described: Json) -> None:
        self._schemas: dict[str, Json] = described["components"]["schemas"]
        text = json.dumps([described["paths"], self._reachable(described["paths"])])
        self._uses = Counter(
            {name: text.count(f'"#/components/schemas/{name}"') for name in self._schemas}
        )

    def _reachable(self, start: object) -> dict[str, Json]:
        found: dict[str, Json] = {}
        waiting = [*_refs(start)]
        while waiting:
            name = waiting.pop()
            if name not in found and name not in _ELSEWHERE:
                found[name] = self._schemas[name]
                waiting += _refs(found[name])
        self._found = found
        return found

    def section(self) -> Iterator[str]:
        """Yield a section with the schemas that are used more than once."""
        yield "## Documents"
        yield "Objects that more than one place above refers to."
        for name in sorted(self._found):
            if self._is_linked(name):
                yield f"### {name}"
                yield from self.body(self._found[name])

    def _is_linked(self, name: str) -> bool:
        return self._uses[name] > 1 and "properties" in self._schemas[name]

    def body(self, schema: Json) -> Iterator[str]:
        """Yield the description of a document, its fields and its examples."""
        found = self._resolved(schema)
        if "description" in found and "properties" in found:
            yield one_line(found["description"])
        yield self.listed(found)
        for example in found.get("examples", []):
            yield f"```json\n{_example(example)}\n```"

    def listed(self, schema: Json) -> str:
        """Return the list of fields of a schema, or its description if it has no fields."""
        found = self._resolved(schema)
        if "properties" not in found:
            return "\n".join([bullet(self._kind(schema)), *map(indented, self._inside(schema))])
        required = found.get("required", [])
        return "\n".join(
            self.field(name, field, notes=[] if name in required else ["optional"])
            for name, field in found["properties"].items()
        )

    def field(self, name: str, schema: Json, *, notes: list[str]) -> str:
        """Return the description of a field, followed by those of its inner fields."""
        kinds = [self._kind(schema), *(unit for end, unit in _UNITS.items() if name.endswith(end))]
        if schema.get("default") not in (None, "", [], {}):
            notes = [*notes, f"default {json.dumps(schema['default'])}"]
        text = one_line(schema.get("description", ""))
        examples = ", ".join(f"`{one}`" for one in schema.get("examples", []))
        text += f" Example: {examples}." if examples else ""
        line = f"`{name}` ({', '.join([*kinds, *notes])}){': ' + text.strip() if text else ''}"
        return "\n".join([bullet(line), *map(indented, self._inside(schema))])

    def members(self, content: Json) -> str:
        """Return links to the further fields of a problem document."""
        parts = content.get("schema", {}).get("allOf", [])
        return " and ".join(self._kind(part) for part in parts[2:])

    def _resolved(self, schema: Json) -> Json:
        """Return the referenced schema if it is described here, else the given schema."""
        name = schema.get("$ref", "").rpartition("/")[2]
        if not name or name in _ELSEWHERE or self._is_linked(name):
            return schema
        return self._schemas[name]

    def _inside(self, schema: Json) -> Iterator[str]:
        """Yield the lists of fields of the objects in a field."""
        found = self._resolved(schema)
        if "properties" in found:
            yield self.listed(found)
        for option in found.get("anyOf", []):
            yield from self._inside(option)
        if "items" in found:
            yield from self._inside(found["items"])

    def _kind(self, schema: Json) -> str:
        name = schema.get("$ref", "").rpartition("/")[2]
        if name in _ELSEWHERE:
            return _ELSEWHERE[name]
        if name and self._is_linked(name):
            return f"[{name}](#{name.lower()})"
        found = self._resolved(schema)
        if "anyOf" in found:
            options = [self._resolved(option) for option in found["anyOf"]]
            if all("enum" in option for option in options):
                return self._kind({"enum": [one for option in options for one in option["enum"]]})
            return " or ".join(dict.fromkeys(map(self._kind, found["anyOf"])))
        if "const" in found:
            return f"`{json.dumps(found['const']).strip(chr(34))}`"
        if "enum" in found:
            values = [f"`{value}`" for value in found["enum"]]
            return " or ".join([", ".join(values[:-1]), values[-1]] if values[1:] else values)
        return self._plain(found)

    def _plain(self, schema: Json) -> str:
        kind = schema.get("type", "any JSON")
        if kind == "array":
            return f"list of {self._kind(schema['items'])}" if "items" in schema else "list"
        if isinstance(kind, list):
            return " or ".join(_TYPES[one] for one in kind)
        if schema.get("format") == "date-time":
            return "time, ISO 8601"
        values = schema.get("additionalProperties")
        if isinstance(values, dict):
            return f"object of {self._kind(values)}"
        low, high = schema.get("minimum", 0), schema.get("maximum")
        # No reader needs to know the largest exact number in JSON.
        bound = f" to {high:,}" if high not in (None, MAX_NUMBER) else ""
        return _TYPES.get(kind, kind) + (f" from {low:,}{bound}" if low or bound else "")


def _example(value: object) -> str:
    line = json.dumps(value, ensure_ascii=False)
    return line if len(line) <= _WIDTH else json.dumps(value, indent=2, ensure_ascii=False)


def _refs(part: object) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str) and "/schemas/" in part["$ref"]:
            yield part["$ref"].rpartition("/")[2]
        for value in part.values():
            yield from _refs(value)
    if isinstance(part, list):
        for value in part:
            yield from _refs(value)

"""Reads and renders the templates that a site has written: Mustache files in a folder."""

import html
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog
from pystache import Renderer
from pystache.parser import ParsingError, parse

#: The name of a template's file, without a path.
TEMPLATE_NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,99}\.(?:html|mustache)\Z", re.ASCII)
#: The largest template, in bytes. It is limited because visitors load their page often.
MAX_TEMPLATE = 262_144
_POSITION = re.compile(r",? ?(?:its section starts )?at position \d+", re.IGNORECASE)

log = structlog.get_logger()


class _Renderer(Renderer):  # type: ignore[misc] # the library has no types
    """A renderer without partials and escaping. Template.render has already escaped all values."""

    def __init__(self) -> None:
        super().__init__(partials={}, escape=str)

    def str_coerce(self, val: object) -> str:
        """Convert a value to a string, booleans to `true` and `false`, and None to ""."""
        return "" if val is None else str(val).lower() if isinstance(val, bool) else str(val)


class Template:
    def __init__(self, text: str) -> None:
        """Compile a template. Raises ValueError with the line number and the problem."""
        try:
            self._parsed = parse(text, raise_on_mismatch=True)
        except ParsingError as error:
            line = text.count("\n", 0, error.info.position) + 1 if error.info else 1
            reason = _POSITION.sub("", str(error)).strip(" .")
            raise ValueError(f"line {line}: {reason}") from None
        except IndexError:
            raise ValueError("a tag that changes the delimiters is not {{=<% %>=}}") from None
        self.text = text

    def render(self, values: Mapping[str, Any]) -> str:
        """Render the template with all strings escaped, even those in {{{triple braces}}}."""
        escaped_values = {k: escape(v) if isinstance(v, str) else v for k, v in values.items()}
        return str(_Renderer().render(self._parsed, escaped_values))


def escape(value: str) -> str:
    """Escape a value for HTML and for a string literal in a script."""
    return html.escape(value).replace("\\", "&#92;").replace("`", "&#96;")


class Templates:
    """The templates in a folder, which are read again when they change."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cached_templates: dict[str, tuple[object, Template | None]] = {}

    def problem(self, name: str) -> str:
        """Return why a template cannot be used, or "" if it can."""
        try:
            self._read(name)
        except OSError as error:
            return f"{self._folder / name} cannot be read: {error.strerror}"
        except ValueError as error:
            return f"{self._folder / name}: {error}"
        return ""

    def find(self, name: str) -> Template | None:
        """Return a template, or its last usable version, or None if no version was usable."""
        loaded_version, template = self._cached_templates.get(name, (None, None))
        try:
            file = (self._folder / name).stat()
            version: object = (file.st_mtime_ns, file.st_size, file.st_ino)
        except OSError:
            version = "away"
        if version == loaded_version:
            return template
        try:
            template = self._read(name)
        except (OSError, ValueError):
            log.error("template_unusable", problem=self.problem(name), kept=template is not None)
        self._cached_templates[name] = version, template
        return template

    def _read(self, name: str) -> Template:
        data = (self._folder / name).read_bytes()
        if len(data) > MAX_TEMPLATE:
            raise ValueError(f"it has more than {MAX_TEMPLATE:,} bytes")
        try:
            return Template(data.decode())
        except UnicodeDecodeError:
            raise ValueError("it is not UTF-8 text") from None

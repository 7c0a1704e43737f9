"""The languages of the visitors' pages: a file of texts for each, static/i18n/<tag>.json."""

import json
import re
from pathlib import Path

from sidecar.kit.errors import ConfigError
from sidecar.kit.share import find_share

_QUALITY = re.compile(r"\s*;\s*q\s*=\s*([01](?:\.\d{0,3})?)\s*\Z")
_TRADITIONAL = re.compile(r"zh\b.*-(?:hant|tw|hk|mo)\b")


class Languages:
    """The languages of a folder of static files, by their tags."""

    def __init__(self, static: Path) -> None:
        ours = find_share("static") / "i18n"
        self._texts: dict[str, dict[str, str]] = {}
        for file in sorted((static / "i18n").glob("*.json")):
            # A file of an older version, or an unfinished one, lacks some texts.
            defaults = [_read(ours / "en.json"), _read(ours / file.name)]
            self._texts[file.stem] = defaults[0] | defaults[1] | _read(file)
        self._texts.setdefault("en", _read(ours / "en.json"))

    @property
    def tags(self) -> list[str]:
        return list(self._texts)

    def texts(self, tag: str) -> dict[str, str]:
        return self._texts[tag]

    def direction(self, tag: str) -> str:
        """Return `ltr` or `rtl`."""
        return self._texts[tag].get("dir", "ltr")

    def choose(self, accept: str | None) -> str:
        """Return the first of the visitor's languages that there is, or English."""
        ranked: list[tuple[float, int, str]] = []
        for index, part in enumerate((accept or "")[:500].split(",")):
            tag, semicolon, rest = part.partition(";")
            match = _QUALITY.match(";" + rest) if semicolon else None
            quality = float(match[1]) if match else 1.0
            language = self._find(tag.strip().lower())
            if language and quality > 0:
                ranked.append((-quality, index, language))
        return min(ranked)[2] if ranked else "en"

    def _find(self, wanted: str) -> str | None:
        """Return a tag of the same language; of Chinese, in the same script if possible."""
        tags = [tag for tag in self._texts if _base(tag) == _base(wanted)]
        return min(
            tags, key=lambda tag: _is_traditional(tag) != _is_traditional(wanted), default=None
        )


def _read(file: Path) -> dict[str, str]:
    if not file.exists():
        return {}
    try:
        texts = json.loads(file.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise ConfigError([f"{file}: {error}"]) from None
    if not isinstance(texts, dict):
        raise ConfigError([f"{file}: write an object of texts"])
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _base(tag: str) -> str:
    return tag.split("-", maxsplit=1)[0].lower()


def _is_traditional(tag: str) -> bool:
    return _TRADITIONAL.match(tag.lower()) is not None

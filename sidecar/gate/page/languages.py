"""Reads the texts of the visitors' pages in all languages, from static/i18n/<tag>.json."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

from sidecar.kit.errors import InputError
from sidecar.kit.share import find_share

_QUALITY = re.compile(r"\s*;\s*q\s*=\s*([01](?:\.\d{0,3})?)\s*\Z")
_TRADITIONAL = re.compile(r"zh\b.*-(?:hant|tw|hk|mo)\b")


class Languages:
    """The texts of the languages in a folder of static files, by language tag."""

    def __init__(self, static: Path) -> None:
        defaults = find_share("static") / "i18n"
        self._texts: dict[str, dict[str, str]] = {}
        for file in sorted((static / "i18n").glob("*.json")):
            # If an old or unfinished file lacks texts, use those of the package's files.
            english, same = _read_texts(defaults / "en.json"), _read_texts(defaults / file.name)
            self._texts[file.stem] = english | same | _read_texts(file)
        self._texts.setdefault("en", _read_texts(defaults / "en.json"))

    @property
    def tags(self) -> list[str]:
        return list(self._texts)

    def texts(self, tag: str) -> dict[str, str]:
        return self._texts[tag]

    def direction(self, tag: str) -> str:
        """Return `ltr` or `rtl`."""
        return self._texts[tag].get("dir", "ltr")

    def choose(self, accept_language: str | None) -> str:
        """Return the tag of the visitor's most preferred language that is available, or `en`."""
        return choose_language(accept_language, self._texts) or "en"


def choose_language(accept_language: str | None, tags: Iterable[str]) -> str | None:
    """Return the tag of the visitor's most preferred language among `tags`. None if none fits."""
    best, best_quality, available = None, 0.0, list(tags)
    for part in (accept_language or "")[:500].split(","):
        tag, semicolon, parameters = part.partition(";")
        match = _QUALITY.match(";" + parameters) if semicolon else None
        quality = float(match[1]) if match else 1.0
        language = _find_tag(tag.strip(), available)
        if language and quality > best_quality:
            best, best_quality = language, quality
    return best


def _find_tag(requested: str, available: list[str]) -> str | None:
    """Return an available tag of the requested language, for Chinese preferably in its script."""
    language, is_traditional = _parse_tag(requested)
    tags = [tag for tag in available if _parse_tag(tag)[0] == language]
    return min(tags, key=lambda tag: _parse_tag(tag)[1] != is_traditional, default=None)


def _read_texts(file: Path) -> dict[str, str]:
    """Return the texts in a file, or {} if there is none. Raises InputError for a faulty file."""
    if not file.exists():
        return {}
    try:
        texts = json.loads(file.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise InputError([f"{file}: {error}"]) from None
    if not isinstance(texts, dict):
        raise InputError([f"{file}: write an object of texts"])
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _parse_tag(tag: str) -> tuple[str, bool]:
    """Return the language of a tag, and True for traditional Chinese."""
    return tag.lower().split("-", 1)[0], _TRADITIONAL.match(tag.lower()) is not None

"""A hook of mkdocs: links that lead out of docs/, and marks that are for tests alone."""

import re
from typing import Any

from mkdocs.config.defaults import MkDocsConfig

#: A link to a file of the repository that is no page: ../nginx/example.conf.
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)#]+)(?:#[^)]*)?\)")
#: Before a block of code: <!-- not run: … -->.
_MARK = re.compile(r"^ *<!-- (?:not )?run: .* -->\n", re.MULTILINE)


def on_page_markdown(markdown: str, *, config: MkDocsConfig, **_: Any) -> str:
    """Links to files of the repository lead there, or are names where nobody said where it is."""

    def link(found: re.Match[str]) -> str:
        text, path = found.groups()
        if not config.repo_url:
            name = path.rstrip("/")
            return (
                text
                if text.startswith("`")
                else f"`{name}`"
                if text == name
                else f"{text} (`{name}`)"
            )
        return f"[{text}]({config.repo_url.rstrip('/')}/blob/main/{path})"

    return _OUTSIDE.sub(link, _MARK.sub("", markdown))

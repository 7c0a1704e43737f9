"""Where the static files are, and what a page of ours may load."""

from __future__ import annotations

from pathlib import Path

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


def find_static() -> Path:
    """The static files: of the checkout, or those installed with the package."""
    package = Path(__file__).resolve().parents[2]
    beside = package.parent / "static"
    return beside if (beside / "waiting.html").exists() else package / "share" / "static"

"""Markdown helpers that several generators use."""


def cell(text: str) -> str:
    """Convert a text for a table cell: one line, with pipes and tags escaped."""
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def one_line(text: str) -> str:
    """Join wrapped lines of a text, and escape text outside of code that looks like a tag."""
    parts = " ".join(text.split()).split("`")
    return "`".join(part.replace("<", "&lt;") if n % 2 == 0 else part
                    for n, part in enumerate(parts))  # fmt: skip


def bullet(text: str) -> str:
    return f"- {text}"


def indented(lines: str) -> str:
    """Indent a text below a bullet by four spaces, which Python-Markdown requires."""
    return "\n".join(f"    {line}" for line in lines.splitlines())

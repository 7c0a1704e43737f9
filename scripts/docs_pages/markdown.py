"""What the pages have in common: cells of tables."""


def cell(text: str) -> str:
    """Text as it may stand in a cell: on one line, without pipes or tags."""
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def one_line(text: str) -> str:
    """Text that was wrapped, unwrapped; outside of code, what looks like a tag is escaped."""
    parts = " ".join(text.split()).split("`")
    return "`".join(part.replace("<", "&lt;") if n % 2 == 0 else part
                    for n, part in enumerate(parts))  # fmt: skip


def bullet(text: str) -> str:
    return f"- {text}"


def indented(lines: str) -> str:
    """Below a bullet. Python-Markdown wants four spaces, and GitHub takes them."""
    return "\n".join(f"    {line}" for line in lines.splitlines())

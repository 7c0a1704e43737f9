"""Column types that behave the same in every database."""

from sqlalchemy import String, Text
from sqlalchemy.dialects import mysql


def word(length: int) -> String:
    """Return the column type of ASCII text up to `length`, which is compared byte by byte."""
    binary = mysql.VARCHAR(length, charset="ascii", collation="ascii_bin")
    return String(length).with_variant(binary, "mysql", "mariadb")


def long_text() -> Text:
    """Return the column type of text that may have more than 64 KB."""
    return Text().with_variant(mysql.MEDIUMTEXT(charset="utf8mb4"), "mysql", "mariadb")

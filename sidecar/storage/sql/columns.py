"""Column types that mean the same in every database."""

from sqlalchemy import String, Text
from sqlalchemy.dialects import mysql


def word(length: int) -> String:
    binary = mysql.VARCHAR(length, charset="ascii", collation="ascii_bin")
    return String(length).with_variant(binary, "mysql", "mariadb")


def long_text() -> Text:
    return Text().with_variant(mysql.MEDIUMTEXT(charset="utf8mb4"), "mysql", "mariadb")

"""A database that checks fencing numbers, so that a holder whose lease has ended cannot write."""

import sqlite3


def make_table(database: sqlite3.Connection) -> None:
    database.execute(
        "CREATE TABLE titles (name TEXT PRIMARY KEY, text TEXT, fence INTEGER NOT NULL DEFAULT 0)"
    )


def write(database: sqlite3.Connection, title: str, text: str, fence: int) -> bool:
    """Write a value. Return False if a holder with a higher number has written before."""
    with database:
        done = database.execute(
            "UPDATE titles SET text = ?, fence = ? WHERE name = ? AND fence <= ?",
            (text, fence, title, fence),
        )
    return done.rowcount == 1

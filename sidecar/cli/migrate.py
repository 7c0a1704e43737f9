"""waitroom migrate: the tables of the history and of jobs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from sidecar.cli.common import CONFIG, fail, load_settings
from sidecar.kit.errors import ConfigError, DatabaseError
from sidecar.kit.extras import require

if TYPE_CHECKING:
    from sidecar.settings import Settings


@click.command()
@CONFIG
def migrate(path: str | None) -> None:
    """Make the tables of the history and of jobs, or bring them up to date. Doing it twice equals
    once."""
    settings = load_settings(path)
    if not settings.history and not settings.jobs_database:
        example = 'set it, such as history = "sqlite:///history.db"'
        fail([f"history: names no database; {example} (and there are no targets, for jobs)"])
    problems = []
    for setting, whose in (("history", "The history's"), ("jobs", "The jobs'")):
        try:
            revisions = asyncio.run(_migrate(settings, setting))
        except ConfigError as error:
            problems += error.problems
        except DatabaseError as error:
            problems.append(f"{whose.lower()} database: {error}")
        else:
            if revisions is not None:
                click.echo(f"{whose} tables {_done(*revisions)}.")
    if problems:
        fail(problems)


async def _migrate(settings: Settings, setting: str) -> tuple[str | None, str] | None:
    """The revisions before and after; None where that database is not set. Raises ConfigError,
    DatabaseError."""
    if not (settings.jobs_database if setting == "jobs" else settings.history):
        return None
    require("sql", setting=setting)
    from sidecar.history.store.tables import HISTORY  # noqa: PLC0415 - the other commands start faster
    from sidecar.jobs.store.tables import JOBS  # noqa: PLC0415 - the other commands start faster
    from sidecar.kit.sql import database as sql  # noqa: PLC0415 - the other commands start faster

    url, tables, partitions = settings.history, HISTORY, settings.history_partitions
    if setting == "jobs":
        url, tables, partitions = settings.jobs_database, JOBS, 1
    engine = sql.open_database(url, setting=setting)
    try:
        return await sql.migrate(engine, tables, partitions=partitions)
    finally:
        await engine.dispose()


def _done(before: str | None, after: str) -> str:
    if before is None:
        return f"were made (revision {after})"
    if before == after:
        return f"are up to date (revision {after})"
    return f"were brought from revision {before} to {after}"

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
    """Make the tables of the history and of jobs, or bring them up to date. Idempotent."""
    settings = load_settings(path)
    urls = {"history": settings.history, "jobs": settings.jobs_database}
    if not any(urls.values()):
        example = 'set it, such as history = "sqlite:///history.db"'
        fail([f"history: names no database; {example} (and there are no targets, for jobs)"])
    problems = []
    for setting, whose in (("history", "history's"), ("jobs", "jobs'")):
        if not urls[setting]:
            continue
        try:
            before, after = asyncio.run(_migrate(settings, setting, urls[setting]))
        except ConfigError as error:
            problems += error.problems
        except DatabaseError as error:
            problems.append(f"the {whose} database: {error}")
        else:
            done = f"were brought from revision {before} to {after}"
            if before is None:
                done = f"were made (revision {after})"
            elif before == after:
                done = f"are up to date (revision {after})"
            click.echo(f"The {whose} tables {done}.")
    if problems:
        fail(problems)


async def _migrate(settings: Settings, setting: str, url: str) -> tuple[str | None, str]:
    """The revisions before and after. Raises ConfigError, DatabaseError."""
    require("sql", setting=setting)
    from sidecar.history.store.tables import HISTORY  # noqa: PLC0415 - the other commands start faster
    from sidecar.jobs.store.tables import JOBS  # noqa: PLC0415 - the other commands start faster
    from sidecar.kit.sql import database as sql  # noqa: PLC0415 - the other commands start faster

    tables, partitions = (JOBS, 1) if setting == "jobs" else (HISTORY, settings.history_partitions)
    engine = sql.open_database(url, setting=setting)
    try:
        return await sql.migrate(engine, tables, partitions=partitions)
    finally:
        await engine.dispose()

"""The command `waitroom migrate`, which creates or updates the tables of history and jobs."""

import click

from sidecar.cli.config import CONFIG, Settings, load_settings
from sidecar.cli.output import JSON, Unreachable, fail, print_json
from sidecar.kit.errors import DatabaseError, DatabaseUnavailableError, InputError
from sidecar.kit.extras import require

_POSSESSIVES = {"history": "history's", "jobs": "jobs'"}


@click.command()
@CONFIG
@JSON
def migrate(path: str | None, *, as_json: bool) -> None:
    """Create or update the database tables of history and jobs. The command is idempotent."""
    import asyncio  # noqa: PLC0415

    settings = load_settings(path)
    urls = {"history": settings.history, "jobs": settings.jobs_database}
    if not any(urls.values()):
        example = 'set it, such as history = "sqlite:///history.db"'
        fail([f"history: names no database; {example} (and there are no targets, for jobs)"])
    migrated: list[dict[str, str | None]] = []
    problems: list[str] = []
    code = 1
    for setting in (name for name, url in urls.items() if url):
        try:
            before, after = asyncio.run(_migrate(settings, setting, urls[setting]))
            migrated.append({"tables": setting, "before": before, "after": after})
        except InputError as error:
            problems += error.problems
        except DatabaseError as error:
            code = Unreachable.exit_code if isinstance(error, DatabaseUnavailableError) else 1
            problems.append(f"the {_POSSESSIVES[setting]} database: {error}")
    if as_json:
        print_json({"migrated": migrated})
    else:
        click.echo("".join(map(_format_revisions, migrated)), nl=False)
    if problems:
        fail(problems, code)


def _format_revisions(tables: dict[str, str | None]) -> str:
    before, after = tables["before"], tables["after"]
    outcome = f"were brought from revision {before} to {after}"
    if before is None:
        outcome = f"were made (revision {after})"
    elif before == after:
        outcome = f"are up to date (revision {after})"
    return f"The {_POSSESSIVES[str(tables['tables'])]} tables {outcome}.\n"


async def _migrate(settings: Settings, setting: str, url: str) -> tuple[str | None, str]:
    """Migrate the tables that belong to a setting. Return their schema revisions before (None if
    there were no tables) and after the migration. Raises InputError or DatabaseError."""
    require("sql", setting=setting)
    from sidecar.history.store.tables import HISTORY  # noqa: PLC0415 - the other commands start faster
    from sidecar.jobs.store.tables import JOBS  # noqa: PLC0415 - the other commands start faster
    from sidecar.storage.sql import database as sql  # noqa: PLC0415 - the other commands start faster

    tables, partitions = (JOBS, 1) if setting == "jobs" else (HISTORY, settings.history_partitions)
    engine = sql.open_database(url, setting=setting)
    try:
        return await sql.migrate(engine, tables, partitions=partitions)
    finally:
        await engine.dispose()

"""The commands `waitroom page …`, which print the waiting page for nginx, or preview it."""

import shutil
from collections.abc import Iterable
from pathlib import Path

import click

from sidecar.cli.config import CONFIG, load_settings
from sidecar.cli.output import BadValue, CommandGroup
from sidecar.cli.parsing import read_pairs


class _PageGroup(CommandGroup):
    """A group that passes an argument that is not a command's name to `nginx`, as its file."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        is_file = self.get_command(ctx, args[0]) is None
        return super().resolve_command(ctx, ["nginx", *args] if is_file else args)


@click.group(cls=_PageGroup, invoke_without_command=True)
@click.pass_context
def page(context: click.Context) -> None:
    """Print the waiting page as an nginx include file, or preview it.

    `waitroom page [WAITING.HTML]` is short for `waitroom page nginx`.
    """
    if context.invoked_subcommand is None:
        context.invoke(nginx)


@page.command()
@click.argument("file", default=None, required=False, metavar="[WAITING.HTML]")
def nginx(file: str | None = None) -> None:
    """Print the waiting page as an nginx include file, waitroom/waiting.conf.

    After you change waiting.html or add a language, print the file again and reload nginx.
    """
    from sidecar.gate.page.languages import Languages  # noqa: PLC0415
    from sidecar.gate.page.render import format_for_nginx  # noqa: PLC0415
    from sidecar.kit.share import find_share  # noqa: PLC0415

    path = Path(file) if file else find_share("static") / "waiting.html"
    try:
        text = format_for_nginx(path.read_text(encoding="utf-8"), Languages(path.parent))
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{path}: {error}") from None
    click.echo(text, nl=False)


@page.command()
@click.argument("room", default="")
@CONFIG
@click.option("--state", "states", multiple=True, help="Write only this state (repeatable).")
@click.option("--language", default="en", show_default=True, help="The page's language.")
@click.option("--set", "changes", multiple=True, metavar="SETTING=VALUE", help="Change a setting.")
@click.option("--site", default="", help="The site from which to load your own files: https://….")
@click.option("--into", default="preview", show_default=True, help="The folder to write to.")
def preview(
    room: str,
    path: str | None,
    *,
    states: tuple[str, ...],
    changes: tuple[str, ...],
    into: str,
    **page_options: str,
) -> None:
    """Write the waiting page of ROOM, in all its states, to files that you can open in a browser.

    No replica is needed. The preview uses the settings file. To preview changes made at run time,
    use the dashboard.
    """
    from sidecar.gate.page import preview as previews  # noqa: PLC0415 - needs aiohttp
    from sidecar.gate.page.render import Page  # noqa: PLC0415
    from sidecar.kit.share import find_share  # noqa: PLC0415
    from sidecar.kit.templates import Templates  # noqa: PLC0415

    configured = load_settings(path)
    if not room and len(configured.rooms) > 1:
        raise BadValue(f"name a room: {', '.join(configured.rooms)}")
    name = room or next(iter(configured.rooms))
    for state in states:
        _check_name("state", state, previews.STATES)
    _check_name("room", name, configured.rooms)
    pairs = read_pairs(changes, "SETTING=VALUE after --set, such as accent=#c2410c")
    settings = configured.rooms[name].with_overrides(pairs)
    static = configured.static_dir or find_share("static")
    template = Page(static)
    _check_name("language", page_options["language"], template.languages.tags)
    page_options["site"] = (page_options["site"] or settings.public_url or "").rstrip("/")
    folder, chosen = Path(into), states or tuple(previews.STATES)
    page_preview = previews.Preview(template, name, settings, **page_options)
    pages = {f"{state}.html": page_preview.html(state) for state in chosen}
    if settings.template:
        templates = Templates(configured.template_dir)
        if problem := templates.problem(settings.template):
            raise click.ClickException(problem)
        own_page = templates.find(settings.template)
        pages |= {
            f"{state}.html": previews.render_template(own_page, page_preview, state)
            for state in chosen
            if own_page and state in previews.TEMPLATE_STATES
        }
    pages["index.html"] = previews.render_overview(name, chosen)
    try:
        shutil.copytree(static, folder / "static", ignore=_IGNORED_FILES, dirs_exist_ok=True)
        shutil.copy(previews.SCRIPT, folder / "static")
        for file, text in pages.items():
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(str(error)) from None
    for file in sorted(pages, key=lambda file: file != "index.html"):
        click.echo(folder / file)


_IGNORED_FILES = shutil.ignore_patterns("*.html", "i18n", "draw.*")


def _check_name(kind: str, name: str, known_names: Iterable[str]) -> None:
    if name not in known_names:
        raise BadValue(f"there is no {kind} {name!r}; these are: {', '.join(known_names)}")

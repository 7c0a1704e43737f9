"""All commands and groups of `waitroom`, as the generator of docs/commands.md finds them."""

from scripts.docs_pages.commands import list_commands
from sidecar.cli import main

#: Commands and groups by their words, such as ("rooms", "list"). () is `waitroom` itself.
COMMANDS = {(): main, **{words[1:]: command for words, command in list_commands(main)}}

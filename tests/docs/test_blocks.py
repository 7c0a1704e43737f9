"""Start, Guides and the README: every block of code is right, tried here or where its mark says."""

import json
import re
import shlex
import subprocess
import tomllib
from contextlib import ExitStack
from pathlib import Path

import click
import jsonschema
import kubernetes_validate
import pytest
import yaml
from playwright._impl._driver import compute_driver_executable

from sidecar.app.openapi.document import build_document
from sidecar.cli import main
from sidecar.settings.load import load
from tests.docs import nginx
from tests.docs.blocks import SHOWN, blocks_of, find_mark_problem, pages, strip_shell
from tests.docs.installation import Installation, complete_settings, to_toml_file
from tests.support.site import ROOT

EVERY = [block for page in pages() for block in blocks_of(page)]


@pytest.mark.parametrize("block", EVERY, ids=str)
def test_a_block_is_marked_as_it_should_be(block):
    """It has a language; a reason why it is not run is true; a test that it names is there."""
    assert find_mark_problem(block) == ""
    runners = {"toml", "nginx", "python", "json", "yaml", "sh", "js", "caddyfile"}
    assert block.language in runners | SHOWN or not block.is_run, "run by nobody: say why"


def of(*languages: str) -> pytest.MarkDecorator:
    found = [block for block in EVERY if block.language in languages and block.is_run]
    return pytest.mark.parametrize("block", found, ids=str)


@pytest.fixture(scope="module")
def installation_of():
    """Return a function that gives a page's installation, which is kept until the next page."""
    with ExitStack() as stack:
        kept: dict[str, Installation] = {}

        def give(page: str) -> Installation:
            if page not in kept:
                stack.close()
                kept.clear()
                kept[page] = stack.enter_context(Installation(ROOT / page))
            return kept[page]

        yield give


@of("toml")
def test_settings_load(block, tmp_path):
    """A part of a file with what a file needs beside it."""
    load_settings(block.text, tmp_path)


def load_settings(text: str, folder: Path) -> None:
    file = folder / "waitroom.toml"
    file.write_text(to_toml_file(complete_settings(tomllib.loads(text))))
    load(str(file), {})


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nginx")
    nginx.make_prefix(folder)
    return folder


@of("nginx")
def test_nginx_takes_it(block, prefix):
    """nginx accepts the block at its level, with the includes and with any block before it."""
    before = ""
    if block.words == "after":
        same = [one for one in blocks_of(ROOT / block.page) if one.language == "nginx"]
        before = same[same.index(block) - 1].text
    assert nginx.find_problem(prefix, block.text, before) == ""


@pytest.mark.full
@of("sh", "python", "text")
def test_commands_and_programs_run(block, installation_of):
    """The blocks run in the page's order. `output` is the output of the command before it."""
    installation = installation_of(block.page)
    if block.language == "sh":
        assert installation.shell(block) == ""
    elif block.language == "python":
        installation.python(block)
    else:
        head = re.findall(r"[A-Za-z_]{2,}", block.text.splitlines()[0])
        assert set(head) <= set(re.findall(r"[A-Za-z_]{2,}", installation.printed))


SHELL = [block for block in EVERY if block.language == "sh"]


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_the_shell_and_our_command_take_the_lines(block, monkeypatch):
    """Every command and option of ours on the pages exists, also in blocks that are not run."""
    monkeypatch.setattr(click.File, "convert", lambda _self, name, *_: name)  # no file is there
    done = subprocess.run(
        ["bash", "-n", "-c", block.text], capture_output=True, text=True, check=False, timeout=20
    )
    assert (done.returncode, done.stderr) == (0, "")
    for words in commands_in(block.text):
        parse(words)


def commands_in(text: str) -> list[list[str]]:
    """Return the arguments of each call of our command. A package of its name is no call."""
    found = []
    for line in re.findall(r".*\bwaitroom .*", strip_shell(text)):
        part: list[str] = []
        words = shlex.split(re.sub(r"<<'?\w+'?", "", line).replace(";", " ; ").rstrip("\\"))
        for word in [*words, ";"]:
            if word not in {";", "|", "||", "&&", "&", ">", ">>"}:
                part.append(word)
                continue
            at = [n for n, one in enumerate(part) if one.rpartition("/")[2] == "waitroom"]
            found += [part[n + 1 :] for n in at if is_call(part, n)]
            part = []
    return found


def is_call(words: list[str], at: int) -> bool:
    before, after = words[at - 1] if at else "", words[at + 1 :]
    is_name = before in {"install", "userdel"} or (before.startswith("-") and before != "--")
    return not is_name and bool(after) and re.fullmatch(r"[a-z][a-z-]+", after[0]) is not None


def parse(words: list[str]) -> None:
    """Parse a command's arguments by click, without running the command."""
    command: click.Command = main
    context = command.make_context("waitroom", words)
    while isinstance(command, click.Group):
        _, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        command = found
        context = command.make_context(command.name, rest, parent=context)


@of("json")
def test_json_is_what_the_api_says(block):
    """A whole document of the API or a part of one; a text may be cut off, with an …"""
    document_ = json.loads(block.text)
    described = build_document()
    names = [
        name for name, schema in described["components"]["schemas"].items()
        if document_.keys() <= schema.get("properties", {}).keys()
    ]  # fmt: skip
    assert names, "no document of the API has these fields"
    wrong = [
        [one.message for one in validator.iter_errors(document_) if "…" not in str(one.instance)]
        for validator in (part_of(name, described) for name in names)
    ]
    assert [] in wrong, wrong


def part_of(name: str, described: dict) -> jsonschema.Draft202012Validator:
    schema = {**described["components"]["schemas"][name], "required": []}
    return jsonschema.Draft202012Validator({**schema, "components": described["components"]})


@of("yaml")
def test_yaml_is_read(block):
    """Kubernetes takes what is for Kubernetes."""
    for one in yaml.safe_load_all(block.text):
        # The Gateway API is an extension: Kubernetes' own schemas do not have it.
        if "apiVersion" in one and not one["apiVersion"].startswith("gateway."):
            kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)


@of("js")
def test_javascript_compiles(block, tmp_path):
    node = compute_driver_executable()[0]
    (tmp_path / "block.mjs").write_text(block.text)
    subprocess.run([node, "--check", tmp_path / "block.mjs"], check=True, timeout=20)


@pytest.mark.full
@of("caddyfile")
def test_caddy_takes_it(block, tmp_path):
    """In a site of its own, with our snippets."""
    ours = (ROOT / "deploy" / "caddy" / "Caddyfile").read_text()
    snippets = ours[: ours.index("\nshop.example {")]
    text = f"{snippets}\nhttp://other.example {{\n{block.text}\n}}\n"
    (tmp_path / "Caddyfile").write_text(text)
    done = subprocess.run(
        ["caddy", "adapt", "--config", tmp_path / "Caddyfile"],
        capture_output=True, text=True, check=False, timeout=20,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr

"""Tests of `waitroom webhooks test`, which run the command as its user does."""

import asyncio

import pytest

from tests.support.processes import CLEAN, run_command

GOOD = {"WAITROOM_SECRET_KEYS": "s" * 32, "WAITROOM_ROOMS__SHOP__TOTAL_ACTIVE_USERS": "5"}


@pytest.fixture
def run(tmp_path):
    """Return a function that runs `waitroom webhooks test`: exit status, output and errors."""

    async def run(*names: str, **webhooks: dict[str, str]) -> tuple[int, str, str]:
        variables = {
            f"WAITROOM_WEBHOOKS__{name.upper()}__{setting.upper()}": value
            for name, settings in webhooks.items()
            for setting, value in settings.items()
        }
        environment = {**CLEAN, **GOOD, "NO_PROXY": "*", **variables}
        words = ["webhooks", "test", *names]
        done = await asyncio.to_thread(run_command, *words, cwd=tmp_path, env=environment)
        return done.returncode, done.stdout, done.stderr

    return run


async def test_each_webhook_is_tried_and_its_answer_told(receiver, run):
    """Each line has name, host and result. The exit status is 1 if a receiver refused."""
    chat, pager = {"url": receiver.url, "format": "slack"}, {"url": receiver.url}
    code, out, err = await run(chat=chat, pager=pager)
    assert (code, err) == (0, "")
    lines = [line.split("\t")[:3] for line in out.splitlines()]
    assert lines == [
        ["webhook", "host", "result"], ["chat", "127.0.0.1", "taken"],
        ["pager", "127.0.0.1", "taken"],
    ]  # fmt: skip
    assert receiver.events == ["test", "test"]
    bodies = [body for _, body in receiver.came]
    assert {"text": "Waitroom shop: this is a test, nothing has happened."} in bodies
    assert any(body.get("event") == "test" and body["cap"] == 5 for body in bodies)
    receiver.answers = [404]
    code, out, _ = await run("pager", chat=chat, pager=pager)
    assert (code, out.splitlines()[1:]) == (1, ["pager\t127.0.0.1\tnot taken\tHTTP 404"])
    assert "nobody-sees" not in out


async def test_there_must_be_something_to_try(run):
    """No webhook or an unknown webhook is an error that says what to do."""
    code, out, err = await run()
    assert (code, out) == (1, "")
    assert "[webhooks.team]" in err
    code, out, err = await run("pager", chat={"url": "http://127.0.0.1:1/"})
    assert (code, out) == (2, "")
    assert "no webhook is named pager" in err

"""Options that the suite adds to locust. Each can be set by an environment variable too."""

from typing import Any

from locust.argument_parser import LocustArgumentParser
from locust.env import Environment

DEFAULT_MIX = "shopper=80,api=15,flood=2,storm=3"


def add_options(parser: LocustArgumentParser) -> None:
    def add(name: str, default: Any, usage: str, **more: Any) -> None:
        variable = "WAITROOM_LOAD_" + name.upper().replace("-", "_")
        typing = {"action": "store_true"} if default is False else {"type": type(default)}
        parser.add_argument(
            f"--waitroom-{name}", env_var=variable, default=default, help=usage, **typing, **more
        )

    add("room", "shop", "the room's name")
    add("path", "/", "the page behind the waiting room that visitors ask for")
    add("done-path", "", "the page that ends a visit; empty: the visitor POSTs leave")
    add("denied-status", 503, "the room's queueing_status_code")
    add("mix", DEFAULT_MIX, "journeys and their weights")
    add("think", 1.0, "mean pause between two requests inside, seconds")
    add("stay", 20.0, "mean number of requests inside")
    add("abandon", 0.02, "share of the waiting who leave the line")
    add("silent", 0.02, "share of visits that end by closing the browser, waiting or inside")
    add("shape", "", "a shape of shapes.toml; empty: --users and --run-time")
    add("client", "fast", "fast: FastHttpUser's; lean: http only, for one machine that runs all",
        choices=["fast", "lean"])  # fmt: skip
    add("ops", "", "the ops listener of a replica, such as http://127.0.0.1:8401")
    add("admin-token", "", "its admin_token", is_secret=True)
    add("cap", 0, "the cap to hold; 0: the one that the ops listener tells")
    add("origin-log", "", "the origin's log of '$msec $http_x_load_visitor' lines")
    add("warm-up", 0.0, "the figures count from so many seconds on; the verdict counts all")
    add("allow-untested", False, "exit with 0 also if the run tested not every promise")
    add("hosts", "", "replicas in place of --host, with commas: users take them in turn")
    add("report", "", "write figures and verdict into this file, as JSON")


def options_of(environment: Environment) -> Any:
    """Return the parsed options. Locust types them as Any."""
    return environment.parsed_options


def read_mix(text: str) -> dict[str, int]:
    """Parse weights such as `shopper=80,api=15`."""
    weights = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, weight = part.partition("=")
        if not weight.isdecimal():
            raise ValueError(f"waitroom-mix: {part!r} is not journey=weight")
        weights[name] = int(weight)
    return weights

"""Reads shapes of load from shapes.toml."""

import tomllib
from pathlib import Path

from locust import LoadTestShape

FILE = Path(__file__).with_name("shapes.toml")


def read_shape(name: str, file: Path = FILE) -> "TomlShape":
    with file.open("rb") as stream:
        shapes = tomllib.load(stream)
    if name not in shapes:
        raise ValueError(f"waitroom-shape: {name!r} is none of {', '.join(sorted(shapes))}")
    stages = [
        (float(s["until"]), int(s["users"]), float(s["rate"])) for s in shapes[name]["stages"]
    ]
    return TomlShape(sorted(stages))


class TomlShape(LoadTestShape):
    """Shape that an option chooses. It is abstract, because Locust would use any other class."""

    abstract = True

    def __init__(self, stages: list[tuple[float, int, float]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.stages = stages

    def tick(self) -> tuple[int, float] | None:
        now = self.get_run_time()  # type: ignore[no-untyped-call]
        for until, users, rate in self.stages:
            if now < until:
                return users, rate
        return None

"""What the settings say of the way to a replica. Of the other settings nothing is read."""

from __future__ import annotations

import os

import click
from pydantic import BaseModel, Field, ValidationError

from sidecar.kit.errors import ConfigError
from sidecar.kit.setting_types import DEFAULT_OPS_LISTEN, Listen, problems_in
from sidecar.settings.values import ENV_PREFIX, read_values


class ReplicaSettings(BaseModel):
    """The address of the ops listener, and the tokens that it takes."""

    ops_listen: Listen = DEFAULT_OPS_LISTEN
    admin_token: str = Field(default="", repr=False)
    service_token: str = Field(default="", repr=False)


def read_replica_settings(path: str | None) -> ReplicaSettings:
    """Raises ClickException, with a line for each problem."""
    try:
        values, problems = read_values(path, _relevant_variables(), ReplicaSettings)
        found = ReplicaSettings.model_validate(values)
    except ConfigError as error:
        problems = error.problems
    except ValidationError as error:
        problems += problems_in(error, ReplicaSettings)
    if problems:
        raise click.ClickException("\n".join(problems))
    return found


def _relevant_variables() -> dict[str, str]:
    """A variable of another setting may name a file that this user may not read."""
    names = {f"{ENV_PREFIX}{name.upper()}" for name in ReplicaSettings.model_fields}
    return {name: text for name, text in os.environ.items() if name.removesuffix("_FILE") in names}

"""Look-ups in the history: on the ops listener, where `history` names a database."""

from __future__ import annotations

from sidecar.kit.http.openapi import (
    READS,
    Json,
    moment,
    parameters,
    refusals,
    reply,
    rows,
    shape,
    text,
    thing,
)

_ROOM = "/admin/rooms/{room}"
_CSV = {"text/csv": {"schema": text("A header and a line for each; nothing where there is none.")}}


def _look(name: str, summary: str, answer: Json, about: list[Json], description: str = "") -> Json:
    refused = refusals(
        "401", "403", "404", "422", "503", unknown="UnknownHistory", away="HistoryAway"
    )
    return {
        "operationId": name,
        "tags": ["history"],
        "summary": summary,
        **({"description": description} if description else {}),
        "parameters": about,
        "responses": {"200": answer, **refused},
        "security": READS,
    }


def _of_period(properties: Json) -> Json:
    return thing({"room": shape("Room"), "from": moment(), "to": moment(), **properties})


def _or_csv(answer: Json) -> Json:
    return {**answer, "content": {**answer["content"], **_CSV}}


def paths() -> Json:
    stays = reply("A page of them.", _of_period({"stays": rows(shape("Stay"))}))
    changes = reply("The latest of them.", _of_period({"changes": rows(shape("Change"))}))
    return {
        _ROOM + "/visitors/{visitor}/history": {
            "parameters": parameters("Room", "Visitor"),
            "get": _look("getVisitorHistory", "One visitor's stay, its place over time, what "
                         "happened", reply("All of it.", shape("VisitorHistory")), []),
        },
        _ROOM + "/stays": {
            "parameters": parameters("Room"),
            "get": _look("listStays", "Stays that began in a period, oldest first", _or_csv(stays),
                         parameters("From", "To", "Format", "Offset", "Limit")),
        },
        _ROOM + "/report": {
            "parameters": parameters("Room"),
            "get": _look("getReport", "Waits, giving up and fairness in a period",
                         _or_csv(reply("The report.", shape("Report"))),
                         parameters("From", "To", "Format"),
                         "Of 100,000 stays at most; `waitroom report` knows no bound."),
        },
        _ROOM + "/changes": {
            "parameters": parameters("Room"),
            "get": _look("listChanges", "What operators did in a period, latest first",
                         _or_csv(changes), parameters("From", "To", "Format", "Limit"),
                         "For what came before, ask with `to`."),
        },
    }  # fmt: skip

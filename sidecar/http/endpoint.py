"""Declares endpoints, each with its route, access rules, validation and OpenAPI operation.

    ENDPOINTS = Endpoints("leases", unknown=UNKNOWN_LEASE)

    @ENDPOINTS.put(
        "/v1/leases/{template}/{resource}",
        programs("leases", role="operator"),
        replies={200: "The holder has it."},
        problems=(LEASE_OVER,),
    )
    async def renew_lease(request: web.Request, path: LeasePath, body: RenewLease) -> Lease:
        '''Begin the term anew.

        The first paragraph is OpenAPI's summary, and what follows is the description.
        '''

A handler gets the request, and instances of the models in its annotations. It returns a model, or a
response if it sets status or headers itself. Its name, in camel case, is the operationId."""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from inspect import get_annotations, getdoc
from typing import Any, TypeAlias, TypeVar

from aiohttp import web

from sidecar.http import problem_kinds as kinds
from sidecar.http.auth.rights import Role, Scope
from sidecar.http.models import (
    Body,
    Headers,
    Parameters,
    Reply,
    read,
    read_object,
    read_valid_members,
)
from sidecar.http.problem_kinds import Kind
from sidecar.http.problems import ProblemError
from sidecar.kit.errors import InputError

Handler: TypeAlias = Callable[..., Awaitable[web.StreamResponse | Reply]]
H = TypeVar("H", bound=Handler)
#: Maps a status to a reply's model (None for bytes), its description, and its headers' model.
Replies: TypeAlias = Mapping[int, tuple[Any, str] | tuple[Any, str, "type[Headers]"]]


@dataclass(frozen=True, slots=True)
class Access:
    """Who may use an endpoint. The admin token may use every endpoint."""

    #: The scopes of which a program's token needs one. If empty, only operators have access.
    scopes: frozenset[Scope] = frozenset()
    #: An operator's session needs this role or a higher one.
    role: Role = "admin"
    is_open: bool = False

    def problems(self, path: str) -> list[Kind]:
        if self.is_open:
            return []
        more = [kinds.SERVICE_OFF, kinds.SCOPE_MISSING if self.scopes else kinds.OPERATORS_ONLY]
        if path.startswith("/admin/"):
            more = [kinds.ADMINISTRATION_OFF, kinds.TOO_MANY_WRONG_TOKENS]
        if self.role != "viewer":
            more.append(kinds.ROLE_TOO_LOW)
        return [kinds.TOKEN_NEEDED, kinds.TOKEN_WRONG, *more, kinds.FOREIGN_SITE, kinds.CSRF_WRONG]


ANYBODY = Access(is_open=True)
#: Access for the admin token, and for sessions with at least this role.
VIEWERS = Access(role="viewer")
OPERATORS = Access(role="operator")
ADMINS = Access(role="admin")


def programs(*scopes: Scope, role: Role) -> Access:
    """Return the access for tokens with one of the scopes, and for operators with the role."""
    return Access(frozenset(scopes), role)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One HTTP method of one path. The method `*` stands for all methods."""

    method: str
    path: str
    access: Access
    handler: Handler
    tag: str
    #: The parameters of the path and the query.
    parameters: type[Parameters] | None = None
    #: The models of the request's headers and of a form's fields, only for the OpenAPI document.
    headers: type[Headers] | None = None
    form: type[Body] | None = None
    #: The model of a JSON object in the body, or any type if the handler parses the body itself.
    body: Any = None
    is_body_optional: bool = False
    replies: Replies = field(default_factory=dict)
    #: Headers that replies and problems with status 429 may have, mapped to OpenAPI components.
    reply_headers: Mapping[str, str] = field(default_factory=dict)
    #: False if all replies have Cache-Control: no-store.
    is_cacheable: bool = False
    #: Descriptions of replies in media types other than JSON, by media type.
    other_media: Mapping[str, str] = field(default_factory=dict)
    #: Problems of this endpoint, in addition to those that all_problems adds.
    problems: tuple[Kind, ...] = ()
    #: The models of further members of problem documents, by status.
    problem_members: Mapping[int, Any] = field(default_factory=dict)
    #: True if the handler parses the request and creates the response without the models, which
    #: are then only for the OpenAPI document.
    bypasses_models: bool = False
    #: True if a GET endpoint also answers HEAD.
    allow_head: bool = True
    #: A function that raises UnknownNameError if the path has an unknown name. It is called before
    #: invalid values are reported, so that the client gets status 404.
    find: Callable[[web.Request], object] | None = None
    #: A function that returns the problems that the handler would find in a body. It gets the valid
    #: members of the body and the names of invalid ones, so that one response lists all problems.
    check_members: Callable[[web.Request, Any, set[str]], list[str]] | None = None
    #: Further members of the OpenAPI operation.
    openapi_members: Mapping[str, Any] = field(default_factory=dict)

    @property
    def canonical(self) -> str:
        """Return the path as in OpenAPI, without the patterns of its parameters."""
        return re.sub(r"{(\w+):[^{}]*}", r"{\1}", self.path)

    @property
    def operation_id(self) -> str:
        first, *others = self.handler.__name__.split("_")
        return first + "".join(word.capitalize() for word in others)

    @property
    def summary(self) -> str:
        return self._docs()[0].rstrip(".")

    @property
    def description(self) -> str:
        return self._docs()[1]

    def _docs(self) -> tuple[str, str]:
        paragraphs = (getdoc(self.handler) or "").split("\n\n")
        first, *others = (" ".join(each.split()) for each in paragraphs)
        return first, "\n\n".join(others)

    def all_problems(self) -> list[Kind]:
        """Return the declared problems, and those of access control and of parsing the request. An
        open endpoint that bypasses models declares all its problems."""
        if self.bypasses_models and self.access.is_open:
            return list(self.problems)
        problems = [*self.access.problems(self.path), *self.problems]
        if self.body is not None:
            problems += [kinds.UNREADABLE, kinds.TOO_LARGE]
        if "{" in self.path:
            problems.append(kinds.NOT_FOUND)
        if self.body is not None or self.parameters is not None:
            problems.append(kinds.INVALID_REQUEST)
        return [*problems, kinds.STORE_UNAVAILABLE]

    def route(self) -> web.RouteDef:
        handler: Any = self.handler if self.bypasses_models else self.serve
        options = {} if self.allow_head else {"allow_head": False}
        return web.route(self.method, self.path, handler, **options)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Validate the request and call the handler. Raises InputError that lists all problems, or
        ProblemError if the body is not JSON."""
        models, problems, values = [], list[str](), None
        try:
            if self.parameters is not None:
                query = {name: request.query[name] for name in request.query}
                values = {**query, **request.match_info}
                models.append(read(self.parameters, values, from_text=True))
        except InputError as error:
            problems += error.problems
        try:
            if self.body is not None:
                is_empty = self.is_body_optional and not request.body_exists
                values = {} if is_empty else await read_object(request)
                models.append(read(self.body, values))
        except InputError as error:
            problems += error.problems
            if self.check_members is not None and values is not None:
                valid, invalid = read_valid_members(self.body, values)
                if valid is not None:
                    problems += self.check_members(request, valid, invalid)
        except ProblemError:
            self._check_names(request)
            raise
        if problems:
            self._check_names(request)
            raise InputError(problems)
        reply = await self.handler(request, *models)
        return reply.response() if isinstance(reply, Reply) else reply

    def _check_names(self, request: web.Request) -> None:
        if self.find is not None and request.match_info:
            self.find(request)


def _find_models(handler: Handler) -> dict[str, Any]:
    """Return the models in a handler's annotations: `parameters`, `body` and `return`."""
    models = {}
    for name, model in get_annotations(handler, eval_str=True).items():
        if name == "return":
            models[name] = model
        elif isinstance(model, type) and issubclass(model, Parameters | Body):
            models["parameters" if issubclass(model, Parameters) else "body"] = model
    return models


class Endpoints:
    """The endpoints with one OpenAPI tag, such as "leases", in the order of their declaration. Each
    endpoint has `problems` besides its own, and `find` unless it declares another. `unknown` is the
    problem of an unknown name in the path."""

    def __init__(
        self,
        tag: str,
        *,
        problems: tuple[Kind, ...] = (),
        find: Callable[[web.Request], object] | None = None,
        unknown: Kind | None = None,
    ) -> None:
        self._tag, self._problems, self._find, self._unknown = tag, problems, find, unknown
        self._all: list[Endpoint] = []

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(self._all)

    def declare(self, method: str, path: str, access: Access, **more: Any) -> Callable[[H], H]:
        """Return a decorator that declares a handler as an endpoint. `more` has further fields of
        Endpoint. The fields `parameters` and `body` come from the handler's annotations, and so
        does the model of each reply for which `replies` has only a description."""
        named = () if self._unknown is None or "{" not in path else (self._unknown,)
        more["problems"] = (*named, *self._problems, *more.get("problems", ()))
        more.setdefault("find", self._find)

        def add_endpoint(handler: H) -> H:
            models = {} if more.get("bypasses_models") else _find_models(handler)
            replies = {
                status: (models["return"], reply) if isinstance(reply, str) else reply
                for status, reply in more.get("replies", {}).items()
            }
            models.pop("return", None)
            fields = {**models, **more, "replies": replies}
            self._all.append(Endpoint(method, path, access, handler, self._tag, **fields))
            return handler

        return add_endpoint

    def get(self, path: str, access: Access, **more: Any) -> Callable[[H], H]:
        return self.declare("GET", path, access, **more)

    def post(self, path: str, access: Access, **more: Any) -> Callable[[H], H]:
        return self.declare("POST", path, access, **more)

    def put(self, path: str, access: Access, **more: Any) -> Callable[[H], H]:
        return self.declare("PUT", path, access, **more)

    def patch(self, path: str, access: Access, **more: Any) -> Callable[[H], H]:
        return self.declare("PATCH", path, access, **more)

    def delete(self, path: str, access: Access, **more: Any) -> Callable[[H], H]:
        return self.declare("DELETE", path, access, **more)

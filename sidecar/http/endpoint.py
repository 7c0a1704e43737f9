"""Endpoints, each declared once: the route, who may ask, validation and OpenAPI come from it.

    ENDPOINTS = Endpoints("leases", problems=(UNKNOWN_LEASE,))

    @ENDPOINTS.put(
        "/v1/leases/{template}/{resource}",
        programs("leases", role="operator"),
        replies={200: "The holder has it."},
        problems=(LEASE_OVER,),
    )
    async def renew_lease(request: web.Request, at: LeaseAddress, body: RenewLease) -> Lease:
        '''Begin the term anew.

        The first paragraph is the summary, what follows is the description.
        '''

A handler is called with the request and the models that its annotations name, and returns a model,
or a response where status or headers are its own. Its name is the operationId.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from inspect import get_annotations, getdoc
from typing import Any, TypeAlias, TypeVar

from aiohttp import web

from sidecar.http import problem_kinds as kinds
from sidecar.http.auth.rights import Role, Scope
from sidecar.http.models import Body, Headers, Parameters, Reply, object_of, read
from sidecar.http.problem_kinds import Kind
from sidecar.kit.errors import ConfigError

Handler: TypeAlias = Callable[..., Awaitable[web.StreamResponse | Reply]]
H = TypeVar("H", bound=Handler)
#: A model (None: bytes of any type), what the status means, and headers that it comes with.
Replies: TypeAlias = Mapping[int, tuple[Any, str] | tuple[Any, str, "type[Headers]"]]


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask. The admin token may always."""

    #: Of a program's token, one of these opens it; none: it is for operators.
    scopes: frozenset[Scope] = frozenset()
    #: The least that an operator's session needs.
    role: Role = "admin"
    is_open: bool = False

    def problems(self, path: str) -> list[Kind]:
        if self.is_open:
            return []
        found = [kinds.TOKEN_NEEDED, kinds.TOKEN_WRONG]
        if path.startswith("/admin/"):
            found += [kinds.ADMINISTRATION_OFF, kinds.TOO_MANY_WRONG_TOKENS]
        else:
            found += [
                kinds.SERVICE_OFF,
                kinds.SCOPE_MISSING if self.scopes else kinds.OPERATORS_ONLY,
            ]
        if self.role != "viewer":
            found.append(kinds.ROLE_TOO_LOW)
        return [*found, kinds.FOREIGN_SITE, kinds.CSRF_WRONG]


ANYBODY = Access(is_open=True)
#: Operators' alone: by the admin token, or by a session of at least this role.
VIEWERS = Access(role="viewer")
OPERATORS = Access(role="operator")
ADMINS = Access(role="admin")


def programs(*scopes: Scope, role: Role) -> Access:
    return Access(frozenset(scopes), role)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One method of one path; the method `*` is any."""

    method: str
    path: str
    access: Access
    handler: Handler
    tag: str
    #: Of the path and the query.
    parameters: type[Parameters] | None = None
    #: For a hand-made handler: of the request; and what a browser's form has.
    headers: type[Headers] | None = None
    form: type[Body] | None = None
    #: A JSON object; any type where the handler reads the body itself.
    body: Any = None
    is_body_optional: bool = False
    replies: Replies = field(default_factory=dict)
    #: Headers that replies, and refusals with 429, may have: their names in the OpenAPI document.
    reply_headers: Mapping[str, str] = field(default_factory=dict)
    #: Replies have their own Cache-Control, or none; others are no-store.
    is_cacheable: bool = False
    #: What replies may be written in beside JSON, with what it looks like.
    other_media: Mapping[str, str] = field(default_factory=dict)
    #: What it may answer beside what all may: problem documents.
    problems: tuple[Kind, ...] = ()
    #: By status: whose members a problem document has as well.
    problem_members: Mapping[int, Any] = field(default_factory=dict)
    #: The handler reads the request and writes the response itself: the models describe it.
    is_hand_made: bool = False
    #: To a GET.
    allow_head: bool = True
    #: Finds what the path names: that there is none goes before what is wrong with the rest.
    find: Callable[[web.Request], object] | None = None
    #: What else its OpenAPI operation says.
    described: Mapping[str, Any] = field(default_factory=dict)

    @property
    def canonical(self) -> str:
        """The path as OpenAPI writes it."""
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
        """Those of its access and of reading what it reads, too. An open one that is hand-made
        names all of its own."""
        if self.is_hand_made and self.access.is_open:
            return list(self.problems)
        found = [*self.access.problems(self.path), *self.problems]
        if self.body is not None:
            found += [kinds.UNREADABLE, kinds.TOO_LARGE]
        if "{" in self.path:
            found.append(kinds.NOT_FOUND)
        if self.body is not None or self.parameters is not None:
            found.append(kinds.INVALID_REQUEST)
        return [*found, kinds.STORE_UNAVAILABLE]

    def route(self) -> web.RouteDef:
        handler: Any = self.handler if self.is_hand_made else self.serve
        more = {} if self.allow_head else {"allow_head": False}
        return web.route(self.method, self.path, handler, **more)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Calls the handler with what was sent; ConfigError names all that is wrong with it."""
        models, problems = [], []
        try:
            if self.parameters is not None:
                query = {name: request.query[name] for name in request.query}
                named = {**query, **request.match_info}
                models.append(read(self.parameters, named, from_text=True))
        except ConfigError as error:
            problems += error.problems
        try:
            if self.body is not None:
                models.append(read(self.body, await object_of(request)))
        except ConfigError as error:
            problems += error.problems
        if problems:
            if self.find is not None and request.match_info:
                self.find(request)
            raise ConfigError(problems)
        reply = await self.handler(request, *models)
        return reply.response() if isinstance(reply, Reply) else reply


def _annotated(handler: Handler) -> dict[str, Any]:
    """The models that a handler's annotations name, by the field of an Endpoint; and `return`."""
    models = {}
    for name, model in get_annotations(handler, eval_str=True).items():
        if name == "return":
            models[name] = model
        elif isinstance(model, type) and issubclass(model, Parameters | Body):
            models["parameters" if issubclass(model, Parameters) else "body"] = model
    return models


class Endpoints:
    """A product's endpoints, in the order of their declaration. `problems`, `find`: of each."""

    def __init__(
        self,
        tag: str,
        *,
        problems: tuple[Kind, ...] = (),
        find: Callable[[web.Request], object] | None = None,
    ) -> None:
        self._tag, self._problems, self._find = tag, problems, find
        self._all: list[Endpoint] = []

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(self._all)

    def declare(self, method: str, path: str, access: Access, **more: Any) -> Callable[[H], H]:
        """`more`: the other fields of an Endpoint. What the handler's annotations say need not be
        said: `parameters`, `body`, and of replies the model, where it is what is returned."""
        more["problems"] = (*self._problems, *more.get("problems", ()))
        more.setdefault("find", self._find)

        def add(handler: H) -> H:
            models = {} if more.get("is_hand_made") else _annotated(handler)
            replies = {
                status: (models["return"], reply) if isinstance(reply, str) else reply
                for status, reply in more.pop("replies", {}).items()
            }
            models.pop("return", None)
            fields = {**models, **more, "replies": replies}
            self._all.append(Endpoint(method, path, access, handler, self._tag, **fields))
            return handler

        return add

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

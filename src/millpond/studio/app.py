"""The web application of the studio: the page, and the questions that its script asks.

Only pages of this machine may use it: requests with another host name are refused, because a foreign page
could have its own name resolved to this machine; so are questions of pages from another origin.  The page may
neither load nor send anything elsewhere, nor run a script that is not a file of this package.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millpond.studio.examples import list_examples
from millpond.studio.workers import BusyError, TooSlowError, WorkerFailedError, WorkerPool

MAX_BODY_BYTES = 64 * 1024
# The time limit of each task, in seconds.
TIME_LIMITS = {"check": 5.0, "details": 10.0, "repairs": 20.0}
_BODY_SECONDS = 5.0  # in which a request has to arrive
_STATIC = Path(__file__).parent / "static"
_TOO_SLOW = {
    "details": "it takes longer than {:g} s to find the details; use millpond report",
    "check": "it takes longer than {:g} s to decide this text; use millpond check",
    "repairs": "it takes longer than {:g} s to find repairs; use millpond repair",
}
_HEADERS = {
    "Cache-Control": "no-cache",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
# The editor adds its style sheet by script, which the nonce allows.  Browsers themselves add style attributes
# to text that is edited.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; "
    "style-src-attr 'unsafe-inline'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def make_app(pool: WorkerPool) -> Starlette:
    """The application, whose questions the workers of the pool answer."""

    @contextlib.asynccontextmanager
    async def run_pool(_: Starlette) -> AsyncIterator[None]:
        await pool.start()
        try:
            yield
        finally:
            await pool.stop()

    async def answer(request: Request) -> Response:
        task = request.path_params["task"]
        if task not in TIME_LIMITS:
            raise HTTPException(404)
        question = {"task": task, **await _read_question(request)}
        return await _unless_disconnected(request, _ask(pool, question))

    return Starlette(
        routes=[
            Route("/", _show_page),
            Route("/colours.css", _send_colours),
            Route("/api/examples", _send_examples),
            Route("/api/{task}", answer, methods=["POST"]),
            Mount("/static", StaticFiles(directory=_STATIC)),
        ],
        middleware=[
            Middleware(_SecurityHeaders),
            Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"], www_redirect=False),
        ],
        exception_handlers={HTTPException: _report_refusal, ClientDisconnect: _respond_to_nobody},
        lifespan=run_pool,
    )


# --- the page ----------------------------------------------------------------------------------------


async def _show_page(_: Request) -> Response:
    nonce = secrets.token_urlsafe(16)
    page = (_STATIC / "index.html").read_text(encoding="utf-8").replace("{{nonce}}", nonce)
    return HTMLResponse(page, headers={"Content-Security-Policy": _POLICY.format(nonce=nonce)})


def _send_colours(_: Request) -> Response:
    """The style sheet of colours; what it is made from is imported at the first request, in a thread."""
    from millpond.studio.colours import render_style

    return Response(render_style(), media_type="text/css")


async def _send_examples(_: Request) -> Response:
    return JSONResponse([example.to_json() for example in list_examples()])


# --- questions ---------------------------------------------------------------------------------------


async def _read_question(request: Request) -> dict[str, Any]:
    """The text, and the number of the query that the question is about; HTTPException if it is not valid."""
    origin = request.headers.get("origin")
    if origin is not None and origin != f"http://{request.headers['host']}":
        raise HTTPException(403, "only the page of the studio may ask")
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "send JSON")
    try:
        body = await asyncio.wait_for(_read_body(request), _BODY_SECONDS)
        question = json.loads(body)
        text, query = question["text"], question.get("query", 0)
        text.encode()  # fails for half a pair of surrogates, which is not text
    except TimeoutError:
        raise HTTPException(408, "the request did not arrive in time") from None
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise HTTPException(400, 'send {"text": "…"}') from None
    if type(query) is not int:
        raise HTTPException(400, "the number of the query must be a whole number")
    return {"text": text, "query": query}


async def _read_body(request: Request) -> bytes:
    """The body; HTTPException as soon as it is larger than allowed."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            limit = f"{MAX_BODY_BYTES // 1024} kB"
            raise HTTPException(413, f"the text is larger than {limit}; use millpond check")
    return bytes(body)


async def _ask(pool: WorkerPool, question: dict[str, Any]) -> Response:
    task, seconds = question["task"], TIME_LIMITS[question["task"]]
    try:
        return Response(await pool.ask(question, seconds), media_type="application/json")
    except BusyError:
        raise HTTPException(503, "too many questions at once; try again") from None
    except TooSlowError:
        raise HTTPException(504, _TOO_SLOW[task].format(seconds)) from None
    except WorkerFailedError:
        raise HTTPException(500, "the process that decides ended; see the terminal") from None


async def _unless_disconnected(request: Request, work: Coroutine[Any, Any, Response]) -> Response:
    """The response; ClientDisconnect if the client goes first, and then the work is cancelled."""
    working = asyncio.create_task(work)
    leaving = asyncio.ensure_future(request.receive())  # after the body, the next message is the disconnect
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _report_refusal(_: Request, refusal: Exception) -> Response:
    assert isinstance(refusal, HTTPException)
    return JSONResponse({"error": {"message": refusal.detail}}, refusal.status_code)


async def _respond_to_nobody(_: Request, __: Exception) -> Response:
    return Response(status_code=400)


class _SecurityHeaders:
    """Adds the headers that keep the page to itself to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
            await send(message)

        await self._app(scope, receive, send_with_headers)

"""Who may talk to the viewer, and what text may do in it."""

from __future__ import annotations

import http
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

LOCAL_NAMES = ("127.0.0.1", "localhost")
"""Names under which the browser of this machine reaches the viewer."""


@contextmanager
def only_this_machine() -> Iterator[None]:
    """A server of viser that starts in this block answers only the page that it serves itself.

    A page from elsewhere that is open in the same browser can reach 127.0.0.1 too: it shows by its Origin, or, where a
    name of its own was made to point here, by its Host. Viser leaves both unchecked and has no setting for them.
    """
    import websockets.asyncio.server

    serve = websockets.asyncio.server.serve

    def guarded(*arguments: Any, process_request: Callable | None = None, **settings: Any) -> Any:
        def check_first(connection: Any, request: Any) -> Any:
            port = connection.local_address[1]
            if not allowed(request.headers.get("Host"), request.headers.get("Origin"), port):
                return connection.respond(http.HTTPStatus.FORBIDDEN, "Open the address that proba printed.\n")
            return process_request(connection, request) if process_request else None

        return serve(*arguments, process_request=check_first, **settings)

    websockets.asyncio.server.serve = guarded  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        websockets.asyncio.server.serve = serve  # type: ignore[misc]


def allowed(host: str | None, origin: str | None, port: int) -> bool:
    """Whether a request is addressed to this machine and comes from the viewer's own page, or from no page."""
    hosts = {f"{name}:{port}" for name in LOCAL_NAMES}
    return host in hosts and (origin is None or origin in {f"http://{name}" for name in hosts})


def plain_markdown(text: str) -> str:
    """Markdown that shows a text as it is: the panel would take tags and braces in it for page content and script."""
    return re.sub(r"[^\w .,:%·°-]", lambda found: f"&#{ord(found[0])};", text).replace("_", "&#95;")

"""The web application: one page, its style and script, and the address that segments an image."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from faircl.errors import UserError
from faircl.serving.answers import answer
from faircl.serving.guard import Guard
from faircl.serving.limits import Limits, Refused, size_in_words
from faircl.serving.networks import Networks
from faircl.serving.page import Page
from faircl.serving.uploads import decode_upload, is_turned

WHOLE, TILE = 2048 * 2048, 1024
"""Images of more pixels than the first are segmented in windows of the second, to bound the memory."""
_DRAINED = 10
"""How many times the accepted size is read of an upload that is too large: a browser reads no answer before the end."""
_NAME = 120


class Server:
    """Segments uploaded images, one at a time; nothing of them is kept or written."""

    def __init__(self, networks: Networks, limits: Limits) -> None:
        self.networks, self.limits = networks, limits
        self._turn = asyncio.Lock()

    async def segment(self, request: Request) -> Response:
        """Answer ``POST /segment?choice=VERSION-STEP&name=FILE`` with the image file as its body."""
        name = request.query_params.get("name", "")[:_NAME] or "without a name"
        try:
            choice = self.networks.choice(request.query_params.get("choice", "")).key
            data = await read_body(request, name, self.limits.max_bytes)
            async with self._turn:
                if await request.is_disconnected():  # the page has asked for something else since
                    return Response(status_code=400)
                return JSONResponse(await asyncio.to_thread(self._segment, choice, data, name))
        except ClientDisconnect:
            return Response(status_code=400)
        except asyncio.CancelledError:  # Ctrl-C
            return JSONResponse({"problem": "The server is being stopped; start it again: faircl serve RUN."}, 503)
        except UserError as error:
            status = error.status if isinstance(error, Refused) else 422
            return JSONResponse({"problem": str(error)}, status)

    def _segment(self, choice: str, data: bytes, name: str) -> dict[str, Any]:
        network = self.networks.get(choice)
        image = decode_upload(data, name, network.reading, self.limits)
        tile = TILE if image.shape[0] * image.shape[1] > WHOLE else None
        start = time.perf_counter()
        found = network.segment(image, tile)
        seconds = time.perf_counter() - start
        notes = ["It is shown as it is stored: the turn that the camera noted is not applied."] * is_turned(data)
        notes += [f"It was segmented in windows of {TILE} pixels."] * (tile is not None)
        return answer(network, image, found) | {"name": name, "seconds": seconds, "notes": notes}


async def read_body(request: Request, name: str, limit: int) -> bytes:
    """Return the body of a request; more bytes than the limit are counted while they arrive, and not kept."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size <= limit:
            parts.append(part)
        else:
            parts.clear()
        if size > _DRAINED * limit:
            break
    if size > limit:
        raise Refused(
            413,
            f"File {name} has more than {size_in_words(limit)}, the most that is accepted: make it smaller, or start "
            "the server with a larger --max-bytes.",
        )
    return b"".join(parts)


def make_app(networks: Networks, page: Page, limits: Limits, host: str) -> Starlette:
    """Return the application for a server that listens at ``host``."""
    server = Server(networks, limits)

    async def html(request: Request) -> Response:
        return HTMLResponse(page.html)

    async def css(request: Request) -> Response:
        return Response(page.css, media_type="text/css")

    async def script(request: Request) -> Response:
        return Response(page.script, media_type="text/javascript")

    async def failed(request: Request, error: Exception) -> Response:
        problem = f"The server failed on this image ({type(error).__name__}); its terminal says more."
        return JSONResponse({"problem": problem}, 500)

    routes = [Route("/", html), Route("/page.css", css), Route("/page.js", script)]
    routes += [Route("/segment", server.segment, methods=["POST"])]
    return Starlette(routes=routes, middleware=[Middleware(Guard, host=host)], exception_handlers={Exception: failed})

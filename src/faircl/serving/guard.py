"""Who may ask: requests of other sites are refused, and a browser is told what the page may load."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
EVERYWHERE = frozenset({"0.0.0.0", "::"})
"""Addresses that stand for all network cards."""


class Guard:
    """Checks the headers Host and Origin before any other code sees a request, and adds `HEADERS` to every answer.

    A page of another site can make a browser send requests to this machine. If it gives its own name this machine's
    address (DNS rebinding), it could read the answers too; the header Host then holds its name. What a page of another
    address sends carries that address as its Origin.
    """

    def __init__(self, app: ASGIApp, host: str) -> None:
        self.app, self.host = app, host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        headers = Headers(scope=scope)
        problem = self._problem(headers, scope["method"])
        answer = self.app if problem is None else JSONResponse({"problem": problem}, 403)
        await answer(scope, receive, send_guarded)

    def _problem(self, headers: Headers, method: str) -> str | None:
        """Return why a request is refused; None if it is not."""
        host = headers.get("host", "")
        if not self._is_own_name(host_name(host)):
            return f"The address {host!r} is not one of this server; open the one that 'faircl serve' printed."
        if method not in ("GET", "HEAD") and headers.get("origin") not in (f"http://{host}", f"https://{host}"):
            return "Images are accepted from this server's own page only; open it and choose the image there."
        return None

    def _is_own_name(self, name: str) -> bool:
        return name in LOCAL or name == self.host.lower() or (self.host in EVERYWHERE and _is_address(name))


def host_name(host: str) -> str:
    """Return the name in a header Host, without port and brackets; empty if it is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    """Whether a name is an address in numbers, which nobody else can give to this machine."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True

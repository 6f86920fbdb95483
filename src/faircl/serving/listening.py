"""The socket that the server listens at, and the loop that answers."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

from faircl.errors import UserError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

HOST, PORT = "127.0.0.1", 8765
_CONNECTIONS = 32


def check_possible() -> None:
    """Raise a UserError if a package of the extra ``serve`` is missing, or an event loop runs already."""
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise UserError(
            f"The page needs {' and '.join(missing)}, not installed here; install with: pip install 'faircl[serve]'."
        )
    with suppress(RuntimeError):  # there is none
        asyncio.get_running_loop()
        raise UserError("A notebook's own event loop cannot run the page; start it in a terminal: faircl serve RUN.")


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at a host's port, 0 for any free one; a UserError if that is not possible."""
    if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= 65535:
        raise UserError(f"The port is {port!r}; expected a whole number from 0, any free one, to 65535.")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=_CONNECTIONS)
    except socket.gaierror:
        raise UserError(f"The host {host!r} is not known here; give a name or address of this machine.") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UserError(
                f"Port {port} of {host} is in use; choose another with --port, or --port 0 for any free one."
            ) from None
        raise UserError(
            f"Cannot listen at port {port} of {host}: {error.strerror or error}; choose others with --host and --port."
        ) from None


def page_address(host: str, listening: socket.socket) -> str:
    """Return the address to open in a browser."""
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{name}]' if ':' in name else name}:{listening.getsockname()[1]}/"


def answer_until_stopped(
    app: ASGIApp, listening: socket.socket, started: Callable[[], None], waiting: Callable[[], None]
) -> None:
    """Answer requests until Ctrl-C; ``started`` is called when the first one can be answered.

    Ctrl-C refuses open requests at once; ``waiting`` is called if there are any. An image that is being segmented is
    waited for, because torch cannot be interrupted.
    """
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            started()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            if self.server_state.tasks:
                waiting()
            for task in self.server_state.tasks:
                task.cancel()
            await super().shutdown(sockets)

    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        limit_concurrency=_CONNECTIONS,
    )
    with suppress(KeyboardInterrupt):
        Server(config).run(sockets=[listening])

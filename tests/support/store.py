"""An S3 server on this machine that counts what it sends, and fails where it is told to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Store:
    """The server.

    Attributes:
        url: where it listens.
        sent: bytes of objects that it sent.
        requests: for ranges of objects.
        whole: objects that it sent without being asked for a range.
        forbidden: parts of the names of objects that it gives to nobody.
        vanished: of those that it lists and no longer has.
        dropped: of those in whose place it hangs up.
    """

    url: str = ""
    sent: int = 0
    requests: int = 0
    whole: list[str] = field(default_factory=list)
    forbidden: set[str] = field(default_factory=set)
    vanished: set[str] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)


@contextmanager
def served() -> Iterator[Store]:
    """Moto's S3 on a free port."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    store, lock = Store(), threading.Lock()
    inner = DomainDispatcherApplication(create_backend_app)

    def outer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if (
            environ["REQUEST_METHOD"] not in ("GET", "HEAD")
            or path.count("/") < 2
            or path[-1] == "/"
        ):
            return inner(environ, start)
        for names, status in (
            (store.forbidden, "403 Forbidden"),
            (store.vanished, "404 Not Found"),
        ):
            if any(name in path for name in names):
                start(status, [("Content-Length", "0")])
                return []
        if any(name in path for name in store.dropped):
            environ["werkzeug.socket"].shutdown(2)
            return []
        body = inner(environ, start)
        if environ["REQUEST_METHOD"] == "GET":
            body = list(body)
            with lock:
                store.requests += 1
                store.sent += sum(map(len, body))
                if "HTTP_RANGE" not in environ:
                    store.whole.append(path)
        return body

    server = make_server("127.0.0.1", 0, outer, threaded=True)
    store.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

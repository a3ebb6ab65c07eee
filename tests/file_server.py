"""A web server for tests: ranges, connections that break, and a record of what was asked."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FileServer(ThreadingHTTPServer):
    """Serves bytes by path.

    Attributes:
        files: content by path.
        breaks: after how many bytes the next answers for a path end, one entry per answer.
        ranges: whether parts of a file can be asked for.
        asked: path and Range header of every request.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.breaks: dict[str, list[int]] = {}
        self.ranges = True
        self.asked: list[tuple[str, str | None]] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: FileServer

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append((self.path, wanted))
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        part = start > 0 and self.server.ranges
        body = content[start:] if part else content
        self.send_response(206 if part else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        breaks = self.server.breaks.get(self.path)
        self.wfile.write(body[: breaks.pop(0)] if breaks else body)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@contextmanager
def serving() -> Iterator[FileServer]:
    with FileServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()

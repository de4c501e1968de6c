"""A replica that lies: it states the digest of the true file and sends some other bytes.

A damaged disk below a storage server that remembers its checksums behaves like this. A client that trusts the
server's word gets a wrong file and no error.
"""

import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Liar:
    """Serves one file on a free port, no faster than `rate` bytes per second, with one byte in 1 MB changed."""

    def __init__(self, path, adler32, rate):
        handler = type("Handler", (_Handler,), {"path_served": path, "adler32": adler32, "rate": rate})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/{path.name}"

    def stop(self):
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    damage_every = 1_000_000
    lock = threading.Lock()
    free_at = 0.0

    def do_HEAD(self):
        self._answer(with_body=False)

    def do_GET(self):
        self._answer(with_body=True)

    def _answer(self, with_body):
        size = self.path_served.stat().st_size
        first, end, status = 0, size, 200
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked:
            first, status = int(asked[1]), 206
            end = min(size, int(asked[2]) + 1) if asked[2] else size
            if first >= size:
                self.send_error(416)
                return
        self.send_response(status)
        self.send_header("Content-Length", str(end - first))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{self.adler32}"')
        if self.headers.get("Want-Digest"):
            self.send_header("Digest", f"adler32={self.adler32}")
        if status == 206:
            self.send_header("Content-Range", f"bytes {first}-{end - 1}/{size}")
        self.end_headers()
        if with_body:
            self._send(first, end)

    def _send(self, first, end):
        with open(self.path_served, "rb") as file:
            file.seek(first)
            while first < end:
                piece = bytearray(file.read(min(256 * 1024, end - first)))
                damaged = -first % self.damage_every
                if damaged < len(piece):
                    piece[damaged] ^= 0x20
                self._wait_for(len(piece))
                try:
                    self.wfile.write(piece)
                except OSError:  # the client has had enough of it
                    self.close_connection = True
                    return
                first += len(piece)

    def _wait_for(self, count):
        """One rate for all connections together."""
        cls = type(self)
        with cls.lock:
            start = max(time.monotonic(), cls.free_at)
            cls.free_at = start + count / self.rate
        time.sleep(max(0.0, start - time.monotonic()))

    def log_message(self, *_):
        pass

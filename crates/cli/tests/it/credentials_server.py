"""A server of HTTPS, and of HTTP, that writes the credentials down that it is shown: one JSON object a request.

Python's TLS is OpenSSL, told to take proxies (RFC 3820). Its settings are one JSON object on the command line; it says
its two ports on standard output.
"""

import http.server
import json
import ssl
import sys
import threading
import time

SETTINGS = json.loads(sys.argv[1])
LOCK = threading.Lock()
STORED = {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def date_time_string(self, timestamp=None):
        return super().date_time_string((timestamp or time.time()) + SETTINGS.get("ahead_s", 0))

    def peer(self):
        if not isinstance(self.connection, ssl.SSLSocket):
            return None
        certificate = self.connection.getpeercert()
        names = [value for name in certificate["subject"] for _, value in name] if certificate else []
        return "/".join(names) or None

    def reply(self, status, body=b"", fields=()):
        self.send_response(status)
        for name, value in fields:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def handle_request(self):
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        authorization = self.headers.get("Authorization")
        peer = self.peer()
        seen = {
            "method": self.command,
            "path": self.path,
            "tls": isinstance(self.connection, ssl.SSLSocket),
            "authorization": authorization,
            "peer": peer,
        }
        with LOCK, open(SETTINGS["log"], "a", encoding="utf-8") as log:
            log.write(json.dumps(seen) + "\n")
        path = self.path.split("?")[0]
        if path in SETTINGS.get("redirects", {}):
            return self.reply(302, fields=[("Location", SETTINGS["redirects"][path])])
        wanted = SETTINGS.get("wants")
        if wanted is not None and wanted not in (authorization, peer, self.path.partition("?")[2]):
            challenge = 'Bearer realm="r", error="invalid_token", error_description="not this one"'
            return self.reply(401, f"no: {authorization}\n".encode(), [("WWW-Authenticate", challenge)])
        if self.command == "PUT":
            STORED[path] = body
            return self.reply(201)
        return self.reply(200, STORED.get(path, b"x" * SETTINGS.get("size", 1000)))

    do_GET = do_HEAD = do_PUT = do_DELETE = do_OPTIONS = do_PROPFIND = handle_request

    def log_message(self, *_):
        pass


def serve(tls):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(SETTINGS["cert"], SETTINGS["key"])
if "authority" in SETTINGS:
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(SETTINGS["authority"])
    context.verify_flags |= ssl.VERIFY_ALLOW_PROXY_CERTS
print(serve(context), serve(None), flush=True)
sys.stdin.read()

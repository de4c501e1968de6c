"""Which version and cipher a client and a server agree on: what went over the wire says it, not what they were told."""

import socket
import ssl
import struct
import threading

CIPHERS = {0x1301: "TLS_AES_128_GCM_SHA256", 0x1302: "TLS_AES_256_GCM_SHA384", 0x1303: "TLS_CHACHA20_POLY1305_SHA256"}
_SERVER_HELLO, _SUPPORTED_VERSIONS = 2, 43


class Listener:
    """A relay to a port of this machine that remembers the first answer of the server."""

    def __init__(self, port):
        self._to = port
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._hello = b""
        threading.Thread(target=self._accept, daemon=True).start()

    def seen(self):
        """Version and cipher, as text."""
        return server_hello(self._hello)

    def close(self):
        self._socket.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._to))
            threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def _pump(self, source, target, from_server):
        try:
            while data := source.recv(1 << 16):
                if from_server and len(self._hello) < 200:
                    self._hello += data
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def server_hello(data):
    """What a ServerHello in the first record says. RFC 8446, section 4.1.3."""
    if len(data) < 44 or data[5] != _SERVER_HELLO:
        return "unknown"
    at = 5 + 4 + 2 + 32
    at += 1 + data[at]
    cipher, _, extensions = struct.unpack_from(">HBH", data, at)
    at += 5
    end, version = at + extensions, struct.unpack_from(">H", data, 9)[0]
    while at + 4 <= min(end, len(data)):
        kind, length = struct.unpack_from(">HH", data, at)
        if kind == _SUPPORTED_VERSIONS:
            version = struct.unpack_from(">H", data, at + 4)[0]
        at += 4 + length
    name = {ssl.TLSVersion.TLSv1_2: "TLS 1.2", ssl.TLSVersion.TLSv1_3: "TLS 1.3"}.get(version, hex(version))
    return f"{name}, {CIPHERS.get(cipher, hex(cipher))}"

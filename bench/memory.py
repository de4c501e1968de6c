"""What many connections cost a server in memory: its own, and the kernel's buffers of its sockets."""

import re
import select
import socket
import ssl
import subprocess
import time
from pathlib import Path

from processes import peak_kib


def kernel_bytes():
    """What the kernel holds for all TCP sockets of the machine."""
    line = next(line for line in Path("/proc/net/sockstat").read_text().splitlines() if line.startswith("TCP:"))
    return 4096 * int(line.split()[line.split().index("mem") + 1])


def socket_bytes(port):
    """What the kernel holds for the sockets of a server, after ss(8): received, sent, and reserved for more."""
    shown = subprocess.run(["ss", "-tmnHO", "sport", "=", f":{port}"], capture_output=True, text=True, check=False).stdout
    return sum(int(r) + int(f) + int(w) for r, f, w in re.findall(r"skmem:\(r(\d+),.*?,f(\d+),w(\d+),", shown))


def port_of(server):
    return int(server.url("").rsplit(":", 1)[1].rstrip("/"))


def idle(server, authority, count):
    """Connections over TLS that have each had one answer, and wait."""
    connections = _connect(server, authority, count)
    for connection in connections:
        _request(connection, "small")
    for connection in connections:
        # The answer is small: one read has it, or the next.
        got = b""
        while b"\r\n\r\n" not in got:
            got += connection.recv(1 << 14)
    return _figures(server, connections, 0)


def slow_readers(server, authority, count, seconds):
    """Connections over TLS that each receive a large file, a few KB at a time: the server always has more to send."""
    connections = _connect(server, authority, count)
    for connection in connections:
        _request(connection, "big")
    end, received = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        for connection in connections:
            received += len(connection.recv(1 << 14))
    return _figures(server, connections, received)


def writers(server, authority, count, seconds):
    """Connections over TLS that each store a file, as fast as one thread writes to all of them."""
    connections = _connect(server, authority, count)
    for number, connection in enumerate(connections):
        head = f"PUT /put/part-{number} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"
        connection.sendall(head.encode())
        connection.setblocking(False)
    end, sent, block = time.monotonic() + seconds, 0, bytes(1 << 14)
    while time.monotonic() < end:
        _, ready, _ = select.select([], connections, [], 0.1)
        for connection in ready:
            try:
                sent += connection.send(block)
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                pass
    return _figures(server, connections, sent)


def _connect(server, authority, count):
    context = ssl.create_default_context(cafile=authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    port = port_of(server)
    connections = []
    for _ in range(count):
        raw = socket.create_connection(("127.0.0.1", port), 30)
        connections.append(context.wrap_socket(raw, server_hostname="127.0.0.1"))
    return connections


def _request(connection, name):
    connection.sendall(f"GET /{name} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())


def _figures(server, connections, moved):
    figures = {
        "connections": len(connections),
        "moved_bytes": moved,
        "peak_bytes": 1024 * peak_kib(server),
        "socket_bytes": socket_bytes(port_of(server)),
        "kernel_bytes": kernel_bytes(),
    }
    for connection in connections:
        connection.close()
    return figures

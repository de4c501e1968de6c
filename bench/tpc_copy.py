#!/usr/bin/env python3
"""The initiator of the measurements: it sends COPY requests, reads the markers, and prints how long that took.

Run as a process of its own, for any server alike: `tpc_copy.py LIST`, where LIST is a file with a JSON array of copies,
{"target": URL, "sources": [URL…]}. It prints one JSON object; a copy that fails ends the program with 1 and says why.
"""

import argparse
import http.client
import json
import ssl
import sys
import time
from urllib.parse import urlsplit

# A server that says nothing for so long is hung.
SILENCE_S = 120


class Failure(Exception):
    """What a server said that is no success."""


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("list", help="the copies, as JSON")
    arguments.add_argument("--ca", help="trust the authorities in this PEM file")
    arguments.add_argument("--streams", type=int, help="X-Number-Of-Streams")
    arguments.add_argument("--pause", type=float, default=0.0, help="seconds between two copies")
    options = arguments.parse_args()
    with open(options.list) as file:
        copies = json.load(file)
    tls = ssl.create_default_context(cafile=options.ca)
    fields = [("Credential", "none"), ("Overwrite", "T")]
    if options.streams is not None:
        fields.append(("X-Number-Of-Streams", str(options.streams)))
    connections, found = Connections(tls), []
    began = time.monotonic()
    for wanted in copies:
        if found:
            time.sleep(options.pause)
        try:
            found.append(copy(connections, wanted, fields))
        except (Failure, OSError, http.client.HTTPException) as error:
            print(f"{wanted['target']}: {error or type(error).__name__}", file=sys.stderr)
            return 1
    seconds = time.monotonic() - began
    # As the events of `gridlane cp` are, of which a summary is the last.
    print(json.dumps({"type": "summary", "seconds": seconds, "copies": found}))
    return 0


class Connections:
    """One to each server, kept for the next copy where the server keeps it too."""

    def __init__(self, tls):
        self._tls, self._open = tls, {}

    def to(self, url):
        parts = urlsplit(url)
        key = parts.scheme, parts.netloc
        if key not in self._open:
            if parts.scheme == "https":
                self._open[key] = http.client.HTTPSConnection(parts.netloc, timeout=SILENCE_S, context=self._tls)
            else:
                self._open[key] = http.client.HTTPConnection(parts.netloc, timeout=SILENCE_S)
        return self._open[key]


def copy(connections, wanted, fields):
    """One copy to its last line: its seconds, the status, and the number of markers."""
    began = time.monotonic()
    connection = connections.to(wanted["target"])
    is_kept = connection.sock is not None
    try:
        answer = ask(connection, wanted, fields)
    except (http.client.RemoteDisconnected, ConnectionError):
        connection.close()
        # One that was kept may have ended meanwhile; a new one has no excuse.
        if not is_kept:
            raise
        answer = ask(connection, wanted, fields)
    if answer.status not in (200, 201, 202):
        text = answer.read(2000).decode(errors="replace")
        raise Failure(f"{answer.status} {answer.reason}: {' '.join(text.split())}")
    markers, last = 0, ""
    for line in answer:
        line = line.decode(errors="replace").strip()
        markers += line.lower() == "end"
        last = line or last
    if not last.lower().startswith("success"):
        raise Failure(last or "an answer without a last line")
    return {"seconds": time.monotonic() - began, "status": answer.status, "markers": markers, "last": last}


def ask(connection, wanted, fields):
    parts = urlsplit(wanted["target"])
    connection.putrequest("COPY", parts.path, skip_accept_encoding=True)
    for source in wanted["sources"]:
        connection.putheader("Source", source)
    for name, value in fields:
        connection.putheader(name, value)
    connection.endheaders()
    return connection.getresponse()


if __name__ == "__main__":
    sys.exit(main())

"""Servers for the tests: the real binary on free ports, and other people's.

`GRIDLANE_BINARY` names the binary (else that of a debug build), `GRIDLANE_DATA` the directory of real files (else `../shared/data`
beside the clone; where there is neither, files are made that take their places).
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator

import pytest
import standins

ROOT = pathlib.Path(__file__).resolve().parents[2]


def binary() -> pathlib.Path:
    named = os.environ.get("GRIDLANE_BINARY")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    found = pathlib.Path(named) if named else target / "debug" / "gridlane"
    assert found.is_file(), f"{found} is missing: cargo build -p gridlane-cli"
    return found


@functools.cache
def data_directory() -> pathlib.Path:
    named = os.environ.get("GRIDLANE_DATA")
    found = pathlib.Path(named) if named else ROOT.parent / "shared" / "data"
    if (found / "root").is_dir():
        return found
    assert not named, f"GRIDLANE_DATA names {found}, which has no real files"
    made = tempfile.TemporaryDirectory(prefix="gridlane-standins-")
    atexit.register(made.cleanup)
    return standins.make(pathlib.Path(made.name))


def pytest_report_header() -> str:
    return f"files to read: {data_directory()}"


def until(what: str, condition) -> None:
    """Waits for a condition, with a deadline."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.02)


class Serve:
    """A `gridlane serve` of a directory."""

    def __init__(self, directory: pathlib.Path, home: pathlib.Path, *options: str) -> None:
        self.directory = directory
        self.home = home
        command = [str(binary()), "--json", "serve", str(directory), "--listen", "127.0.0.1:0", *options]
        env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GRIDLANE", "X509", "BEARER"))
        }
        env.update(HOME=str(home), XDG_DATA_HOME=str(home / "data"))
        # Not a pipe, which nobody empties.
        self.said = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.said, env=env)
        line = self.process.stdout.readline()
        if not line:
            self.said.seek(0)
            raise AssertionError(self.said.read().decode())
        listening = json.loads(line)
        self.urls = {url.split(":")[0]: url for url in listening["urls"]}
        self.ca = listening["ca"]

    def url(self, scheme: str, path: str = "") -> str:
        """The URL of a path by one of the protocols."""
        base = self.urls[scheme]
        return base + ("/" if scheme in ("root", "roots") else "") + path

    @property
    def host(self) -> str:
        """`host:port`."""
        return self.urls["root"].split("//")[1].rstrip("/")

    def stop(self) -> None:
        # Not in peace: it would wait for connections of files that tests have left open.
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="session")
def home(tmp_path_factory) -> pathlib.Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session", autouse=True)
def nothing_of_the_users(home) -> Iterator[None]:
    """No credentials and no journals of the user who runs the tests."""
    saved = dict(os.environ)
    for name in list(os.environ):
        if name.startswith(("X509_", "BEARER_TOKEN")) or name == "GRIDLANE_CONFIG":
            del os.environ[name]
    os.environ.update(
        HOME=str(home),
        XDG_STATE_HOME=str(home / "state"),
        XDG_RUNTIME_DIR=str(home),
        XDG_CACHE_HOME=str(home / "cache"),
    )
    yield
    os.environ.clear()
    os.environ.update(saved)


@pytest.fixture(scope="session")
def server(tmp_path_factory, home) -> Iterator[Serve]:
    """A server that takes files."""
    serve = Serve(tmp_path_factory.mktemp("export"), home, "--allow-write")
    yield serve
    serve.stop()


@pytest.fixture(scope="session")
def data(home) -> Iterator[Serve]:
    """A server with real files."""
    serve = Serve(data_directory(), home)
    yield serve
    serve.stop()


@pytest.fixture(scope="session")
def slow(tmp_path_factory, home) -> Iterator[Serve]:
    """A server with a file `f` of 50 MB, which takes half a minute to come."""
    export = tmp_path_factory.mktemp("slow")
    (export / "f").write_bytes(bytes(50_000_000))
    serve = Serve(export, home, "--limit-rate", "2M")
    yield serve
    serve.stop()


@pytest.fixture(params=["http", "root"])
def scheme(request) -> str:
    return request.param


@pytest.fixture
def place(server, tmp_path) -> pathlib.Path:
    """A directory of its own on the server that takes files."""
    found = server.directory / tmp_path.name
    found.mkdir()
    return found


@pytest.fixture
def base(server, place, scheme) -> str:
    """Its URL, by each protocol."""
    return server.url(scheme, place.name)


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A port that refuses: it is taken, and nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


class Silent:
    """A server that accepts and never answers."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.listener.settimeout(30)
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/f"

    def accept(self) -> socket.socket:
        """The connection of a client, which waits from now on."""
        connection, _ = self.listener.accept()
        connection.settimeout(30)
        return connection

    def until_closed(self, connection: socket.socket) -> None:
        """Waits until the client gives it up."""
        with connection:
            try:
                while connection.recv(1 << 16):
                    pass
            except ConnectionResetError:
                pass


@pytest.fixture
def silent() -> Iterator[Silent]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield Silent(listener)

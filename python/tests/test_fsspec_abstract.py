"""fsspec's own suite for filesystems, over HTTP and root://: all of it."""

import fsspec
import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)


def joined(*parts):
    *above, last = (str(part) for part in parts)
    # A slash at the end means a directory.
    return "/".join([*(part.rstrip("/") for part in above), last])


class HttpFixtures(AbstractFixtures):
    @pytest.fixture
    def fs(self):
        return fsspec.filesystem("glhttp")

    @pytest.fixture
    def fs_join(self):
        return joined

    @pytest.fixture
    def fs_path(self, server, place):
        return server.url("http", place.name)


class RootFixtures(AbstractFixtures):
    @pytest.fixture
    def fs(self, server):
        return fsspec.filesystem("glroot", hostid=server.host)

    @pytest.fixture
    def fs_join(self):
        return joined

    @pytest.fixture
    def fs_path(self, place):
        return f"/{place.name}"


class TestHttpCopy(AbstractCopyTests, HttpFixtures):
    pass


class TestHttpGet(AbstractGetTests, HttpFixtures):
    pass


class TestHttpPut(AbstractPutTests, HttpFixtures):
    pass


class TestHttpPipe(AbstractPipeTests, HttpFixtures):
    pass


class TestHttpOpen(AbstractOpenTests, HttpFixtures):
    pass


class TestRootCopy(AbstractCopyTests, RootFixtures):
    pass


class TestRootGet(AbstractGetTests, RootFixtures):
    pass


class TestRootPut(AbstractPutTests, RootFixtures):
    pass


class TestRootPipe(AbstractPipeTests, RootFixtures):
    pass


class TestRootOpen(AbstractOpenTests, RootFixtures):
    pass

"""Tools of the tests: one that works, and those that are missing, fail, hang, or return other bytes."""

import os

from gridlane_lab import registry
from gridlane_lab.driver import Availability, Capabilities, Command, Reading, ToolDriver

CAPABILITIES = Capabilities(
    protocols=frozenset({"http", "https", "file"}),
    kinds=frozenset({"copy", "upload", "memory_copy"}),
    sources_max=3,
    streams_max=4,
)


class Fake(ToolDriver):
    capabilities = CAPABILITIES

    def availability(self):
        return Availability("/bin/sh", "1")

    def shell(self, task):
        raise NotImplementedError

    def command(self, task):
        return Command(("sh", "-c", self.shell(task)))


class Fetch(Fake):
    """Downloads and uploads by curl."""

    name = "fake-fetch"

    def command(self, task):
        argv = ["curl", "--silent", "--show-error", "--fail", "--cacert", str(task.authority_file)]
        if task.scenario.work.kind == "upload":
            return Command((*argv, "--upload-file", task.sources[0], task.target))
        return Command((*argv, "--output", task.target, task.sources[0]))

    def read(self, task, output):
        return Reading(bytes_moved=task.size_bytes if output.exit_code == 0 else None)


class Again(Fetch):
    name = "fake-again"


class Lying(Fake):
    """As many bytes as there should be, and one of them is another."""

    name = "fake-lying"

    def shell(self, task):
        fetch = f"curl -s --cacert {task.authority_file} -o {task.target} {task.sources[0]}"
        return f"{fetch} && printf X | dd of={task.target} bs=1 seek=1000 conv=notrunc status=none"


class Short(Fake):
    name = "fake-short"

    def shell(self, task):
        return f"printf hello > {task.target}"


class Nothing(Fake):
    name = "fake-nothing"

    def shell(self, task):
        return "true"


class Failing(Fake):
    name = "fake-failing"

    def shell(self, task):
        return "echo 'the disk is on fire' >&2; exit 3"

    def read(self, task, output):
        return Reading(error=output.stderr.read_text().strip(), error_scope="client", error_phase="write")


class Hanging(Fake):
    """Writes some, then hangs with a child."""

    name = "fake-hanging"

    def shell(self, task):
        return f"head -c 5000 /dev/zero > {task.target}; sleep 300 & sleep 300"


class Missing(Fake):
    name = "fake-missing"

    def availability(self):
        return Availability(None, None, reason="fake-missing is not installed; apt-get install fake")


class Copy(Fake):
    name = "fake-cp"

    def command(self, task):
        return Command(("cp", task.sources[0].removeprefix("file://"), task.target))


ALL = [Fetch, Again, Lying, Short, Nothing, Failing, Hanging, Missing, Copy]


def register():
    for driver in ALL:
        registry.register_tool(driver)


def binary():
    """The binary of gridlane that the tests run with."""
    return os.environ["GRIDLANE_LAB_BINARY"]

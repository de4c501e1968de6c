"""A tree of many small files, and the commands of the clients that copy it."""

import shutil
import subprocess
import sys

from processes import run_client
from running import generate, make_old

FILES_PER_DIRECTORY = 500


class SmallFiles:
    """The tree, below `export`. What clients write stands below `target`."""

    def __init__(self, gridlane, work, export, files, file_bytes):
        self.gridlane, self._work, self._authority = gridlane, work, None
        self.tree, self.target = export / "tree", work / "target-tree"
        block = work / "block"
        generate(block, file_bytes + files)
        data = block.read_bytes()
        block.unlink()
        self._names = []
        for number in range(files):
            name = f"{number // FILES_PER_DIRECTORY:03}/{number:06}"
            path = self.tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data[number:number + file_bytes])
            make_old(path)
            self._names.append(name)
        self._file_bytes = file_bytes
        self._written = None

    def trust(self, authority):
        self._authority = authority

    def cp(self, source, target):
        return [self.gridlane, "cp", "-r", str(source), str(target), "--quiet", "--ca", self._authority]

    def rclone(self, kind, url, other, up=False):
        # Its WebDAV back end makes directories below its root only.
        above, _, name = url.rpartition("/")
        remote = f":{kind},url='{above}/',vendor=other:{name}" if kind == "webdav" else f":{kind},url='{url}/':"
        ends = [str(other), remote] if up else [remote, str(other)]
        return [
            "rclone", "--config", "/dev/null", "--ca-cert", self._authority, "--transfers", "8", "--checkers", "16", "copy", *ends,
        ]

    def aria2(self, url, target):
        listing = self._work / f"list-{abs(hash(url))}"
        listing.write_text("".join(f"{url}/{name}\n  out={name}\n" for name in self._names))
        return [
            "aria2c", "--no-conf", "--quiet", "--file-allocation=none", "--allow-overwrite=true", "-j16",
            f"--ca-certificate={self._authority}", f"--dir={target}", "-i", str(listing),
        ]

    def work_of(self, command, server, written=None, original=None):
        """The work as something to be called: removes what the last run left, runs, gives a sample."""
        written, original = written or self.target, original or self.tree
        total = self._file_bytes * sum(path.is_file() for path in original.rglob("*"))

        def run():
            self.clear()
            shutil.rmtree(written, ignore_errors=True)
            self._written = (original, written)
            return run_client(command, total, [server])

        return run

    def clear(self):
        """Removes what the last run left."""
        if self._written:
            shutil.rmtree(self._written[1], ignore_errors=True)
            self._written = None

    def check(self):
        """Compares what the last run wrote with the original."""
        if self._written and subprocess.run(["diff", "-rq", *map(str, self._written)], check=False).returncode:
            sys.exit(f"{self._written[1]} is not what was sent")

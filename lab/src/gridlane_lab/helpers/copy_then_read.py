"""Copies a file with a command, then reads a part of the copy: the alternative to reading it where it is.

Prints JSON lines as read_remote.py does; `copy_s` is how long the copy took. `--disk-bytes-per-s` stands for a disk
that is slower than memory: the copy has not ended before the disk would have taken all bytes, which it does while they
arrive, and reads take as long as the disk would.
"""

from __future__ import annotations

import subprocess
import sys
import time

import jobs
from transports import LocalFile, Policy, ReadError


def main() -> int:
    """Runs the job of the command line."""
    parser = jobs.options(__doc__)
    parser.add_argument("--disk-bytes-per-s", type=float, default=0.0)
    parser.add_argument("copy", help="where the command puts the file")
    parser.add_argument("command", nargs="+", help="the command that copies")
    given = parser.parse_args()

    def work(job: jobs.Job) -> Policy:
        process = subprocess.Popen(given.command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
        try:
            code = process.wait()
        except jobs.EndedError:
            process.terminate()
            process.wait()
            raise
        if code:
            raise ReadError(f"the copy failed: exit {code}", "copy")
        if given.disk_bytes_per_s:
            time.sleep(max(0.0, given.size_bytes / given.disk_bytes_per_s - job.seconds()))
        job.facts["copy_s"] = job.seconds()
        file = LocalFile(given.copy, given.disk_bytes_per_s)
        # Where the bytes are here, there is nothing to vectorise, to read ahead or to download.
        policy = Policy(file)
        job.run(jobs.wanted_of(given).steps(), policy)
        file.close()
        job.facts["copied_bytes"] = given.size_bytes
        return policy

    return jobs.Job().main(work)


if __name__ == "__main__":
    sys.exit(main())

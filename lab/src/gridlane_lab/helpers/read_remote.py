"""Reads parts of a file where it is: events, the requests of a trace, or the baskets of a tree whose layout is known.

Prints JSON lines: `progress` about once a second, at the end `summary`, or `failed`.
"""

from __future__ import annotations

import sys

import jobs
from transports import Policy


def main() -> int:
    """Runs the job of the command line."""
    given = jobs.remote_options(__doc__).parse_args()

    def work(job: jobs.Job) -> Policy:
        with job.reading(given) as policy:
            job.run(jobs.wanted_of(given).steps(), policy)
        return policy

    return jobs.Job().main(work)


if __name__ == "__main__":
    sys.exit(main())

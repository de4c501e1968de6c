"""Reads parts of a file where it is: events, the requests of a trace, or the baskets of a tree whose layout is known.

Prints JSON lines: `progress` about once a second, at the end `summary`, or `failed`.
"""

from __future__ import annotations

import sys

import jobs
from transports import Policy, policy_of, transport_of


def main() -> int:
    """Runs the job of the command line."""
    parser = jobs.options(__doc__)
    parser.add_argument("--ca", help="trust the authorities in this PEM file")
    parser.add_argument("--token-file")
    parser.add_argument("url", help="root://, https://, http://, or a path")
    given = parser.parse_args()

    def work(job: jobs.Job) -> Policy:
        transport = transport_of(given.url, given.ca, given.token_file)
        job.facts["open_s"] = job.seconds()
        policy = policy_of(
            given.mode, transport, given.size_bytes, given.block_bytes, given.segment_bytes, given.directory
        )
        job.run(jobs.wanted_of(given).steps(), policy)
        policy.close()
        transport.close()
        return policy

    return jobs.Job().main(work)


if __name__ == "__main__":
    sys.exit(main())

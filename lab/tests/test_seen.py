"""What is seen of a run from beside it: connections by what `ss` prints, packets by what the emulator counts."""

from __future__ import annotations

import pytest

from gridlane_lab import rows, seen
from gridlane_lab.bound import IPV4_HEADERS_BYTES, IPV6_HEADERS_BYTES
from gridlane_lab.network import connections_in
from gridlane_lab.record import SourceShare, Status, Transfer

SS = """\
0      184310           [fd00::2]:443           [fd00::1]:40122
\t ts sack bbr wscale:9,9 rto:210 rtt:10.1/0.2 mss:1428 bytes_sent:5000000 bytes_acked:4815690 segs_out:3502
0      0                [fd00::2]:443           [fd00::1]:40124
\t ts sack ecn cubic wscale:9,9 rto:210 rtt:10.1/0.2 bytes_sent:2900 bytes_acked:2900
0      0      [::ffff:10.0.0.2]:443  [::ffff:10.0.0.1]:40126
"""


def one(peer, sent_bytes, family=6):
    return {"peer": peer, "family": family, "sent_bytes": sent_bytes}


def test_what_ss_prints():
    found = connections_in(SS)
    assert [(each["peer"], each["family"], each["sent_bytes"]) for each in found] == [
        ("[fd00::1]:40122", 6, 5_000_000),
        ("[fd00::1]:40124", 6, 2900),
        ("[::ffff:10.0.0.1]:40126", 4, 0),
    ]
    assert [each.get("congestion_control") for each in found] == ["bbr", "cubic", None]
    assert connections_in("") == []


def test_connections_that_carry_nothing_do_not_count():
    shown = {"near": [[one("a", 7_000_000), one("idle", 900)]], "far": [[]]}

    def look(place, port):
        assert port == {"near": 443, "far": 8443}[place]
        return shown[place][-1]

    watch = seen.Watch(look, {"near": 443, "far": 8443}, 1_000_000)
    assert watch.seen.together is None and watch.seen.headers_bytes == IPV4_HEADERS_BYTES
    shown["near"].append([one("a", 7_000_999), one("idle", 900), one("b", 1000), one("c", 500_000)])
    shown["far"].append([one("d", 400_000)])
    watch.look()
    assert watch.seen.connections == {"near": 2, "far": 1}
    assert (watch.seen.together, watch.seen.ip_version) == (3, 6)
    assert watch.seen.headers_bytes == IPV6_HEADERS_BYTES
    # When it is over: one has ended, one has carried something meanwhile.
    shown["near"].append([one("a", 7_000_999), one("idle", 5000), one("c", 600_000)])
    shown["far"].append([])
    watch.look()
    assert watch.seen.connections == {"near": 3, "far": 1}


def test_two_versions_of_ip_are_none():
    mixed = seen.Seen({"near": 2}, frozenset({4, 6}))
    assert mixed.ip_version is None and mixed.headers_bytes == IPV4_HEADERS_BYTES
    assert seen.Seen({"near": 0}).together is None


def test_when_it_is_looked():
    assert seen.look_s(10.0) == pytest.approx(6.0)
    assert seen.look_s(None) == seen.LOOK_UNKNOWN_S
    assert seen.port_of("https://[fd00::1]:1095/") == 1095


def test_counters_of_the_emulator():
    def state(*counts):
        links = [("near", "client"), ("client", "near"), ("far", "client")]
        return {
            "links": [
                {"from": sender, "to": to, "counters": {"passed_bytes": count, "dropped_packets": count // 10}}
                for (sender, to), count in zip(links, counts, strict=True)
            ]
        }

    before, after = state(100, 10, 1000), state(350, 20, 1500)
    assert seen.grown(before, after, "passed_bytes", ["near", "far"]) == 750
    assert seen.grown(before, after, "dropped_packets") == 25 + 1 + 50
    assert seen.grown(None, after, "passed_bytes") is None
    assert seen.grown(before, None, "passed_bytes") is None


def transfer(connections, sources, kind="copy"):
    return Transfer(
        transfer_id="T", run_id="R", kind=kind, protocol="https", status=Status.OK,
        sources=[f"https://{number}/f" for number in range(sources)], connections=connections,
    )  # fmt: skip


PLACES = [[place] for place in ("near", "middle", "far")]


@pytest.mark.parametrize(
    ("told", "sources", "at_servers", "expected"),
    [
        # The tool's own words, which are of all its sources.
        ([16], 1, {"near": 9}, ([16], 16)),
        ([3], 3, {"near": 1, "middle": 1, "far": 1}, ([1, 1, 1], 3)),
        ([4], 3, {}, ([2, 2, 2], 4)),
        ([8, 8], 1, None, ([8], 16)),
        # What the servers had, where the tool says nothing.
        ([None], 3, {"near": 4, "middle": 3, "far": 0}, ([4, 3, 1], 7)),
        ([None] * 4, 1, {"near": 8}, ([2], 8)),
        ([None], 1, None, ([1], None)),
        ([], 1, None, ([1], None)),
    ],
)
def test_connections_of_a_run(told, sources, at_servers, expected):
    found = rows.Found([transfer(count, sources) for count in told])
    assert rows._connections(PLACES[:sources], found, seen.Seen(at_servers)) == expected


def test_connections_to_each_source():
    found = rows.Found([transfer(11, 3)])
    for url, count in zip(found.transfers[0].sources, (1, 2, 8), strict=True):
        found.shares.append(SourceShare(transfer_id="T", source=url, bytes_moved=1, connections=count))
    assert rows._connections(PLACES, found, seen.NOTHING_SEEN) == ([1, 2, 8], 11)


def test_the_word_of_a_third_party_counts_where_nothing_was_seen():
    found = rows.Found([transfer(1, 1, "tpc_pull")])
    assert rows._connections([["source"]], found, seen.Seen({"source": 8})) == ([8], 8)
    assert rows._connections([["source"]], found, seen.Seen({"source": 0})) == ([1], 1)
    assert rows._connections([["source"]], found, seen.NOTHING_SEEN) == ([1], 1)
    # Of a site with several hosts those of all count.
    hosts = [["source-1", "source-2"]]
    assert rows._connections(hosts, found, seen.Seen({"source-1": 3, "source-2": 4})) == ([7], 7)

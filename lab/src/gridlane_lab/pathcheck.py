"""Whether paths are what the scenario says: round trips, rates, and the emulator's own counters, before and after runs.

A path that misses its specification makes its runs void: their figures mean nothing, whatever they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gridlane_lab import record
from gridlane_lab.agents import AgentError
from gridlane_lab.record import PathCheck
from gridlane_lab.sites import Sites

# A packet of a rate check: with IPv4, UDP and Ethernet's framing it is as long as any.
_HEADERS_BYTES = 28
_RATE_CHECK_S = 0.4
# A flood of Python's reaches this much beside an emulator on the same cores; above it nothing is measured.
RATE_MAX_BITS_PER_S = 2.5e9
# Counters of the emulator that stand for packets that vanished where no network is modelled.
_UNACCOUNTED = ("device_dropped_packets", "overflowed_packets", "refused_packets")


@dataclass(frozen=True)
class Tolerance:
    """How far a path may be from its specification. Wide enough for a machine that does the work of all sites, too
    narrow for another path."""

    # Of the median round trip above what was asked for; below it, only what the clocks may differ by.
    round_trip_s: float = 0.002
    round_trip_ratio: float = 0.05
    # Of the rate.
    rate_least_ratio: float = 0.93
    rate_most_ratio: float = 1.02
    # How many packets of a round trip are sent, and how far apart.
    packets: int = 12
    # How often a path that misses its specification is measured before it is believed.
    tries: int = 3
    every_s: float = 0.004


@dataclass(frozen=True)
class Asked:
    """Paths of one run: bytes go from each sender to each receiver."""

    pairs: tuple[tuple[str, str], ...]


def check(
    sites: Sites, asked: Asked, tolerance: Tolerance, experiment_id: str, network_key: str, moment: str, with_rate: bool
) -> list[PathCheck]:
    """A row for each pair. Nothing else may run meanwhile. What misses its specification is measured again: a path that
    is another one stays so, and a machine that was busy for a moment does not."""
    rows = []
    for sender, receiver in asked.pairs:
        row = None
        for _ in range(tolerance.tries):
            row = _check_once(sites, sender, receiver, tolerance, with_rate)
            if row is None or (row.verdict == "ok" and not (with_rate and _lacks_rate(row))):
                break
        if row is not None:
            row = dataclasses.replace(row, experiment_id=experiment_id, network_key=network_key, moment=moment)
            rows.append(row)
    return rows


def _check_once(sites: Sites, sender: str, receiver: str, tolerance: Tolerance, with_rate: bool) -> PathCheck | None:
    state = sites.state()
    if state is None:
        return None
    specified = getattr(sites, "initial", state)["paths"]
    path = next((path for path in specified if (path["from"], path["to"]) == (sender, receiver)), None)
    if path is None:
        return None
    row = PathCheck(
        path_check_id=record.new_id(),
        experiment_id="",
        run_id=None,
        network_key="",
        moment="",
        sender=sender,
        receiver=receiver,
        requested_round_trip_s=path["round_trip_s"],
        requested_rate_bits_per_s=path["rate_bits_per_s"],
        payload_rate_bits_per_s=path["payload_bytes_per_s"][0] * 8 if path["rate_bits_per_s"] else None,
        requested_loss_ratio=_loss(state, sender, receiver),
        queue_bytes=_least_queue(state),
        dropped_packets=_sum(state, "dropped_packets"),
        unaccounted_drops=sum(_sum(state, counter) for counter in _UNACCOUNTED),
        lateness_p99_s=max((link["counters"].get("lateness_p99_s") or 0.0 for link in state["links"]), default=None),
    )
    try:
        row = _with_round_trips(sites, row, tolerance)
        if with_rate:
            row = _with_rate(sites, row, state)
        reason = _fault(row, state, _changed_links(sites, state), tolerance)
    except AgentError as error:
        reason = str(error)
    return dataclasses.replace(row, verdict="void" if reason else "ok", reason=reason)


def void_reason(rows: Sequence[PathCheck]) -> str:
    """Why runs between these checks are void; empty when they are not."""
    return next((f"path {row.sender} to {row.receiver}: {row.reason}" for row in rows if row.verdict == "void"), "")


def of_run(rows: Sequence[PathCheck], run_id: str, moment: str) -> list[PathCheck]:
    """The same measurement as that of a run: what stands after one run stands before the next."""
    return [dataclasses.replace(row, path_check_id=record.new_id(), run_id=run_id, moment=moment) for row in rows]


def _lacks_rate(row: PathCheck) -> bool:
    """Whether a rate could have been measured, and was not."""
    wanted = row.requested_rate_bits_per_s
    return row.rate_bits_per_s is None and wanted is not None and wanted <= RATE_MAX_BITS_PER_S


def _with_round_trips(sites: Sites, row: PathCheck, tolerance: Tolerance) -> PathCheck:
    wait_s = (row.requested_round_trip_s or 0.0) + 0.5
    far, near = sites.agent(row.sender), sites.agent(row.receiver)
    host = _address(sites, row.sender)
    echo = far.order("echo", host=host, count=tolerance.packets, wait_s=wait_s + tolerance.packets * tolerance.every_s)
    port = far.begin_of(echo)["port"]
    found = near.ask("ping", host=host, port=port, count=tolerance.packets, every_s=tolerance.every_s, wait_s=wait_s)
    far.end_of(echo)
    trips = sorted(found["round_trips_s"])
    if not trips:
        return dataclasses.replace(row, loss_ratio=1.0)
    return dataclasses.replace(
        row,
        round_trip_p5_s=_quantile(trips, 0.05),
        round_trip_p50_s=_quantile(trips, 0.5),
        round_trip_p99_s=_quantile(trips, 0.99),
        loss_ratio=found["lost"] / tolerance.packets,
    )


def _with_rate(sites: Sites, row: PathCheck, state: dict[str, Any]) -> PathCheck:
    rate = row.requested_rate_bits_per_s
    if rate is None or rate > RATE_MAX_BITS_PER_S:
        return row
    payload = state["mtu"] - _HEADERS_BYTES
    wire_bits = 8 * (state["mtu"] + state["framing_bytes"])
    packets_per_s = rate / wire_bits
    duration_s = min(3.0, max(_RATE_CHECK_S, 200 / packets_per_s))
    host = _address(sites, row.receiver)
    near, far = sites.agent(row.receiver), sites.agent(row.sender)
    sink = near.order("sink", host=host, payload_bytes=payload, wait_s=(row.requested_round_trip_s or 0) + 0.2)
    port = near.begin_of(sink)["port"]
    flood = far.ask(
        "flood", host=host, port=port, payload_bytes=payload, packets_per_s=1.1 * packets_per_s, duration_s=duration_s
    )
    found = near.end_of(sink)["packets_per_s"]
    # A sender that was behind for longer than the queue lasts has left the link idle: nothing was measured.
    queue_s = (row.queue_bytes or 0) * 8 / rate
    if flood["late_s"] > max(0.002, queue_s / 2):
        return row
    if found is None:
        raise AgentError(f"of {flood['packets']} packets at its rate nearly none arrived")
    return dataclasses.replace(row, rate_bits_per_s=found * wire_bits)


def _fault(row: PathCheck, state: dict[str, Any], changed: str, tolerance: Tolerance) -> str:
    if state["void"] is not None:
        return str(state["void"])
    if changed:
        return changed
    if row.unaccounted_drops:
        return f"{row.unaccounted_drops} packets vanished where no network is modelled"
    wanted, found = row.requested_round_trip_s, row.round_trip_p50_s
    if found is None:
        return "no packet came back"
    if wanted is not None:
        if found < wanted - 1e-4:
            return f"a round trip of {1e3 * found:.2f} ms, and {1e3 * wanted:g} ms are specified"
        if found > wanted * (1 + tolerance.round_trip_ratio) + tolerance.round_trip_s:
            return f"a round trip of {1e3 * found:.2f} ms, and {1e3 * wanted:g} ms are specified"
    rate, specified = row.rate_bits_per_s, row.requested_rate_bits_per_s
    if (
        rate is not None
        and specified
        and not (tolerance.rate_least_ratio <= rate / specified <= tolerance.rate_most_ratio)
    ):
        return f"a rate of {rate / 1e6:.4g} Mb/s, and {specified / 1e6:g} Mb/s are specified"
    return ""


def _changed_links(sites: Sites, state: dict[str, Any]) -> str:
    """A link that is not as it was when the network came up."""
    keys = ("rate_bits_per_s", "delay_s", "loss", "jitter_s", "queue_bytes", "is_down")
    before = {(link["link"], link["from"]): link for link in getattr(sites, "initial", state)["links"]}
    for link in state["links"]:
        was = before[link["link"], link["from"]]
        for key in keys:
            if link[key] != was[key]:
                return f"the link {link['link']} has {key} = {link[key]}, and {was[key]} is specified"
    return ""


def _address(sites: Sites, place: str) -> str:
    return next(address for address in sites.places[place].addresses() if ":" not in address)


def _quantile(ordered: Sequence[float], q: float) -> float:
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def _sum(state: dict[str, Any], counter: str) -> int:
    return sum(int(link["counters"].get(counter) or 0) for link in state["links"])


def _least_queue(state: dict[str, Any]) -> int | None:
    queues = [link["queue_bytes"] for link in state["links"] if link["queue_bytes"] is not None]
    return int(min(queues)) if queues else None


def _loss(state: dict[str, Any], sender: str, receiver: str) -> float | None:
    """Of the direct link, if there is one."""
    for link in state["links"]:
        if (link["from"], link["to"]) == (sender, receiver):
            return float(link["loss"])
    return None

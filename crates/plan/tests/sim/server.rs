//! Simulated servers, and what they could deliver at best.

use super::World;

pub(crate) const MB: f64 = 1e6;

/// One simulated server and the path to it.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// From when on it sends how fast, in bytes per second; ascending, first at 0.
    pub(crate) rates: Vec<(f64, f64)>,
    /// Largest rate of one connection.
    pub(crate) lane_rate_max: f64,
    /// Bytes that one connection has under way at most: the sender's or the receiver's buffer.
    pub(crate) lane_window_bytes_max: f64,
    /// Packets of which one is lost, for connections that take a loss for a full path (CUBIC). BBR does not:
    /// `None`.
    pub(crate) loss_packets: Option<f64>,
    /// Every ten seconds its connections send next to nothing for 200 ms, to see the round trip of the empty path: BBR.
    pub(crate) looks_at_empty_path: bool,
    /// The rate is the server's own limit: nothing waits on the way.
    pub(crate) limits_itself: bool,
    /// Bytes that are sent faster than the rate are dropped and wait nowhere: the connections on which that happens take it for a
    /// full path.
    pub(crate) drops_what_is_too_fast: bool,
    /// Servers with the same number share one rate: they are behind the same bottleneck.
    pub(crate) bottleneck: Option<u32>,
    pub(crate) round_trip_s: f64,
    /// Round trips until a connection takes requests.
    pub(crate) connect_round_trips: f64,
    pub(crate) pipelines: bool,
    pub(crate) slow_start: bool,
    /// Connections of an earlier copy, where there is no other server.
    pub(crate) left: Option<Left>,
    /// Closes each connection after its first answer.
    pub(crate) one_request: bool,
    /// Sends the whole object whatever is asked for, and says how long it is, or not.
    pub(crate) ignores_ranges: Option<TellsSize>,
    /// Says nothing any more from then on, on old and new connections.
    pub(crate) silent_from_s: Option<f64>,
    /// Breaks each connection after this many bytes.
    pub(crate) resets_after_bytes: Option<u64>,
    /// Refuses more connections than these, with `Retry-After`.
    pub(crate) busy: Option<(usize, f64)>,
    /// In this time connections break and are refused.
    pub(crate) down: Option<(f64, f64)>,
    /// At this time everything it sent is found to be wrong.
    pub(crate) liar_found_at_s: Option<f64>,
}

/// Connections that an earlier copy has left: each has the window that its rate needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    pub(crate) connections: usize,
    pub(crate) rate_bytes_per_s: f64,
    /// Size of its object.
    pub(crate) expected_bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct TellsSize(pub(crate) bool);

impl Server {
    pub(crate) fn new(rate_bytes_per_s: f64, round_trip_ms: f64) -> Server {
        Server {
            rates: vec![(0.0, rate_bytes_per_s)],
            lane_rate_max: f64::INFINITY,
            lane_window_bytes_max: f64::INFINITY,
            loss_packets: None,
            looks_at_empty_path: false,
            limits_itself: false,
            drops_what_is_too_fast: false,
            bottleneck: None,
            round_trip_s: round_trip_ms / 1e3,
            connect_round_trips: 2.0,
            pipelines: true,
            slow_start: true,
            left: None,
            one_request: false,
            ignores_ranges: None,
            silent_from_s: None,
            resets_after_bytes: None,
            busy: None,
            down: None,
            liar_found_at_s: None,
        }
    }

    /// From `at_s` on it sends at another rate.
    pub(crate) fn then(mut self, at_s: f64, rate_bytes_per_s: f64) -> Server {
        self.rates.push((at_s, rate_bytes_per_s));
        self
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Server)) -> Server {
        change(&mut self);
        self
    }

    pub(crate) fn rate_at(&self, at_s: f64) -> f64 {
        if self.is_silent(at_s) || self.is_down(at_s) {
            return 0.0;
        }
        self.rates.iter().take_while(|(from_s, _)| *from_s <= at_s).last().map_or(0.0, |(_, rate)| *rate)
    }

    pub(crate) fn is_silent(&self, at_s: f64) -> bool {
        self.silent_from_s.is_some_and(|from_s| from_s <= at_s)
    }

    pub(crate) fn looks_at_empty_path_at(&self, at_s: f64) -> bool {
        self.looks_at_empty_path && at_s >= 10.0 && at_s % 10.0 < 0.2
    }

    pub(crate) fn is_down(&self, at_s: f64) -> bool {
        self.down.is_some_and(|(from_s, to_s)| (from_s..to_s).contains(&at_s))
    }
}

/// The time in which the servers could have delivered at best what they in fact offered, after three
/// round trips each: the integral of the rates, cut at what the client takes.
pub(crate) fn causal_bound_s(world: &World, servers: &[Server]) -> f64 {
    let step_s = 0.0005;
    let (mut at_s, mut bytes) = (0.0, 0.0);
    while bytes < world.size_bytes as f64 && at_s < world.give_up_s {
        let offered = servers.iter().filter(|server| at_s >= 3.0 * server.round_trip_s);
        let rate: f64 = offered.map(|server| server.rate_at(at_s)).sum();
        bytes += rate.min(world.client_rate) * step_s;
        at_s += step_s;
    }
    at_s
}

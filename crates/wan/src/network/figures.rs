//! What follows from the figures of all links at some time: queues, super-packets, socket buffers.

use std::time::Duration;

use gridlane_core::limits;

use super::{Derived, Family, HostBuffers, Network, NodeKind, Step};
use crate::scenario::{Buffers, Direction};

impl Network {
    /// The queue and the largest super-packet of every direction.
    ///
    /// A queue that is not given is one bandwidth-delay product: the direction's rate times the longest base
    /// round trip of any two sites whose path uses the link, not counting paths through a third site. That is
    /// what one stream needs to keep the link busy after it halved its window. It is at least [`limits::WAN_QUEUE_PACKETS_MIN`] full packets long,
    /// because a queue that is shorter than one super-packet would lose what any switch passes on.
    ///
    /// A super-packet lasts at most [`limits::WAN_QUANTUM_MAX`] at the smallest rate of any path of two sites
    /// through the direction: it travels as a whole, so its packets arrive together at the slowest link, and
    /// a burst of milliseconds there would be the emulator's and not the path's.
    pub fn derive(&self, directions: &[[Direction; 2]]) -> Vec<[Derived; 2]> {
        let (round_trips, rates) = self.extremes(directions);
        let derive = |link: usize, end: usize| {
            let direction = &directions[link][end];
            // No two sites may use a link; then it is its own path.
            let own = directions[link][0].delay + directions[link][1].delay;
            let (gso_bytes_max, gso_packets_max) =
                self.super_packet(smaller(rates[link][end], direction.rate_bits_per_s));
            Derived {
                queue_bytes: self.queue_bytes(direction, round_trips[link].max(own)),
                gso_bytes_max,
                gso_packets_max,
            }
        };
        (0..self.links.len()).map(|link| [derive(link, 0), derive(link, 1)]).collect()
    }

    /// Limits of TCP's socket buffers at a site: room for four times the largest product of rate and round
    /// trip of its paths and the queue in front of it, in each direction for itself. Half of a buffer is the
    /// kernel's own bookkeeping, and half of the rest is for what arrives while a loss is repaired. Never
    /// less than the host's. At most [`limits::WAN_BUFFER_BYTES_MAX`] unless the host has more; a rate that
    /// is unlimited counts as [`limits::WAN_UNLIMITED_BITS_PER_S`].
    ///
    /// `None`: as the host has them, because the scenario says so or because a router sends nothing itself.
    /// The kernel reads the settings again and again, so they may be written again after a change.
    pub fn buffers(
        &self,
        directions: &[[Direction; 2]],
        node: usize,
        host: &HostBuffers,
    ) -> Option<HostBuffers> {
        self.buffers_for(directions, &self.derive(directions), node, host)
    }

    /// The same for a caller that has derived already.
    pub(crate) fn buffers_for(
        &self,
        directions: &[[Direction; 2]],
        derived: &[[Derived; 2]],
        node: usize,
        host: &HostBuffers,
    ) -> Option<HostBuffers> {
        if self.buffers == Buffers::Host || self.nodes[node].kind == NodeKind::Router {
            return None;
        }
        let mut buffers = *host;
        for other in (0..self.sites).filter(|other| *other != node) {
            let grow = |settings: &mut [u64; 3], path: &[Step]| {
                let bytes = in_flight_bytes_max(directions, derived, path);
                settings[2] = settings[2].max(bytes.saturating_mul(4).min(limits::WAN_BUFFER_BYTES_MAX));
            };
            grow(&mut buffers.rmem, &self.path(other, node));
            grow(&mut buffers.wmem, &self.path(node, other));
        }
        Some(buffers)
    }

    /// Of all paths of two sites that use a link, the longest round trip; by direction, the smallest rate. Paths
    /// through a third site do not count.
    ///
    /// The ways to one site are a tree. Outwards through it every node gets the figures of its own way,
    /// inwards every branch the extremes of those that pass it: no path is walked twice.
    fn extremes(&self, directions: &[[Direction; 2]]) -> (Vec<Duration>, Vec<[Option<u64>; 2]>) {
        let mut round_trips = vec![Duration::ZERO; self.links.len()];
        let mut rates = vec![[None; 2]; self.links.len()];
        for destination in 0..self.sites {
            let mut branches = vec![Vec::new(); self.nodes.len()];
            for (node, ways) in self.ways.iter().enumerate() {
                if let Some(way) = ways[destination] {
                    branches[way.next_hop].push((node, way.step));
                }
            }
            let mut own = vec![(Duration::ZERO, None); self.nodes.len()];
            let mut outwards = Vec::new();
            let mut waiting = vec![destination];
            while let Some(here) = waiting.pop() {
                // A site that passes on for others does so for want of a router: no experiment wants that.
                if here != destination && here < self.sites {
                    continue;
                }
                for &(node, step) in &branches[here] {
                    let (round_trip, rate) = own[here];
                    let step_rate = directions[step.link][step.end].rate_bits_per_s;
                    own[node] =
                        (round_trip + self::round_trip(directions, &[step]), smaller(rate, step_rate));
                    outwards.push((node, here, step));
                    waiting.push(node);
                }
            }
            // A router sends nothing; only what passes it counts.
            let mut passing = vec![(Duration::ZERO, None); self.nodes.len()];
            passing[..self.sites].copy_from_slice(&own[..self.sites]);
            for (node, next_hop, Step { link, end }) in outwards.into_iter().rev() {
                let (round_trip, rate) = passing[node];
                round_trips[link] = round_trips[link].max(round_trip);
                rates[link][end] = smaller(rates[link][end], rate);
                let behind = &mut passing[next_hop];
                *behind = (behind.0.max(round_trip), smaller(behind.1, rate));
            }
        }
        (round_trips, rates)
    }

    fn queue_bytes(&self, direction: &Direction, round_trip: Duration) -> Option<u64> {
        let rate = direction.rate_bits_per_s?;
        let least = limits::WAN_QUEUE_PACKETS_MIN * u64::from(self.packet_bytes_max());
        Some(direction.queue_bytes.unwrap_or_else(|| bytes_in(rate, round_trip).max(least)))
    }

    /// Bytes and packets of the largest super-packet where `rate_bits_per_s` is the smallest rate.
    fn super_packet(&self, rate_bits_per_s: Option<u64>) -> (u32, u32) {
        let bytes_max = limits::WAN_SUPER_PACKET_BYTES_MAX;
        let Some(rate) = rate_bits_per_s else { return (bytes_max, u32::from(u16::MAX)) };
        let packets = bytes_in(rate, limits::WAN_QUANTUM_MAX) / u64::from(self.packet_bytes_max());
        let packets = packets.clamp(1, u64::from(u16::MAX)) as u32;
        // The number of packets decides. The bytes only have to allow as many: they include room for
        // headers, and an ordinary packet is let pass whatever they are.
        let bytes = packets.saturating_mul(self.mtu).saturating_add(limits::WAN_SUPER_PACKET_HEADER_BYTES);
        (bytes.min(bytes_max), packets)
    }
}

/// The largest share of a rate on the wire that can be payload of TCP with timestamps (12 bytes), when all
/// packets are full.
pub fn payload_ceiling(mtu: u32, framing_bytes: u32, family: Family) -> f64 {
    let header = match family {
        Family::Ipv4 => 20.0,
        Family::Ipv6 => 40.0,
    };
    (f64::from(mtu) - header - 20.0 - 12.0) / (f64::from(mtu) + f64::from(framing_bytes))
}

pub(super) fn round_trip(directions: &[[Direction; 2]], path: &[Step]) -> Duration {
    path.iter().map(|step| directions[step.link][0].delay + directions[step.link][1].delay).sum()
}

pub(super) fn smallest_rate(directions: &[[Direction; 2]], path: &[Step]) -> Option<u64> {
    path.iter().fold(None, |rate, step| smaller(rate, directions[step.link][step.end].rate_bits_per_s))
}

/// The smaller rate, where `None` is unlimited.
fn smaller(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// The product of rate and round trip of a path, and the queue in front of its slowest link.
fn in_flight_bytes_max(directions: &[[Direction; 2]], derived: &[[Derived; 2]], path: &[Step]) -> u64 {
    let rate = smallest_rate(directions, path);
    let product = bytes_in(rate.unwrap_or(limits::WAN_UNLIMITED_BITS_PER_S), round_trip(directions, path));
    let queue = path
        .iter()
        .filter(|step| directions[step.link][step.end].rate_bits_per_s == rate)
        .filter_map(|step| derived[step.link][step.end].queue_bytes)
        .max();
    product.saturating_add(queue.unwrap_or(0))
}

/// Bytes that a rate carries in some time, rounded up.
pub(crate) fn bytes_in(rate_bits_per_s: u64, time: Duration) -> u64 {
    let bits = u128::from(rate_bits_per_s).saturating_mul(time.as_nanos()).div_ceil(1_000_000_000);
    u64::try_from(bits.div_ceil(8)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{SHARED, network as built};
    use super::*;

    const HOST: HostBuffers =
        HostBuffers { rmem: [4096, 131_072, 33_554_432], wmem: [4096, 16_384, 4_194_304] };

    #[test]
    fn queues_follow_from_the_longest_path() {
        let (network, mut directions) = built(SHARED).unwrap();
        let queues = |directions: &[[Direction; 2]]| -> Vec<_> {
            network.derive(directions).iter().map(|[a, b]| (a.queue_bytes, b.queue_bytes)).collect()
        };
        // near: 800 Mb/s × 151 ms (far to near) and so on; mid: 180 ms; the bottleneck: 154 ms.
        let product = |rate_mb_per_s: u64, ms: u64| Some(rate_mb_per_s * ms * 125);
        let expected = [
            (product(800, 151), product(800, 151)),
            (product(400, 180), product(400, 180)),
            (product(80, 180), Some(128 * 1538)),
            (product(1000, 154), product(1000, 154)),
        ];
        assert_eq!(queues(&directions), expected);

        directions[0][0].rate_bits_per_s = None;
        directions[0][0].queue_bytes = Some(5000);
        directions[0][1].queue_bytes = Some(5000);
        directions[2][1].rate_bits_per_s = Some(8000);
        let queues = queues(&directions);
        assert_eq!(queues[0], (None, Some(5000)), "nothing waits where nothing is sent in sequence");
        assert_eq!(queues[2].1, Some(128 * 1538), "never shorter than a burst");
    }

    #[test]
    fn what_passes_through_a_third_site_sizes_no_queue() {
        let text = "sites = ['client', 'near', 'far']
            [[link]]\nbetween = ['near', 'client']\ndelay_ms = 5\nrate = '800Mb/s'
            [[link]]\nbetween = ['far', 'client']\ndelay_ms = 15\nrate = '800Mb/s'";
        let (network, directions) = built(text).unwrap();
        let queues: Vec<_> =
            network.derive(&directions).iter().map(|ends| ends.map(|end| end.queue_bytes)).collect();
        assert_eq!(queues, [[Some(1_000_000); 2], [Some(3_000_000); 2]]);
    }

    #[test]
    fn a_link_that_no_sites_use_is_its_own_path() {
        let text = "sites = ['a', 'b']\nrouters = ['r', 's']
            [[link]]\nbetween = ['a', 'b']
            [[link]]\nbetween = ['a', 'r']\ndelay_ms = 10\nrate = '1Gb/s'
            [[link]]\nbetween = ['b', 's']\ndelay_ms = 10
            [[link]]\nbetween = ['r', 's']\ndelay_ms = 10";
        let (network, directions) = built(text).unwrap();
        assert_eq!(network.derive(&directions)[1][0].queue_bytes, Some(2_500_000));
        assert_eq!(network.derive(&directions)[1][0].gso_packets_max, 20);
        assert!(network.nodes()[0].is_forwarding, "a reaches r for b");
    }

    #[test]
    fn super_packets_last_a_quarter_of_a_millisecond_at_most() {
        let (network, directions) = built(SHARED).unwrap();
        let derived = network.derive(&directions);
        let gso =
            |link: usize, end: usize| (derived[link][end].gso_packets_max, derived[link][end].gso_bytes_max);
        // Towards far everything passes 8 Mb/s; what far sends is at 80 Mb/s, 1.6 packets in 250 µs.
        assert_eq!(gso(2, 1), (1, 2012));
        assert_eq!(gso(2, 0), (1, 2012));
        // near also sends to far.
        assert_eq!(gso(0, 0), (1, 2012));

        let pair = |rate: &str, mtu: u32| {
            let (network, directions) = built(&format!(
                "sites = ['a', 'b']\nmtu = {mtu}\n[[link]]\nbetween = ['a', 'b']\nrate = '{rate}'"
            ))
            .unwrap();
            let derived = network.derive(&directions)[0][0];
            (derived.gso_packets_max, derived.gso_bytes_max)
        };
        assert_eq!(pair("1Gb/s", 1500), (20, 30_512));
        assert_eq!(pair("10Gb/s", 1500), (203, 65_536));
        assert_eq!(pair("400Gb/s", 1500), (8127, 65_536));
        assert_eq!(pair("unlimited", 1500), (65_535, 65_536));
        assert_eq!(pair("1Gb/s", 9000), (3, 27_512));
        assert_eq!(pair("8kb/s", 65_535), (1, 65_536));
        assert_eq!(pair("8kb/s", 1280), (1, 1792));
    }

    #[test]
    fn buffers_hold_what_is_in_flight() {
        let (network, directions) = built(SHARED).unwrap();
        let client = network.buffers(&directions, 0, &HOST).unwrap();
        // From mid: 400 Mb/s × 34 ms, and a queue of 400 Mb/s × 180 ms; from near: 800 Mb/s × (5 + 151) ms.
        assert_eq!(client.rmem, [4096, 131_072, 4 * (800 * 5 + 800 * 151) * 125]);
        assert_eq!(client.wmem[2], 4 * (800 * 5 + 800 * 151) * 125);
        let far = network.buffers(&directions, 3, &HOST).unwrap();
        assert_eq!(far.rmem, HOST.rmem, "8 Mb/s need less than the host allows");
        assert_eq!(far.wmem[2], HOST.wmem[2].max(4 * (80 * 180 + 80 * 180) * 125));
        assert_eq!(network.buffers(&directions, 4, &HOST), None);

        let pair = |lines: &str| {
            let (network, directions) = built(&format!("sites = ['a', 'b']\n{lines}")).unwrap();
            network.buffers(&directions, 0, &HOST)
        };
        let unlimited = pair("[[link]]\nbetween = ['a', 'b']\ndelay_ms = 5").unwrap();
        assert_eq!(unlimited.wmem[2], 4 * 12_500_000);
        let long = pair("[[link]]\nbetween = ['a', 'b']\ndelay_ms = 500").unwrap();
        assert_eq!(long.rmem[2], 1 << 30);
        assert_eq!(pair("buffers = 'host'\n[[link]]\nbetween = ['a', 'b']"), None);
    }

    #[test]
    fn what_is_left_for_payload() {
        assert!((payload_ceiling(1500, 38, Family::Ipv4) - 1448.0 / 1538.0).abs() < 1e-12);
        assert!((payload_ceiling(1500, 38, Family::Ipv6) - 1428.0 / 1538.0).abs() < 1e-12);
        assert!((payload_ceiling(9000, 38, Family::Ipv4) - 8948.0 / 9038.0).abs() < 1e-12);
    }

    #[test]
    fn extremes_are_those_of_all_paths() {
        let text = "sites = ['a', 'b', 'c', 'd', 'e']\nrouters = ['r', 's']
            [[link]]\nbetween = ['a', 'r']\ndelay_ms = 7\nrate = '5Gb/s'
            [[link]]\nbetween = ['b', 'r']\ndelay_ms = 3\nfrom.b.rate = '1Gb/s'
            [[link]]\nbetween = ['c', 's']\ndelay_ms = 2\nfrom.s.rate = '2Gb/s'
            [[link]]\nbetween = ['r', 's']\ndelay_ms = 9\nrate = '3Gb/s'
            [[link]]\nbetween = ['d', 's']\nfrom.d.delay_ms = 4
            [[link]]\nbetween = ['e', 'd']\ndelay_ms = 1\nrate = '4Gb/s'
            [[link]]\nbetween = ['e', 'a']\ndelay_ms = 20\nrate = '9Gb/s'";
        let (network, directions) = built(text).unwrap();
        let mut round_trips = vec![Duration::ZERO; network.link_count()];
        let mut rates = vec![[None; 2]; network.link_count()];
        for a in 0..network.sites().len() {
            for b in 0..network.sites().len() {
                let path = network.path(a, b);
                // Every step but the first starts at a node on the way.
                let senders = path.iter().skip(1).map(|step| network.ends(step.link)[step.end]);
                if senders.into_iter().any(|sender| sender < network.sites().len()) {
                    continue;
                }
                for step in &path {
                    round_trips[step.link] = round_trips[step.link].max(round_trip(&directions, &path));
                    let rate = smallest_rate(&directions, &path);
                    rates[step.link][step.end] = smaller(rates[step.link][step.end], rate);
                }
            }
        }
        assert_eq!(network.extremes(&directions), (round_trips, rates));
    }
}

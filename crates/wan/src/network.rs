//! Everything that follows from a scenario: addresses, devices, routes, and figures of paths.
//!
//! # Addresses
//!
//! Every node has one address of each family, on its loopback device: 198.18.0.(index + 1) of the space for
//! benchmarks (198.18.0.0/15, RFC 2544 appendix C.2.2 and RFC 6890) and 2001:2::(index + 1) likewise
//! (2001:2::/48, RFC 5180, 8). Links have none. So a node is the same one whichever way it is reached, and
//! there is one route for every other node.
//!
//! # Routes
//!
//! The shortest way by delay, both directions added; of equal ones that with fewer links; of those that which
//! does without the link whose name comes last in the alphabet. The last rule leaves exactly one shortest way
//! between any two nodes, the same there and back, and makes each part of it the shortest way of its own
//! ends: therefore routes of single nodes fit together, and a path has one round trip. Ways follow from the
//! delays at the start; no event changes them, as no WAN reroutes because a queue is long.
//!
//! # Figures
//!
//! What can change while the network is up is an argument: `directions`, two for every link, indexed as
//! [`Scenario::links`] and their ends. [`Network::derive`] says which queue and which largest super-packet
//! follow from them, [`Network::buffers`] which socket buffers.

mod figures;
mod ways;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::scenario::{Buffers, Direction, Scenario};
use figures::{round_trip, smallest_rate};

pub(crate) use figures::bytes_in;
pub use figures::payload_ceiling;

/// A network as it is built. Its nodes are numbered, sites first, and so are its links.
#[derive(Clone, Debug)]
pub struct Network {
    nodes: Vec<Node>,
    links: Vec<Joint>,
    sites: usize,
    mtu: u32,
    framing_bytes: u32,
    congestion_control: Option<String>,
    buffers: Buffers,
    /// `[node][destination]`: the way out.
    ways: Vec<Vec<Option<Way>>>,
}

/// A site or a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub index: usize,
    /// Its host name.
    pub name: String,
    /// Its role.
    pub kind: NodeKind,
    /// 198.18.0.(index + 1).
    pub ipv4: Ipv4Addr,
    /// 2001:2::(index + 1).
    pub ipv6: Ipv6Addr,
    /// Its ends of links.
    pub devices: Vec<Device>,
    /// One for every other node, in their order.
    pub routes: Vec<Route>,
    /// True if it passes packets on that are for others.
    pub is_forwarding: bool,
}

/// The role of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// Commands run there.
    Site,
    /// It passes packets on.
    Router,
}

/// A node's end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// `wan` and the number of the link.
    pub name: String,
    /// The link's number.
    pub link: usize,
    /// Which end of the link: 0 or 1. Also the direction of what this device sends.
    pub end: usize,
}

/// The way from a node to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Number of the node that is reached.
    pub destination: usize,
    /// Index in [`Node::devices`].
    pub device: usize,
    /// Number of the node at the other end of that device's link.
    pub next_hop: usize,
}

/// One direction of one link of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The link's number.
    pub link: usize,
    /// The end that sends.
    pub end: usize,
}

/// Figures that follow from those of all directions for one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Derived {
    /// Bytes on the wire that may wait; `None`: the rate is unlimited and nothing waits.
    pub queue_bytes: Option<u64>,
    /// Bytes of the largest super-packet: the device's `gso_max_size`.
    pub gso_bytes_max: u32,
    /// Packets in the largest super-packet, at least 1: the device's `gso_max_segs`.
    pub gso_packets_max: u32,
}

/// Limits of TCP's socket buffers in bytes, as in the kernel's settings: least, at first, most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostBuffers {
    /// `net.ipv4.tcp_rmem`.
    pub rmem: [u64; 3],
    /// `net.ipv4.tcp_wmem`.
    pub wmem: [u64; 3],
}

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4: 20 bytes of header.
    Ipv4,
    /// IPv6: 40 bytes of header.
    Ipv6,
}

/// A link, by the numbers of its nodes.
#[derive(Clone, Debug)]
struct Joint {
    name: String,
    ends: [usize; 2],
}

#[derive(Clone, Copy, Debug)]
struct Way {
    step: Step,
    next_hop: usize,
}

impl Network {
    /// Builds it. The scenario must be one that [`Scenario::parse`] made or would have.
    pub fn of(scenario: &Scenario) -> Network {
        let names: Vec<&String> = scenario.sites.iter().chain(&scenario.routers).collect();
        let number = |name: &String| names.iter().position(|node| *node == name);
        let links: Vec<Joint> = scenario
            .links
            .iter()
            .filter_map(|link| {
                let ends = [number(&link.ends[0])?, number(&link.ends[1])?];
                Some(Joint { name: link.name.clone(), ends })
            })
            .collect();
        debug_assert_eq!(links.len(), scenario.links.len(), "a parsed scenario knows all ends");

        let ways = ways::ways(names.len(), &links, &scenario.directions());
        let nodes = names
            .iter()
            .enumerate()
            .map(|(index, name)| {
                let devices = devices(index, &links);
                let routes = routes(&ways[index], &devices);
                Node {
                    index,
                    name: (*name).clone(),
                    kind: if index < scenario.sites.len() { NodeKind::Site } else { NodeKind::Router },
                    ipv4: ipv4(index),
                    ipv6: ipv6(index),
                    devices,
                    routes,
                    is_forwarding: index >= scenario.sites.len(),
                }
            })
            .collect();
        let mut network = Network {
            nodes,
            links,
            sites: scenario.sites.len(),
            mtu: scenario.mtu,
            framing_bytes: scenario.framing_bytes,
            congestion_control: scenario.congestion_control.clone(),
            buffers: scenario.buffers,
            ways,
        };
        network.find_forwarding_sites();
        network
    }

    /// Sites, then routers.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The sites.
    pub fn sites(&self) -> &[Node] {
        &self.nodes[..self.sites]
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// The number of links.
    pub fn link_count(&self) -> usize {
        self.links.len()
    }

    /// Numbers of a link's nodes.
    pub fn ends(&self, link: usize) -> [usize; 2] {
        self.links[link].ends
    }

    /// The number of the link of this name.
    pub fn link(&self, name: &str) -> Option<usize> {
        self.links.iter().position(|link| link.name == name)
    }

    /// Largest IP packet, in bytes.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Bytes on the wire beyond a packet's IP bytes.
    pub fn framing_bytes(&self) -> u32 {
        self.framing_bytes
    }

    /// Bytes on the wire of the largest packet.
    pub fn packet_bytes_max(&self) -> u32 {
        self.mtu.saturating_add(self.framing_bytes)
    }

    /// Congestion control of every route; `None`: the host's default.
    pub fn congestion_control(&self) -> Option<&str> {
        self.congestion_control.as_deref()
    }

    // --- Paths ---------------------------------------------------------------------------------

    /// The directions of links that a packet from node `a` to node `b` passes, in order.
    pub fn path(&self, a: usize, b: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut here = a;
        // Every step is on the one shortest way, so it ends; the bound is for a network made by hand.
        while here != b && steps.len() < self.nodes.len() {
            let Some(way) = self.ways[here][b] else { break };
            steps.push(way.step);
            here = way.next_hop;
        }
        steps
    }

    /// The time from node `a` to node `b` and back without any waiting and sending: the sum of all delays.
    pub fn base_round_trip(&self, directions: &[[Direction; 2]], a: usize, b: usize) -> Duration {
        round_trip(directions, &self.path(a, b))
    }

    /// The smallest rate from node `a` to node `b`, in bits per second on the wire; `None`: unlimited.
    pub fn rate_bits_per_s(&self, directions: &[[Direction; 2]], a: usize, b: usize) -> Option<u64> {
        smallest_rate(directions, &self.path(a, b))
    }

    /// Sites that lie on the way of others pass packets on as well.
    fn find_forwarding_sites(&mut self) {
        for a in 0..self.nodes.len() {
            for b in 0..self.nodes.len() {
                if let Some(way) = self.ways[a][b]
                    && way.next_hop != b
                {
                    self.nodes[way.next_hop].is_forwarding = true;
                }
            }
        }
    }
}

// --- Addresses and devices ---------------------------------------------------------------------

fn ipv4(index: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 0, 1).to_bits() + index as u32)
}

fn ipv6(index: usize) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, index as u16 + 1)
}

fn devices(node: usize, links: &[Joint]) -> Vec<Device> {
    let ends = links.iter().enumerate().filter_map(|(link, joint)| {
        let end = joint.ends.iter().position(|end| *end == node)?;
        Some(Device { name: format!("wan{link}"), link, end })
    });
    ends.collect()
}

fn routes(ways: &[Option<Way>], devices: &[Device]) -> Vec<Route> {
    let routes = ways.iter().enumerate().filter_map(|(destination, way)| {
        let way = way.as_ref()?;
        let device = devices.iter().position(|device| device.link == way.step.link)?;
        Some(Route { destination, device, next_hop: way.next_hop })
    });
    routes.collect()
}

#[cfg(test)]
mod tests {
    use gridlane_core::Result;
    use proptest::prelude::*;

    use super::*;

    /// Three sites share the last link to the client.
    pub(super) const SHARED: &str = "
        sites = ['client', 'near', 'mid', 'far']
        routers = ['exchange']
        link = [
            { between = ['near', 'exchange'], rate = '800Mb/s', delay_ms = 0.5 },
            { between = ['mid', 'exchange'], rate = '400Mb/s', delay_ms = 15 },
            { between = ['far', 'exchange'], rate = '80Mb/s', delay_ms = 75, from.exchange.rate = '8Mb/s' },
            { between = ['exchange', 'client'], rate = '1Gb/s', delay_ms = 1, from.client.delay_ms = 3 },
        ]";

    pub(super) fn network(text: &str) -> Result<(Network, Vec<[Direction; 2]>)> {
        let scenario = Scenario::parse(text)?;
        Ok((Network::of(&scenario), scenario.directions()))
    }

    #[test]
    fn nodes_devices_and_addresses() {
        let (network, _) = network(SHARED).unwrap();
        assert_eq!(network.sites().len(), 4);
        let router = network.node("exchange").unwrap();
        assert_eq!((router.index, router.kind, router.is_forwarding), (4, NodeKind::Router, true));
        assert_eq!(router.ipv4.to_string(), "198.18.0.5");
        assert_eq!(router.ipv6.to_string(), "2001:2::5");
        let devices: Vec<_> =
            router.devices.iter().map(|device| (device.name.as_str(), device.link, device.end)).collect();
        assert_eq!(devices, [("wan0", 0, 1), ("wan1", 1, 1), ("wan2", 2, 1), ("wan3", 3, 0)]);
        let client = network.node("client").unwrap();
        assert_eq!(client.devices, [Device { name: "wan3".into(), link: 3, end: 1 }]);
        assert!(!client.is_forwarding);
        assert_eq!(
            (network.link("far-exchange"), network.ends(2), network.link_count()),
            (Some(2), [3, 4], 4)
        );
        assert_eq!((network.link("x"), network.node("x")), (None, None));
        assert_eq!(ipv4(249).to_string(), "198.18.0.250");
        assert_eq!(ipv6(249).to_string(), "2001:2::fa");
    }

    #[test]
    fn routes_through_a_shared_bottleneck() {
        let (network, directions) = network(SHARED).unwrap();
        let far = &network.nodes()[3];
        let hops: Vec<_> =
            far.routes.iter().map(|route| (route.destination, route.device, route.next_hop)).collect();
        assert_eq!(hops, [(0, 0, 4), (1, 0, 4), (2, 0, 4), (4, 0, 4)]);
        let step = |link, end| Step { link, end };
        assert_eq!(network.path(3, 0), [step(2, 0), step(3, 0)]);
        assert_eq!(network.path(0, 3), [step(3, 1), step(2, 1)]);
        assert_eq!(network.path(0, 0), []);
        assert_eq!(network.base_round_trip(&directions, 3, 0), Duration::from_millis(154));
        assert_eq!(network.base_round_trip(&directions, 0, 3), Duration::from_millis(154));
        assert_eq!(network.base_round_trip(&directions, 1, 2), Duration::from_millis(31));
        assert_eq!(network.rate_bits_per_s(&directions, 3, 0), Some(80_000_000));
        assert_eq!(network.rate_bits_per_s(&directions, 0, 3), Some(8_000_000));
        assert_eq!(network.rate_bits_per_s(&directions, 1, 0), Some(800_000_000));
    }

    #[test]
    fn ties_are_decided_by_delay_then_links_then_names() {
        let square = |extra: &str| {
            let text = format!(
                "sites = ['a', 'b', 'c', 'd']
                [[link]]\nbetween = ['a', 'b']\ndelay_ms = 1
                [[link]]\nbetween = ['b', 'd']\ndelay_ms = 1
                [[link]]\nbetween = ['a', 'c']\ndelay_ms = 1
                [[link]]\nbetween = ['c', 'd']\ndelay_ms = 1\n{extra}"
            );
            network(&text).unwrap().0
        };
        let links =
            |network: &Network, a, b| network.path(a, b).iter().map(|step| step.link).collect::<Vec<_>>();
        // c-d is the last name: the way without it wins, there and back.
        let by_name = square("");
        assert_eq!(links(&by_name, 0, 3), [0, 1]);
        assert_eq!(links(&by_name, 3, 0), [1, 0]);
        assert!(by_name.nodes()[1].is_forwarding, "b lies on the way from a to d");
        let by_links = square("[[link]]\nbetween = ['a', 'd']\ndelay_ms = 2");
        assert_eq!(links(&by_links, 0, 3), [4]);
        let by_delay = square("[[link]]\nbetween = ['a', 'd']\ndelay_ms = 2.000001");
        assert_eq!(links(&by_delay, 0, 3), [0, 1]);
        let by_both_directions = square("[[link]]\nbetween = ['a', 'd']\ndelay_ms = 9\nfrom.a.delay_ms = 0");
        assert_eq!(links(&by_both_directions, 0, 3), [0, 1]);
    }

    /// A connected network: a tree, and some links more.
    fn networks() -> impl Strategy<Value = String> {
        let tree = proptest::collection::vec((any::<prop::sample::Index>(), 0..4_u32), 1..12);
        let more = proptest::collection::vec((0..13_usize, 0..13_usize, 0..4_u32), 0..20);
        (tree, more).prop_map(|(tree, more)| {
            let nodes = tree.len() + 1;
            let mut links: Vec<(usize, usize, u32)> = tree
                .iter()
                .enumerate()
                .map(|(i, (parent, delay))| (i + 1, parent.index(i + 1), *delay))
                .collect();
            for (a, b, delay) in more {
                let is_new = !links.iter().any(|(x, y, _)| (*x, *y) == (a, b) || (*x, *y) == (b, a));
                if a != b && a < nodes && b < nodes && is_new {
                    links.push((a, b, delay));
                }
            }
            let sites: Vec<String> = (0..nodes).map(|node| format!("'n{node}'")).collect();
            let links: Vec<String> = links
                .iter()
                .map(|(a, b, delay)| format!("[[link]]\nbetween = ['n{a}', 'n{b}']\ndelay_ms = {delay}\n"))
                .collect();
            format!("sites = [{}]\n{}", sites.join(", "), links.concat())
        })
    }

    proptest! {
        #[test]
        fn routes_fit_together(text in networks()) {
            let (network, directions) = network(&text).unwrap();
            let count = network.nodes().len();
            // Floyd and Warshall's shortest times, as a reference.
            let mut times = vec![vec![u128::MAX / 4; count]; count];
            for (link, [there, back]) in directions.iter().enumerate() {
                let [a, b] = network.ends(link);
                let time = (there.delay + back.delay).as_nanos();
                times[a][b] = time;
                times[b][a] = time;
            }
            for middle in 0..count {
                let from_middle = times[middle].clone();
                for times in &mut times {
                    for (b, rest) in from_middle.iter().enumerate() {
                        times[b] = times[b].min(times[middle] + rest);
                    }
                }
            }
            for (a, times) in times.iter().enumerate() {
                prop_assert_eq!(network.nodes()[a].routes.len(), count - 1);
                for route in &network.nodes()[a].routes {
                    let (b, mut here, mut hops) = (route.destination, a, 0);
                    while here != b {
                        let node = &network.nodes()[here];
                        prop_assert!(here == a || node.is_forwarding);
                        let route = node.routes.iter().find(|route| route.destination == b).unwrap();
                        let device = &node.devices[route.device];
                        prop_assert_eq!(network.ends(device.link)[device.end], here);
                        prop_assert_eq!(network.ends(device.link)[1 - device.end], route.next_hop);
                        here = route.next_hop;
                        hops += 1;
                        prop_assert!(hops < count, "a loop");
                    }
                    let there = network.path(a, b);
                    prop_assert_eq!(there.len(), hops);
                    let mut back = network.path(b, a);
                    back.reverse();
                    let is_mirrored = |(x, y): (&Step, &Step)| x.link == y.link && x.end == 1 - y.end;
                    prop_assert!(there.iter().zip(&back).all(is_mirrored));
                    prop_assert_eq!(network.base_round_trip(&directions, a, b).as_nanos(), times[b]);
                }
            }
            for derived in network.derive(&directions).as_flattened() {
                prop_assert!(derived.gso_packets_max >= 1 && derived.gso_bytes_max >= 1500);
            }
        }
    }
}

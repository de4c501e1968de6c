//! What is known of a network that is up: what `gridlane wan show` shows.

use serde::{Deserialize, Serialize};

use crate::counters::Counters;

/// A network that is up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// `tun` or `netem`.
    pub backend: String,
    /// By what right: `root` or `user namespace`.
    pub privilege: String,
    /// Process that keeps it up.
    pub pid: u32,
    /// Seed of everything that is drawn by lot.
    pub seed: u64,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// Bytes on the wire beyond a packet's own.
    pub framing_bytes: u32,
    /// Where its socket-buffer limits come from: `bdp` or `host`.
    pub buffers: String,
    /// Seconds since the timetable was started.
    pub timetable_s: f64,
    /// CPU time of the forwarder so far.
    pub forwarder_cpu_s: f64,
    /// True if the forwarder runs before ordinary threads.
    pub forwarder_is_real_time: bool,
    /// Why figures from this run mean nothing, if so.
    pub void: Option<String>,
    /// Where commands run, and what passes packets on.
    pub nodes: Vec<NodeState>,
    /// Every direction of every link.
    pub links: Vec<LinkState>,
    /// Figures that follow for each pair of sites, in both directions.
    pub paths: Vec<PathState>,
}

/// A site or a router.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeState {
    /// Its name, which resolves inside.
    pub name: String,
    /// True if it only passes packets on.
    pub is_router: bool,
    /// Its addresses: IPv4, IPv6.
    pub addresses: [String; 2],
    /// Congestion control that connections from here really get, as asked of a socket.
    pub congestion_control: String,
    /// `net.ipv4.tcp_rmem`: least, default and most bytes, as read back.
    pub tcp_rmem: [u64; 3],
    /// `net.ipv4.tcp_wmem`: least, default and most bytes, as read back.
    pub tcp_wmem: [u64; 3],
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkState {
    /// The link.
    pub link: String,
    /// The sender.
    pub from: String,
    /// The receiver.
    pub to: String,
    /// Bits per second on the wire; `None`: unlimited.
    pub rate_bits_per_s: Option<u64>,
    /// One way.
    pub delay_s: f64,
    /// Most bytes on the wire that wait; `None`: limited by memory only.
    pub queue_bytes: Option<u64>,
    /// Probability that a packet is lost.
    pub loss: f64,
    /// The delay varies by this much to both sides.
    pub jitter_s: f64,
    /// True if everything that is sent vanishes.
    pub is_down: bool,
    /// The counters so far.
    pub counters: Counters,
}

/// From one site to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathState {
    /// The sender.
    pub from: String,
    /// The receiver.
    pub to: String,
    /// Bits per second on the wire of the slowest link; `None`: unlimited.
    pub rate_bits_per_s: Option<u64>,
    /// TCP payload that this allows, IPv4 and IPv6.
    pub payload_bytes_per_s: Option<[f64; 2]>,
    /// There and back, when nothing waits.
    pub round_trip_s: f64,
}

//! What is told to `ip`, `tc` and the kernel's settings so that a [`Network`] comes to be: as text, which can
//! be shown, compared and run. Nothing here runs anything.
//!
//! # The order
//!
//! 1. In every node's namespace the settings ([`NodeCommands::sysctls`]): a device takes over `default` when
//!    it is made.
//! 2. The devices: TUN devices are made by the forwarder between them, veth pairs by [`veth_batch`].
//! 3. In every node's namespace [`NodeCommands::ip_batch`] through `ip -batch -`, iproute2 6.1 or later. Both
//!    families are in one batch: a line cannot begin with `-6`, and need not, because `ip` tells the family
//!    from the address.
//! 4. With netem [`NodeCommands::tc_batch`] through `tc -batch -`; after a change [`gso_line`] and
//!    [`netem_line`] for each direction that changed.
//!
//! # Links
//!
//! Routes name a device and no gateway: at the other end is one node, and the packet is meant
//! for it or passed on by it. A TUN device has no addresses that would have to be found out. A veth device
//! has; with ARP off (`IFF_NOARP`) the kernel takes every neighbour's to be the device's own, for IPv4 and
//! IPv6 (`arp_constructor`, `ndisc_constructor`), so both ends of a pair get the same.
//!
//! Nothing may be on a link that no site sent, or it would shift the lot by which packets are lost: so there
//! are no link-local addresses (`addrgenmode none`: routers and duplicates are not looked for) and no
//! multicast groups (a router would report that it listens to all-routers).
//!
//! # Congestion control
//!
//! It is a property of routes (`congctl`). That needs no change of the host's settings: a namespace may
//! choose by route what the host has loaded, even if `tcp_allowed_congestion_control` leaves it out.
//!
//! # What netem does otherwise
//!
//! - It loses super-packets as a whole and counts them as one, so TCP is kept from making any
//!   (`gso_max_segs 1`). Those of UDP sockets (`UDP_SEGMENT`) are cut only behind netem.
//! - Its queue is counted in packets ([`netem_line`]).
//! - Its lot is not seeded: iproute2 6.1 has no word for it.
//! - A queue that overflows at the sender itself is no loss: the kernel tells TCP, which waits. A bottleneck
//!   that is to lose packets belongs behind a router.

use gridlane_core::{Error, ErrorKind, Fault, Result, limits};

use crate::network::{Derived, Device, HostBuffers, Network, Node, bytes_in};
use crate::scenario::Direction;

/// Bytes of the header that packets have on veth devices.
pub(crate) const ETHERNET_BYTES: u64 = 14;

/// IP bytes of an acknowledgement: IPv4, TCP, timestamps.
const ACKNOWLEDGEMENT_BYTES: u64 = 52;

/// Commands that make the devices of links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackEnd {
    /// TUN devices with a forwarder in user space between them.
    Tun,
    /// veth pairs with the kernel's netem.
    Netem,
}

/// Commands for the namespace of one node, in the order of the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeCommands {
    /// Files below `/proc/sys/net` and what is written to them.
    pub(crate) sysctls: Vec<(String, String)>,
    /// Standard input of `ip -batch -`, when the devices exist.
    pub(crate) ip_batch: String,
    /// Standard input of `tc -batch -`; empty without netem.
    pub(crate) tc_batch: String,
}

/// Everything for one node. `directions` are the figures of all links, `derived` is what the network derives
/// from them, `host` the limits of socket buffers that the host has. Fails if netem cannot do what they say.
pub(crate) fn node_commands(
    network: &Network,
    directions: &[[Direction; 2]],
    derived: &[[Derived; 2]],
    node: usize,
    back_end: BackEnd,
    host: &HostBuffers,
) -> Result<NodeCommands> {
    let buffers = network.buffers_for(directions, derived, node, host);
    let node = &network.nodes()[node];
    let mut tc_batch = String::new();
    if back_end == BackEnd::Netem {
        for device in &node.devices {
            tc_batch.push_str(&netem_line(network, directions, derived, device.link, device.end)?);
        }
    }
    Ok(NodeCommands {
        sysctls: sysctls(node, buffers.as_ref()),
        ip_batch: ip_batch(network, node, derived, back_end),
        tc_batch,
    })
}

/// The hosts file of all namespaces. `near` has both families; `near.v4` and `near.v6` choose one.
pub(crate) fn hosts_file(network: &Network) -> String {
    let mut text = String::from("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n");
    for Node { name, ipv4, ipv6, .. } in network.nodes() {
        text.push_str(&format!("{ipv4} {name} {name}.v4\n{ipv6} {name} {name}.v6\n"));
    }
    text
}

/// Standard input of an `ip -batch -` that makes the veth pairs of all links. `namespaces` says for every
/// node what follows the word `netns`: a name, a process or thread, or a path such as `/proc/7/fd/8`.
pub(crate) fn veth_batch(network: &Network, namespaces: &[String]) -> Result<String> {
    let mut batch = String::new();
    for link in 0..network.link_count() {
        let [a, b] = network.ends(link);
        let (a, b) = (namespace(namespaces, a)?, namespace(namespaces, b)?);
        // Locally administered. 256 of the last byte are not enough for all links.
        let address = format!("02:67:6c:00:{:02x}:{:02x}", link >> 8, link & 0xff);
        batch.push_str(&format!(
            "link add name wan{link} netns {a} address {address} type veth \
             peer name wan{link} netns {b} address {address}\n"
        ));
    }
    Ok(batch)
}

/// A line for `ip -batch -` inside a node: the largest super-packet that `device` takes.
pub(crate) fn gso_line(device: &Device, derived: &Derived, back_end: BackEnd) -> String {
    let Derived { gso_bytes_max, .. } = derived;
    let packets_max = match back_end {
        BackEnd::Tun => derived.gso_packets_max,
        BackEnd::Netem => 1,
    };
    format!("link set dev {} gso_max_size {gso_bytes_max} gso_max_segs {packets_max}\n", device.name)
}

/// A line for `tc -batch -` inside the node at `end` of `link`: makes or changes what netem does there.
///
/// netem's `limit` counts all packets that it holds, waiting and travelling, whatever their size. Travelling
/// ones are those of one delay: full packets at this rate, or acknowledgements of full packets at the rate of
/// the other direction, whichever are more, but no more acknowledgements than this rate carries. Without them
/// a slow way back would lose acknowledgements that its queue in bytes has room for. The price: there full
/// packets find the queue longer than it should be. A direction without a rate says nothing of how much is to
/// be acknowledged; it counts as having this one's, or every queue beside it would be without bounds.
///
/// Jitter needs a rate. With one, netem serves a packet after the last one in its queue (`netem_enqueue`: the
/// delay counts from the time at which that one is to be sent, and is not negative), so order is kept.
/// Without, each packet is sorted in by its own time, and those with less delay overtake.
pub(crate) fn netem_line(
    network: &Network,
    directions: &[[Direction; 2]],
    derived: &[[Derived; 2]],
    link: usize,
    end: usize,
) -> Result<String> {
    let direction = &directions[link][end];
    if direction.jitter > limits::WAN_NETEM_JITTER_MAX {
        return Err(unsupported(
            format!("netem cannot do a jitter of {} s", direction.jitter.as_secs_f64()),
            "make jitter_ms at most 2147",
        ));
    }
    if !direction.jitter.is_zero() && direction.rate_bits_per_s.is_none() {
        return Err(unsupported(
            "netem changes the order of packets where there is jitter without a rate",
            "give the link a rate, or use the tun back end",
        ));
    }
    let limit = packet_limit(network, direction, &directions[link][1 - end], &derived[link][end]);
    let mut line = format!("qdisc replace dev wan{link} root netem limit {limit}");
    line.push_str(&format!(" delay {}us", microseconds(direction.delay)));
    if !direction.jitter.is_zero() {
        line.push_str(&format!(" {}us", microseconds(direction.jitter)));
    }
    let loss = if direction.is_down { 1.0 } else { direction.loss };
    line.push_str(&format!(" loss random {}%", percent(loss)));
    // A packet that netem sees has an Ethernet header, which is part of the framing. A rate of 0 is none;
    // without the word, a change would leave the rate as it was.
    let rate = direction.rate_bits_per_s.unwrap_or(0);
    let overhead = i64::from(network.framing_bytes()) - ETHERNET_BYTES as i64;
    line.push_str(&format!(" rate {rate}bit {overhead}\n"));
    Ok(line)
}

// --- Settings ----------------------------------------------------------------------------------

fn sysctls(node: &Node, buffers: Option<&HostBuffers>) -> Vec<(String, String)> {
    let mut settings = Vec::new();
    let mut set = |path: &str, value: &str| {
        settings.push((format!("/proc/sys/net/{path}"), value.to_owned()));
    };
    // First: changing it sets others to what a router or a host should have.
    if node.is_forwarding {
        set("ipv4/ip_forward", "1");
        set("ipv6/conf/all/forwarding", "1");
        // `all` decides about forwarding. A device that is made with it joins all-routers at once, and
        // reports that when it comes up, although multicast is off by then.
        set("ipv6/conf/default/forwarding", "0");
    }
    for devices in ["all", "default"] {
        set(&format!("ipv4/conf/{devices}/rp_filter"), "0");
        set(&format!("ipv6/conf/{devices}/accept_ra"), "0");
        set(&format!("ipv6/conf/{devices}/accept_dad"), "0");
        set(&format!("ipv6/conf/{devices}/router_solicitations"), "0");
    }
    // What one connection learned about a path is no business of the next measurement.
    set("ipv4/tcp_no_metrics_save", "1");
    // Whose `ping` needs no privilege. Group 0 is root's, and of any user inside a user namespace, where
    // wider ranges are refused because other groups do not exist.
    set("ipv4/ping_group_range", "0 0");
    if let Some(HostBuffers { rmem, wmem }) = buffers {
        let three = |[least, at_first, most]: &[u64; 3]| format!("{least} {at_first} {most}");
        set("ipv4/tcp_rmem", &three(rmem));
        set("ipv4/tcp_wmem", &three(wmem));
    }
    settings
}

// --- Devices and routes ------------------------------------------------------------------------

fn ip_batch(network: &Network, node: &Node, derived: &[[Derived; 2]], back_end: BackEnd) -> String {
    let Node { ipv4, ipv6, .. } = node;
    let mut batch = String::from("link set dev lo up\n");
    batch.push_str(&format!("addr add {ipv4}/32 dev lo\n"));
    batch.push_str(&format!("addr add {ipv6}/128 dev lo nodad\n"));
    for device in &node.devices {
        let Device { name, link, end } = device;
        // The device's own queue is hidden in front of the modelled one and must never be what drops. It gets
        // its size before the device is up, for then the ring of a TUN device is made.
        batch.push_str(&format!(
            "link set dev {name} mtu {} txqueuelen {} addrgenmode none multicast off{}\n",
            network.mtu(),
            limits::WAN_DEVICE_QUEUE_PACKETS,
            if back_end == BackEnd::Netem { " arp off" } else { "" }
        ));
        batch.push_str(&gso_line(device, &derived[*link][*end], back_end));
        batch.push_str(&format!("link set dev {name} up\n"));
    }
    let congestion_control = match network.congestion_control() {
        Some(name) => format!(" congctl {name}"),
        None => String::new(),
    };
    for route in &node.routes {
        let destination = &network.nodes()[route.destination];
        let device = &node.devices[route.device].name;
        batch.push_str(&format!(
            "route add {}/32 dev {device} src {ipv4}{congestion_control}\n",
            destination.ipv4
        ));
        batch.push_str(&format!(
            "route add {}/128 dev {device} src {ipv6}{congestion_control}\n",
            destination.ipv6
        ));
    }
    batch
}

fn namespace(namespaces: &[String], node: usize) -> Result<&str> {
    let name = namespaces.get(node).map_or("", String::as_str);
    let is_word = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte));
    if name.is_empty() || name.starts_with('-') || !is_word {
        return Err(Error::new(
            ErrorKind::Other,
            format!("{name:?} cannot be written as a network namespace"),
        ));
    }
    Ok(name)
}

// --- netem's figures ---------------------------------------------------------------------------

fn packet_limit(network: &Network, direction: &Direction, other: &Direction, derived: &Derived) -> u64 {
    let Some(rate) = direction.rate_bits_per_s else { return limits::WAN_NETEM_PACKETS_MAX };
    let packet_bytes = u64::from(network.packet_bytes_max());
    let delay = direction.delay + direction.jitter;
    let full = bytes_in(rate, delay).div_ceil(packet_bytes);
    let acknowledged = bytes_in(other.rate_bits_per_s.unwrap_or(rate), delay).div_ceil(packet_bytes);
    let acknowledgement_bytes = ACKNOWLEDGEMENT_BYTES + u64::from(network.framing_bytes());
    let acknowledgements = acknowledged.min(bytes_in(rate, delay).div_ceil(acknowledgement_bytes));
    let queue = derived.queue_bytes.unwrap_or(0);
    // And the one that is being sent. tc reads 32 bits.
    let packets = full.max(acknowledgements) + queue.div_ceil(packet_bytes) + 1;
    packets.min(u64::from(u32::MAX))
}

fn microseconds(time: std::time::Duration) -> String {
    without_zeros(format!("{}.{:03}", time.as_micros(), time.as_nanos() % 1000))
}

/// With ten digits behind the point of the probability: netem has 32 bits.
fn percent(probability: f64) -> String {
    without_zeros(format!("{:.8}", probability * 100.0))
}

fn without_zeros(number: String) -> String {
    number.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn unsupported(message: impl Into<String>, hint: &str) -> Error {
    Error::new(ErrorKind::Unsupported, message).fault(Fault::Caller).hint(hint)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::scenario::Scenario;

    const HOST: HostBuffers =
        HostBuffers { rmem: [4096, 131_072, 33_554_432], wmem: [4096, 16_384, 4_194_304] };

    const THREE: &str = "
        sites = ['client', 'far']
        routers = ['exchange']
        congestion_control = 'cubic'
        link = [
            { between = ['far', 'exchange'], rate = '1Gb/s', delay_ms = 50, loss = 1e-5, jitter_ms = 0.1 },
            { between = ['exchange', 'client'], delay_ms = 0.5 },
        ]";

    fn network(text: &str) -> (Network, Vec<[Direction; 2]>) {
        let scenario = Scenario::parse(text).unwrap();
        (Network::of(&scenario), scenario.directions())
    }

    fn commands(text: &str, node: usize, back_end: BackEnd) -> NodeCommands {
        let (network, directions) = network(text);
        node_commands(&network, &directions, &network.derive(&directions), node, back_end, &HOST).unwrap()
    }

    #[test]
    fn a_site_with_tun_devices() {
        let far = commands(THREE, 1, BackEnd::Tun);
        assert_eq!(
            far.ip_batch,
            "link set dev lo up\n\
             addr add 198.18.0.2/32 dev lo\n\
             addr add 2001:2::2/128 dev lo nodad\n\
             link set dev wan0 mtu 1500 txqueuelen 10000 addrgenmode none multicast off\n\
             link set dev wan0 gso_max_size 30512 gso_max_segs 20\n\
             link set dev wan0 up\n\
             route add 198.18.0.1/32 dev wan0 src 198.18.0.2 congctl cubic\n\
             route add 2001:2::1/128 dev wan0 src 2001:2::2 congctl cubic\n\
             route add 198.18.0.3/32 dev wan0 src 198.18.0.2 congctl cubic\n\
             route add 2001:2::3/128 dev wan0 src 2001:2::2 congctl cubic\n"
        );
        assert_eq!(far.tc_batch, "");
        let settings: Vec<_> = far.sysctls.iter().map(|(path, value)| format!("{path} = {value}")).collect();
        assert_eq!(
            settings,
            [
                "/proc/sys/net/ipv4/conf/all/rp_filter = 0",
                "/proc/sys/net/ipv6/conf/all/accept_ra = 0",
                "/proc/sys/net/ipv6/conf/all/accept_dad = 0",
                "/proc/sys/net/ipv6/conf/all/router_solicitations = 0",
                "/proc/sys/net/ipv4/conf/default/rp_filter = 0",
                "/proc/sys/net/ipv6/conf/default/accept_ra = 0",
                "/proc/sys/net/ipv6/conf/default/accept_dad = 0",
                "/proc/sys/net/ipv6/conf/default/router_solicitations = 0",
                "/proc/sys/net/ipv4/tcp_no_metrics_save = 1",
                "/proc/sys/net/ipv4/ping_group_range = 0 0",
                "/proc/sys/net/ipv4/tcp_rmem = 4096 131072 101000000",
                "/proc/sys/net/ipv4/tcp_wmem = 4096 16384 101000000",
            ]
        );
    }

    #[test]
    fn a_router_passes_on_and_keeps_the_hosts_buffers() {
        let exchange = commands(THREE, 2, BackEnd::Tun);
        let path = |index: usize| exchange.sysctls[index].0.as_str();
        assert_eq!(path(0), "/proc/sys/net/ipv4/ip_forward");
        assert_eq!(path(1), "/proc/sys/net/ipv6/conf/all/forwarding");
        assert_eq!(path(2), "/proc/sys/net/ipv6/conf/default/forwarding");
        assert!(!exchange.sysctls.iter().any(|(path, _)| path.contains("mem")));
        assert!(
            exchange.ip_batch.contains("route add 198.18.0.1/32 dev wan1 src 198.18.0.3 congctl cubic\n")
        );
        assert!(exchange.ip_batch.contains("route add 2001:2::2/128 dev wan0 src 2001:2::3 congctl cubic\n"));
    }

    #[test]
    fn without_a_congestion_control_and_with_the_hosts_buffers() {
        let text = "sites = ['a', 'b']\nbuffers = 'host'\n[[link]]\nbetween = ['a', 'b']";
        let a = commands(text, 0, BackEnd::Tun);
        assert!(a.ip_batch.ends_with(
            "route add 198.18.0.2/32 dev wan0 src 198.18.0.1\n\
             route add 2001:2::2/128 dev wan0 src 2001:2::1\n"
        ));
        assert!(!a.sysctls.iter().any(|(path, _)| path.contains("mem") && !path.contains("metrics")));
    }

    #[test]
    fn a_router_with_netem() {
        let exchange = commands(THREE, 2, BackEnd::Netem);
        let devices: Vec<_> =
            exchange.ip_batch.lines().filter(|line| line.contains("wan0")).take(3).collect();
        assert_eq!(
            devices,
            [
                "link set dev wan0 mtu 1500 txqueuelen 10000 addrgenmode none multicast off arp off",
                "link set dev wan0 gso_max_size 30512 gso_max_segs 1",
                "link set dev wan0 up",
            ]
        );
        // 1 Gb/s × 50.1 ms and × 101 ms in packets of 1538 bytes.
        assert_eq!(
            exchange.tc_batch,
            "qdisc replace dev wan0 root netem limit 12282 delay 50000us 100us loss random 0.001% \
             rate 1000000000bit 24\n\
             qdisc replace dev wan1 root netem limit 4000000 delay 500us loss random 0% rate 0bit 24\n"
        );
    }

    #[test]
    fn figures_of_netem() {
        let (network, base) = network(
            "sites = ['a', 'b']\nframing_bytes = 0\n
             [[link]]\nbetween = ['a', 'b']\nrate = '1Gb/s'\ndelay_ms = 10\nfrom.b.rate = '12Mb/s'",
        );
        let line = |change: &dyn Fn(&mut Direction)| {
            let mut directions = base.clone();
            change(&mut directions[0][1]);
            netem_line(&network, &directions, &network.derive(&directions), 0, 1)
        };
        let text = |change: &dyn Fn(&mut Direction)| line(change).unwrap();
        // 12 Mb/s carry 10 packets in 10 ms, or 289 acknowledgements, of 834 that 1 Gb/s need; 128 packets of queue.
        assert_eq!(
            text(&|_| {}),
            "qdisc replace dev wan0 root netem limit 418 delay 10000us loss random 0% rate 12000000bit -14\n"
        );
        assert!(text(&|direction| direction.is_down = true).contains(" loss random 100% "));
        assert!(text(&|direction| direction.loss = 1.0).contains(" loss random 100% "));
        assert!(text(&|direction| direction.loss = 1e-9).contains(" loss random 0.0000001% "));
        assert!(text(&|direction| direction.loss = 0.1).contains(" loss random 10% "));
        assert!(text(&|direction| direction.delay = Duration::from_nanos(1_050)).contains(" delay 1.05us "));
        assert!(text(&|direction| direction.delay = Duration::ZERO).contains(" delay 0us "));
        assert!(text(&|direction| direction.queue_bytes = Some(150_000)).contains(" limit 390 "));
        let refusal = line(&|direction| {
            direction.rate_bits_per_s = None;
            direction.jitter = Duration::from_millis(1);
        });
        assert_eq!(refusal.unwrap_err().kind(), ErrorKind::Unsupported);
        let refusal = line(&|direction| direction.jitter = Duration::from_millis(2148));
        assert!(refusal.unwrap_err().advice().is_some());
    }

    #[test]
    fn names_of_both_families() {
        assert_eq!(
            hosts_file(&network(THREE).0),
            "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n\
             198.18.0.1 client client.v4\n2001:2::1 client client.v6\n\
             198.18.0.2 far far.v4\n2001:2::2 far far.v6\n\
             198.18.0.3 exchange exchange.v4\n2001:2::3 exchange exchange.v6\n"
        );
    }

    #[test]
    fn veth_pairs_have_one_address_at_both_ends() {
        let (network, _) = network(THREE);
        let namespaces = ["c", "/proc/7/fd/8", "123"].map(str::to_owned);
        assert_eq!(
            veth_batch(&network, &namespaces).unwrap(),
            "link add name wan0 netns /proc/7/fd/8 address 02:67:6c:00:00:00 type veth \
             peer name wan0 netns 123 address 02:67:6c:00:00:00\n\
             link add name wan1 netns 123 address 02:67:6c:00:00:01 type veth \
             peer name wan1 netns c address 02:67:6c:00:00:01\n"
        );
        for bad in ["", "-x", "a b", "a\nb"] {
            assert!(veth_batch(&network, &["c".into(), bad.into(), "e".into()]).is_err(), "{bad:?}");
        }
        assert!(veth_batch(&network, &[]).is_err());
    }
}

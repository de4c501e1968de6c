//! A network that is up: its namespaces, and what carries packets between them.

use std::fs;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::thread::JoinHandle;

use gridlane_core::{Error, ErrorKind, Fault, Result};
use gridlane_sys::tun::{self, Tun};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, ipproto, socket_with, sockopt};

use crate::backlog::PACKET_BYTES_MAX;
use crate::commands::{self, BackEnd, NodeCommands};
use crate::counters::Counters;
use crate::forwarder::{Figures, FlowSpec, Forwarder};
use crate::isolation::Privilege;
use crate::namespace::Namespace;
use crate::network::{Derived, Family, HostBuffers, Network, NodeKind, payload_ceiling};
use crate::scenario::{Buffers, Change, Direction, Scenario};
use crate::state::{LinkState, NodeState, PathState, State};

/// Machines with fewer cores per forwarder need them for what runs at the sites.
const CORES_PER_FORWARDER: usize = 4;

/// The discard service: where nothing listens, and nothing has to.
const NO_PORT: u16 = 9;

impl BackEnd {
    /// The name used in JSON.
    pub fn name(self) -> &'static str {
        match self {
            BackEnd::Tun => "tun",
            BackEnd::Netem => "netem",
        }
    }
}

/// A network that is up. It is gone with the value.
pub struct Emulation {
    scenario: Scenario,
    network: Network,
    back_end: BackEnd,
    privilege: Privilege,
    host: HostBuffers,
    directions: Vec<[Direction; 2]>,
    derived: Vec<[Derived; 2]>,
    congestion_controls: Vec<String>,
    // Before the namespaces: what forwards holds their devices.
    forwarders: Vec<Carried>,
    namespaces: Vec<Namespace>,
}

/// A forwarder and the links that it carries: flow `2 * i + end` is link `links[i]`.
struct Carried {
    forwarder: Forwarder,
    links: Vec<usize>,
}

impl Emulation {
    /// Brings a network up. The privilege says by what right, and is obtained before.
    pub fn start(scenario: Scenario, back_end: BackEnd, privilege: Privilege) -> Result<Emulation> {
        let network = Network::of(&scenario);
        let directions = scenario.directions();
        let derived = network.derive(&directions);
        let host = host_buffers()?;
        let namespaces =
            network.nodes().iter().map(|node| Namespace::create(&node.name)).collect::<Result<Vec<_>>>()?;
        let mut emulation = Emulation {
            scenario,
            network,
            back_end,
            privilege,
            host,
            directions,
            derived,
            congestion_controls: Vec::new(),
            forwarders: Vec::new(),
            namespaces,
        };
        let configuration = emulation.configuration()?;
        for (namespace, node) in emulation.namespaces.iter().zip(&configuration) {
            // Before there are devices: they take over what is said of new ones.
            namespace.set_all(&node.sysctls)?;
        }
        let devices = match back_end {
            BackEnd::Tun => emulation.make_tuns()?,
            BackEnd::Netem => emulation.make_veths().map(|()| Vec::new())?,
        };
        for (namespace, node) in emulation.namespaces.iter().zip(&configuration) {
            let name = emulation.scenario.congestion_control.as_deref().unwrap_or_default();
            namespace.batch("ip", &node.ip_batch).map_err(|error| no_congestion_control(error, name))?;
        }
        emulation.congestion_controls = emulation.verified_congestion_controls()?;
        // Not before: the packets of asking belong to no experiment, and nothing counts them yet.
        for (namespace, node) in emulation.namespaces.iter().zip(&configuration) {
            namespace.batch("tc", &node.tc_batch).map_err(no_netem)?;
        }
        if back_end == BackEnd::Tun {
            emulation.forward(devices)?;
        }
        Ok(emulation)
    }

    /// The figures that were asked for.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// The figures that follow from them.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Does something at a site, on a thread of its own.
    pub fn spawn_at<T: Send + 'static>(
        &self,
        site: &str,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<T>> {
        // A thread inherits the namespaces of the one that starts it.
        self.namespace(site)?.run(move || std::thread::spawn(job))
    }

    fn namespace(&self, site: &str) -> Result<&Namespace> {
        self.namespaces.iter().find(|namespace| namespace.name() == site).ok_or_else(|| {
            let names: Vec<&str> = self.network.nodes().iter().map(|node| node.name.as_str()).collect();
            Error::new(ErrorKind::NotFound, format!("there is no site {site}"))
                .fault(Fault::Caller)
                .hint(format!("it has: {}", names.join(", ")))
        })
    }

    /// Descriptors of a site's network namespace and of that of its host name.
    pub(crate) fn descriptors(&self, site: &str) -> Result<(&OwnedFd, &OwnedFd)> {
        Ok(self.namespace(site)?.descriptors())
    }

    /// Numbers of all network namespaces.
    pub(crate) fn namespace_numbers(&self) -> Result<Vec<u64>> {
        self.namespaces.iter().map(Namespace::number).collect()
    }

    /// The device of a link's end. There is one for each end, by how networks are built.
    fn device_name(&self, link: usize, end: usize) -> String {
        let node = &self.network.nodes()[self.network.ends(link)[end]];
        node.devices
            .iter()
            .find(|device| device.link == link)
            .map_or_else(String::new, |device| device.name.clone())
    }

    // --- Bringing it up ---------------------------------------------------------------------------------

    /// For each link the devices of its ends.
    fn make_tuns(&self) -> Result<Vec<[Tun; 2]>> {
        let make = |link: usize, end: usize| {
            let node = &self.network.nodes()[self.network.ends(link)[end]];
            let name = self.device_name(link, end);
            self.namespaces[node.index].run(move || Tun::create(&name))?.map_err(|cause| no_tun(&cause))
        };
        (0..self.network.link_count()).map(|link| Ok([make(link, 0)?, make(link, 1)?])).collect()
    }

    fn make_veths(&self) -> Result<()> {
        let process = std::process::id();
        let paths: Vec<String> = self
            .namespaces
            .iter()
            .map(|namespace| format!("/proc/{process}/fd/{}", namespace.descriptors().0.as_raw_fd()))
            .collect();
        self.namespaces[0].batch("ip", &commands::veth_batch(&self.network, &paths)?).map_err(no_veth)
    }

    fn configuration(&self) -> Result<Vec<NodeCommands>> {
        let (directions, derived) = (&self.directions, &self.derived);
        let of = |node| {
            commands::node_commands(&self.network, directions, derived, node, self.back_end, &self.host)
        };
        (0..self.namespaces.len()).map(of).collect()
    }

    /// The congestion control that connections from each node really get, which is not always what was asked for.
    fn verified_congestion_controls(&self) -> Result<Vec<String>> {
        let nodes = self.network.nodes();
        let found = |node: usize| -> Result<String> {
            let other = &nodes[usize::from(node == 0)];
            let addresses: [SocketAddr; 2] = [(other.ipv4, NO_PORT).into(), (other.ipv6, NO_PORT).into()];
            let asked = self.scenario.congestion_control.clone();
            let name = nodes[node].name.clone();
            self.namespaces[node].run(move || {
                let found = addresses
                    .map(congestion_control_to)
                    .into_iter()
                    .collect::<std::io::Result<Vec<_>>>()
                    .map_err(|cause| Error::local_io("cannot ask for the congestion control", &cause))?;
                match asked.as_ref().into_iter().chain(&found).find(|other| **other != found[0]) {
                    None => Ok(found[0].clone()),
                    Some(_) => {
                        let message =
                            format!("connections from {name} get {}, not {asked:?}", found.join(" and "));
                        Err(Error::new(ErrorKind::Unsupported, message).fault(Fault::Local))
                    }
                }
            })?
        };
        (0..nodes.len()).map(found).collect()
    }

    fn forward(&mut self, devices: Vec<[Tun; 2]>) -> Result<()> {
        // What the kernel has said by itself until now belongs to no experiment.
        let mut nothing = vec![0; PACKET_BYTES_MAX];
        for device in devices.iter().flatten() {
            while matches!(device.read(&mut nothing), Ok(Some(_))) {}
        }
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let threads = (cores / CORES_PER_FORWARDER).clamp(1, devices.len().max(1));
        let mut shares: Vec<(Vec<Tun>, Vec<FlowSpec>, Vec<usize>)> =
            (0..threads).map(|_| Default::default()).collect();
        for (link, [near, far]) in devices.into_iter().enumerate() {
            let (tuns, flows, links) = &mut shares[link % threads];
            let first = tuns.len();
            tuns.extend([near, far]);
            for end in [0, 1] {
                flows.push(FlowSpec {
                    from: first + end,
                    to: first + 1 - end,
                    figures: self.figures(link, end),
                    seed: self.scenario.seed,
                    number: (2 * link + end) as u64,
                });
            }
            links.push(link);
        }
        for (tuns, flows, links) in shares {
            let forwarder = Forwarder::start(tuns, flows)
                .map_err(|cause| Error::local_io("cannot start the forwarder", &cause))?;
            self.forwarders.push(Carried { forwarder, links });
        }
        Ok(())
    }

    fn figures(&self, link: usize, end: usize) -> Figures {
        Figures {
            direction: self.directions[link][end].clone(),
            queue_bytes: self.derived[link][end].queue_bytes,
            framing_bytes: self.scenario.framing_bytes,
        }
    }

    // --- Changing it ------------------------------------------------------------------------------------

    /// Changes a link by name, or what one of its ends sends; with `restore`, from the scenario's figures.
    pub fn set(&mut self, link: &str, from: Option<&str>, restore: bool, change: &Change) -> Result<()> {
        let no = |what: String, names: Vec<&str>| {
            Error::new(ErrorKind::NotFound, what)
                .fault(Fault::Caller)
                .hint(format!("it has: {}", names.join(", ")))
        };
        let index = self.network.link(link).ok_or_else(|| {
            no(
                format!("there is no link {link}"),
                self.scenario.links.iter().map(|link| link.name.as_str()).collect(),
            )
        })?;
        let ends = &self.scenario.links[index].ends;
        let from = match from {
            None => None,
            Some(from) => Some(ends.iter().position(|end| end == from).ok_or_else(|| {
                no(format!("{from} is no end of {link}"), ends.iter().map(String::as_str).collect())
            })?),
        };
        self.apply(index, from, restore, change)
    }

    /// Changes a link, or what one of its ends sends.
    pub(crate) fn change(&mut self, link: usize, from: Option<usize>, change: &Change) -> Result<()> {
        self.apply(link, from, false, change)
    }

    /// Brings back what the scenario says, everywhere.
    pub(crate) fn restore_all(&mut self) -> Result<()> {
        self.adopt(self.scenario.directions())
    }

    fn apply(&mut self, link: usize, from: Option<usize>, restore: bool, change: &Change) -> Result<()> {
        let mut directions = self.directions.clone();
        for end in [0, 1] {
            if from.is_some_and(|from| from != end) {
                continue;
            }
            let base = match restore {
                true => &self.scenario.links[link].directions[end],
                false => &self.directions[link][end],
            };
            directions[link][end] = change.applied(base, self.scenario.packet_bytes_max())?;
        }
        self.adopt(directions)
    }

    /// Makes figures those of the network: all that follows from them is worked out again. If the kernel does
    /// not take them, everything stays as it was.
    fn adopt(&mut self, directions: Vec<[Direction; 2]>) -> Result<()> {
        let before = self.configuration()?;
        let old_directions = std::mem::replace(&mut self.directions, directions);
        let old_derived = std::mem::replace(&mut self.derived, self.network.derive(&self.directions));
        if let Err(error) = self.configuration().and_then(|after| self.reconfigure(&before, &after)) {
            (self.directions, self.derived) = (old_directions, old_derived);
            return Err(error);
        }
        let mut is_told = true;
        for carried in &self.forwarders {
            for (at, link) in carried.links.iter().enumerate() {
                for end in [0, 1] {
                    if old_directions[*link][end] != self.directions[*link][end]
                        || old_derived[*link][end] != self.derived[*link][end]
                    {
                        is_told &= carried.forwarder.set(2 * at + end, self.figures(*link, end));
                    }
                }
            }
        }
        if is_told { Ok(()) } else { Err(dead_forwarder()) }
    }

    /// Tells the kernel what is new: sizes of super-packets, buffers, disciplines. If it refuses something, it is
    /// told the old again.
    fn reconfigure(&self, before: &[NodeCommands], after: &[NodeCommands]) -> Result<()> {
        let tell = |before: &[NodeCommands], after: &[NodeCommands]| -> Result<()> {
            for ((namespace, before), after) in self.namespaces.iter().zip(before).zip(after) {
                let sysctls: Vec<_> = after
                    .sysctls
                    .iter()
                    .filter(|setting| !before.sysctls.contains(setting))
                    .cloned()
                    .collect();
                namespace.set_all(&sysctls)?;
                namespace.batch("ip", &new_lines(&before.ip_batch, &after.ip_batch))?;
                namespace.batch("tc", &new_lines(&before.tc_batch, &after.tc_batch))?;
            }
            Ok(())
        };
        tell(before, after).inspect_err(|_| {
            // What cannot be taken back is told by the error that comes first.
            let _ = tell(after, before);
        })
    }

    // --- Looking at it ----------------------------------------------------------------------------------

    /// Everything that is known of it now. `timetable_s` is left 0.
    pub fn state(&self) -> Result<State> {
        let mut cpu_s = 0.0;
        let mut is_real_time = true;
        let mut counters = vec![[Counters::default(), Counters::default()]; self.network.link_count()];
        for carried in &self.forwarders {
            let report = carried.forwarder.report().ok_or_else(dead_forwarder)?;
            cpu_s += report.cpu.as_secs_f64();
            is_real_time &= report.is_real_time;
            for (flow, of_flow) in report.counters.into_iter().enumerate() {
                counters[carried.links[flow / 2]][flow % 2] = of_flow;
            }
        }
        let mut links = Vec::new();
        for (index, link) in self.scenario.links.iter().enumerate() {
            for end in [0, 1] {
                let sender = &self.namespaces[self.network.ends(index)[end]];
                let device = self.device_name(index, end);
                let mut counters = match self.back_end {
                    BackEnd::Tun => counters[index][end].clone(),
                    BackEnd::Netem => crate::netem::counters(sender, &device)?,
                };
                match sender.dropped_by_device(&device)? {
                    Some(packets) => counters.device_dropped_packets = packets,
                    // A program at the site removed it.
                    None => counters.has_failed = true,
                }
                let direction = &self.directions[index][end];
                links.push(LinkState {
                    link: link.name.clone(),
                    from: link.ends[end].clone(),
                    to: link.ends[1 - end].clone(),
                    rate_bits_per_s: direction.rate_bits_per_s,
                    delay_s: direction.delay.as_secs_f64(),
                    queue_bytes: self.derived[index][end].queue_bytes,
                    loss: direction.loss,
                    jitter_s: direction.jitter.as_secs_f64(),
                    is_down: direction.is_down,
                    counters,
                });
            }
        }
        let void = links.iter().find_map(|link| {
            let why = link.counters.void()?;
            Some(format!("from {} to {}: {why}", link.from, link.to))
        });
        Ok(State {
            backend: self.back_end.name().into(),
            privilege: self.privilege.name().into(),
            pid: std::process::id(),
            seed: self.scenario.seed,
            mtu: self.scenario.mtu,
            framing_bytes: self.scenario.framing_bytes,
            buffers: match self.scenario.buffers {
                Buffers::Bdp => "bdp".into(),
                Buffers::Host => "host".into(),
            },
            timetable_s: 0.0,
            forwarder_cpu_s: cpu_s,
            forwarder_is_real_time: is_real_time,
            void,
            nodes: self.node_states()?,
            links,
            paths: self.path_states(),
        })
    }

    fn node_states(&self) -> Result<Vec<NodeState>> {
        let mut states = Vec::new();
        for ((node, namespace), congestion_control) in
            self.network.nodes().iter().zip(&self.namespaces).zip(&self.congestion_controls)
        {
            let buffers = namespace.run(host_buffers)??;
            states.push(NodeState {
                name: node.name.clone(),
                is_router: node.kind == NodeKind::Router,
                addresses: [node.ipv4.to_string(), node.ipv6.to_string()],
                congestion_control: congestion_control.clone(),
                tcp_rmem: buffers.rmem,
                tcp_wmem: buffers.wmem,
            });
        }
        Ok(states)
    }

    fn path_states(&self) -> Vec<PathState> {
        let ceilings = [Family::Ipv4, Family::Ipv6]
            .map(|family| payload_ceiling(self.scenario.mtu, self.scenario.framing_bytes, family));
        let sites = self.network.sites();
        let mut paths = Vec::new();
        for from in sites {
            for to in sites.iter().filter(|to| to.index != from.index) {
                let rate = self.network.rate_bits_per_s(&self.directions, from.index, to.index);
                let round_trip = self.network.base_round_trip(&self.directions, from.index, to.index);
                paths.push(PathState {
                    from: from.name.clone(),
                    to: to.name.clone(),
                    rate_bits_per_s: rate,
                    payload_bytes_per_s: rate.map(|rate| ceilings.map(|part| rate as f64 / 8.0 * part)),
                    round_trip_s: round_trip.as_secs_f64(),
                });
            }
        }
        paths
    }
}

/// Everything that bringing a network up would configure, as text: for each node its settings and what `ip` and `tc`
/// would be told.
pub fn configuration(scenario: &Scenario, back_end: BackEnd) -> Result<String> {
    let network = Network::of(scenario);
    let host = host_buffers()?;
    let mut text = format!("# /etc/hosts\n{}", commands::hosts_file(&network));
    if back_end == BackEnd::Netem {
        let names: Vec<String> = network.nodes().iter().map(|node| node.name.clone()).collect();
        text.push_str(&format!("\n# ip -batch -\n{}", commands::veth_batch(&network, &names)?));
    }
    let directions = scenario.directions();
    let derived = network.derive(&directions);
    for node in network.nodes() {
        let commands = commands::node_commands(&network, &directions, &derived, node.index, back_end, &host)?;
        text.push_str(&format!("\n# {}: settings\n", node.name));
        for (path, value) in commands.sysctls {
            text.push_str(&format!("{path} = {value}\n"));
        }
        text.push_str(&format!("\n# {}: ip -batch -\n{}", node.name, commands.ip_batch));
        if !commands.tc_batch.is_empty() {
            text.push_str(&format!("\n# {}: tc -batch -\n{}", node.name, commands.tc_batch));
        }
    }
    Ok(text)
}

/// The lines of `after` that `before` has not.
fn new_lines(before: &str, after: &str) -> String {
    let old: Vec<&str> = before.lines().collect();
    after.lines().filter(|line| !old.contains(line)).map(|line| format!("{line}\n")).collect()
}

/// Buffer limits of the calling thread's network namespace.
fn host_buffers() -> Result<HostBuffers> {
    let read = |name: &str| -> Result<[u64; 3]> {
        let path = format!("/proc/sys/net/ipv4/{name}");
        let text = fs::read_to_string(&path)
            .map_err(|cause| Error::local_io(format!("cannot read {path}"), &cause))?;
        let values: Vec<u64> = text.split_ascii_whitespace().flat_map(str::parse).collect();
        values.try_into().map_err(|_| Error::new(ErrorKind::Other, format!("{path} says {text:?}")))
    };
    Ok(HostBuffers { rmem: read("tcp_rmem")?, wmem: read("tcp_wmem")? })
}

/// The congestion control of a connection from here to there. Known from its first packet on, so it is not
/// waited for an answer.
fn congestion_control_to(address: SocketAddr) -> std::io::Result<String> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(
        family,
        SocketType::STREAM,
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        Some(ipproto::TCP),
    )?;
    match connect(&socket, &address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
        Err(cause) => return Err(cause.into()),
    }
    Ok(sockopt::tcp_congestion(&socket)?)
}

fn dead_forwarder() -> Error {
    Error::new(ErrorKind::Other, "a forwarder has died").hint("take the network down and up again")
}

fn no_netem(error: Error) -> Error {
    lacking(error, "qdisc kind is unknown", "netem", "modprobe sch_netem; the back end tun does without")
}

fn no_veth(error: Error) -> Error {
    lacking(error, "Unknown device type", "veth devices", "modprobe veth; the back end tun does without")
}

fn no_congestion_control(error: Error, name: &str) -> Error {
    let hint = format!(
        "modprobe tcp_{name}, as root; sysctl net.ipv4.tcp_available_congestion_control says which there are"
    );
    lacking(error, "Unknown tcp congestion algorithm", &format!("congestion control {name}"), &hint)
}

/// The kernel's words as `ip` and `tc` pass them on, in ours, if these are in it.
fn lacking(error: Error, said: &str, what: &str, hint: &str) -> Error {
    match error.message().contains(said) {
        true => Error::new(ErrorKind::Unsupported, format!("this kernel has no {what}"))
            .fault(Fault::Local)
            .hint(hint),
        false => error,
    }
}

fn no_tun(cause: &std::io::Error) -> Error {
    let error = |kind, message: String| Error::new(kind, message).fault(Fault::Local);
    match cause.kind() {
        std::io::ErrorKind::NotFound => error(
            ErrorKind::Unsupported,
            format!("there is no {}: this kernel has no TUN devices", tun::DEVICE),
        )
        .hint("modprobe tun; in a container: give it the device"),
        std::io::ErrorKind::PermissionDenied => error(
            ErrorKind::Denied,
            format!("{} may not be used", tun::DEVICE),
        )
        .hint(
            "run it as root, or let users use it: chmod 666 /dev/net/tun; in a container: give it the device",
        ),
        _ => error(ErrorKind::LocalIo, format!("cannot make a TUN device: {cause}")),
    }
}

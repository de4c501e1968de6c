//! From text to a [`Scenario`]: the TOML as it is written, then everything that is wrong with it.
//!
//! The order of the checks is the order in which a reader would understand the file: names, links, the
//! network as a whole, then the timetable, which is run through once so that no event leads into a state
//! that could not have been written down.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Display;
use std::time::Duration;

use gridlane_core::{Error, ErrorKind, Fault, Result, limits};
use serde::Deserialize;

use super::{Buffers, Change, ChangeText, Direction, Event, Link, Scenario, wrong};

/// See [`Scenario::parse`].
pub(super) fn scenario(text: &str) -> Result<Scenario> {
    if text.len() > limits::WAN_SCENARIO_BYTES_MAX {
        return Err(wrong(
            format!("the scenario is {} bytes long", text.len()),
            format!("a scenario has at most {} bytes", limits::WAN_SCENARIO_BYTES_MAX),
        ));
    }
    let file: File = toml::from_str(text).map_err(|error| syntax(text, &error))?;
    let numbers = Numbers::of(&file);
    let packet_bytes_max = check_sizes(&file)?;
    check_names(&file)?;
    if let Some(name) = &file.congestion_control {
        check_congestion_control(name)?;
    }

    let mut links = Vec::with_capacity(file.link.len());
    for (index, written) in file.link.iter().enumerate() {
        let link = link(written, packet_bytes_max).map_err(|error| {
            at(format_args!("link {} (between {})", index + 1, written.between.join(" and ")), &error)
        })?;
        links.push(link);
    }
    check_links(&links, &numbers)?;
    check_network(&file, &links, &numbers)?;
    let events = events(&file.event, &links, packet_bytes_max)?;

    Ok(Scenario {
        seed: file.seed,
        mtu: file.mtu,
        framing_bytes: file.framing_bytes,
        congestion_control: file.congestion_control,
        buffers: match file.buffers {
            BuffersText::Bdp => Buffers::Bdp,
            BuffersText::Host => Buffers::Host,
        },
        sites: file.sites,
        routers: file.routers,
        links,
        events,
    })
}

// --- The file as it is written -----------------------------------------------------------------

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    sites: Vec<String>,
    #[serde(default)]
    routers: Vec<String>,
    #[serde(default = "seed_default")]
    seed: u64,
    #[serde(default = "mtu_default")]
    mtu: u32,
    #[serde(default = "framing_default")]
    framing_bytes: u32,
    congestion_control: Option<String>,
    #[serde(default)]
    buffers: BuffersText,
    #[serde(default)]
    link: Vec<LinkText>,
    #[serde(default)]
    event: Vec<EventText>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum BuffersText {
    #[default]
    Bdp,
    Host,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkText {
    between: Vec<String>,
    name: Option<String>,
    rate: Option<String>,
    delay_ms: Option<f64>,
    queue: Option<String>,
    loss: Option<f64>,
    jitter_ms: Option<f64>,
    #[serde(default)]
    from: BTreeMap<String, DirectionText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DirectionText {
    rate: Option<String>,
    delay_ms: Option<f64>,
    queue: Option<String>,
    loss: Option<f64>,
    jitter_ms: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventText {
    at_s: f64,
    link: String,
    from: Option<String>,
    rate: Option<String>,
    delay_ms: Option<f64>,
    queue: Option<String>,
    loss: Option<f64>,
    jitter_ms: Option<f64>,
    down: Option<bool>,
}

fn seed_default() -> u64 {
    1
}

fn mtu_default() -> u32 {
    1500
}

/// Ethernet's preamble (8), header (14), check sequence (4) and gap (12).
fn framing_default() -> u32 {
    38
}

impl LinkText {
    fn figures(&self) -> ChangeText {
        ChangeText {
            rate: self.rate.clone(),
            delay_ms: self.delay_ms,
            queue: self.queue.clone(),
            loss: self.loss,
            jitter_ms: self.jitter_ms,
            down: None,
        }
    }
}

impl DirectionText {
    fn figures(&self) -> ChangeText {
        ChangeText {
            rate: self.rate.clone(),
            delay_ms: self.delay_ms,
            queue: self.queue.clone(),
            loss: self.loss,
            jitter_ms: self.jitter_ms,
            down: None,
        }
    }
}

impl EventText {
    fn figures(&self) -> ChangeText {
        ChangeText {
            rate: self.rate.clone(),
            delay_ms: self.delay_ms,
            queue: self.queue.clone(),
            loss: self.loss,
            jitter_ms: self.jitter_ms,
            down: self.down,
        }
    }
}

// --- Nodes -------------------------------------------------------------------------------------

/// Where a node stands: sites in their order, then routers.
struct Numbers(HashMap<String, usize>);

impl Numbers {
    fn of(file: &File) -> Numbers {
        let names = file.sites.iter().chain(&file.routers).cloned();
        Numbers(names.enumerate().map(|(index, name)| (name, index)).collect())
    }

    fn get(&self, name: &str) -> Option<usize> {
        self.0.get(name).copied()
    }
}

/// Answers the bytes on the wire of the largest packet.
fn check_sizes(file: &File) -> Result<u32> {
    if !(limits::WAN_MTU_BYTES_MIN..=limits::WAN_MTU_BYTES_MAX).contains(&file.mtu) {
        return Err(wrong(
            format!("the mtu of {} bytes is out of range", file.mtu),
            format!(
                "write at least {}, which IPv6 needs, and at most {}",
                limits::WAN_MTU_BYTES_MIN,
                limits::WAN_MTU_BYTES_MAX
            ),
        ));
    }
    if file.framing_bytes > limits::WAN_FRAMING_BYTES_MAX {
        return Err(wrong(
            format!("framing_bytes is {}", file.framing_bytes),
            format!("write at most {}; Ethernet has 38", limits::WAN_FRAMING_BYTES_MAX),
        ));
    }
    let nodes = file.sites.len() + file.routers.len();
    if nodes > limits::WAN_NODES_MAX {
        return Err(wrong(
            format!("there are {nodes} sites and routers"),
            format!("write at most {} together", limits::WAN_NODES_MAX),
        ));
    }
    if file.link.len() > limits::WAN_LINKS_MAX {
        return Err(wrong(
            format!("there are {} links", file.link.len()),
            format!("write at most {}", limits::WAN_LINKS_MAX),
        ));
    }
    if file.sites.len() < 2 {
        return Err(wrong(
            format!("there are {} sites", file.sites.len()),
            "write at least two, for example sites = [\"client\", \"near\"]",
        ));
    }
    Ok(file.mtu + file.framing_bytes)
}

fn check_names(file: &File) -> Result<()> {
    let mut seen = HashSet::new();
    for (what, name) in
        file.sites.iter().map(|name| ("site", name)).chain(file.routers.iter().map(|name| ("router", name)))
    {
        check_name(what, name)?;
        // Host names are the same in capital letters.
        if !seen.insert(name.to_ascii_lowercase()) {
            return Err(wrong(
                format!("the name {name:?} is given to two sites or routers"),
                "give each its own name; capital letters make no difference",
            ));
        }
    }
    Ok(())
}

/// Names become host names, and parts of files and commands.
fn check_name(what: &str, name: &str) -> Result<()> {
    let is_word = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let starts_well = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
    if !is_word || !starts_well || name.ends_with('-') || name.len() > limits::WAN_NAME_BYTES_MAX {
        return Err(wrong(
            format!("{:?} cannot be the name of a {what}", shortened(name)),
            format!(
                "a name has up to {} letters, digits and hyphens, begins with a letter and does not end with \
                 a hyphen",
                limits::WAN_NAME_BYTES_MAX
            ),
        ));
    }
    if ["localhost", "ip6-localhost", "ip6-loopback"].iter().any(|taken| name.eq_ignore_ascii_case(taken)) {
        return Err(wrong(format!("{name:?} is the name of every host for itself"), "choose another name"));
    }
    Ok(())
}

fn check_congestion_control(name: &str) -> Result<()> {
    let is_word = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if !is_word || name.is_empty() || name.len() > limits::WAN_CONGESTION_CONTROL_BYTES_MAX {
        return Err(wrong(
            format!("{:?} cannot be the name of a congestion control", shortened(name)),
            "write one of those in /proc/sys/net/ipv4/tcp_available_congestion_control",
        ));
    }
    Ok(())
}

// --- Links -------------------------------------------------------------------------------------

fn link(written: &LinkText, packet_bytes_max: u32) -> Result<Link> {
    let [a, b] = written.between.as_slice() else {
        return Err(wrong(
            format!("it has {} ends", written.between.len()),
            "write two, for example between = [\"near\", \"client\"]",
        ));
    };
    let name = match &written.name {
        Some(name) => {
            check_name("link", name)?;
            name.clone()
        }
        None => format!("{a}-{b}"),
    };
    let both = written.figures().parse()?.applied(&Direction::default(), packet_bytes_max);
    let mut directions = [const { None }; 2];
    for (from, figures) in &written.from {
        let Some(end) = [a, b].iter().position(|end| *end == from) else {
            return Err(wrong(
                format!("from.{} is not one of its ends", shortened(from)),
                format!("write from.{a} for what {a} sends, or from.{b}"),
            ));
        };
        let mut base = Direction::default();
        written.figures().parse()?.apply(&mut base);
        let direction = figures.figures().parse().and_then(|change| change.applied(&base, packet_bytes_max));
        directions[end] = Some(direction.map_err(|error| at(format_args!("from.{from}"), &error))?);
    }
    // What both directions override need not be possible.
    let [first, second] = directions;
    let directions = match (first, second) {
        (Some(first), Some(second)) => [first, second],
        (first, second) => {
            let both = both?;
            [first.unwrap_or_else(|| both.clone()), second.unwrap_or(both)]
        }
    };
    Ok(Link { name, ends: [a.clone(), b.clone()], directions })
}

fn check_links(links: &[Link], numbers: &Numbers) -> Result<()> {
    let mut names = HashSet::new();
    let mut pairs = HashMap::new();
    for link in links {
        let [a, b] = &link.ends;
        let pair = match (numbers.get(a), numbers.get(b)) {
            (None, _) => return Err(unknown_end(link, a)),
            (_, None) => return Err(unknown_end(link, b)),
            (Some(a), Some(b)) => (a.min(b), a.max(b)),
        };
        if pair.0 == pair.1 {
            return Err(wrong(
                format!("link {:?} joins {a} to itself", link.name),
                "write two different ends, or remove it",
            ));
        }
        if let Some(other) = pairs.insert(pair, &link.name) {
            return Err(wrong(
                format!("links {other:?} and {:?} join the same two, {a} and {b}", link.name),
                "remove one of them, or put a router into it: packets would use only one",
            ));
        }
        if !names.insert(&link.name) {
            return Err(wrong(
                format!("two links are named {:?}", link.name),
                "give one of them another name, for example name = \"second\"",
            ));
        }
    }
    Ok(())
}

fn unknown_end(link: &Link, end: &str) -> Error {
    wrong(
        format!("link {:?} ends at {:?}, which is neither a site nor a router", link.name, shortened(end)),
        "add it to sites or routers, or correct its name",
    )
}

/// Everyone must reach everyone, and every router must be worth having.
fn check_network(file: &File, links: &[Link], numbers: &Numbers) -> Result<()> {
    let names: Vec<&String> = file.sites.iter().chain(&file.routers).collect();
    let mut neighbours = vec![Vec::new(); names.len()];
    for link in links {
        if let [Some(a), Some(b)] = [numbers.get(&link.ends[0]), numbers.get(&link.ends[1])] {
            neighbours[a].push(b);
            neighbours[b].push(a);
        }
    }
    let mut is_reached = vec![false; names.len()];
    let mut waiting = vec![0];
    is_reached[0] = true;
    while let Some(node) = waiting.pop() {
        for &next in &neighbours[node] {
            if !std::mem::replace(&mut is_reached[next], true) {
                waiting.push(next);
            }
        }
    }
    if let Some(lost) = is_reached.iter().position(|is_reached| !is_reached) {
        return Err(wrong(
            format!("no links lead from {} to {}", names[0], names[lost]),
            "join them by a [[link]], directly or through others",
        ));
    }
    let pointless = (file.sites.len()..names.len()).find(|&router| neighbours[router].len() < 2);
    if let Some(router) = pointless {
        return Err(wrong(
            format!("router {:?} has only one link: it has nothing to pass on", names[router]),
            "remove it, add a link, or make it a site",
        ));
    }
    Ok(())
}

// --- The timetable -----------------------------------------------------------------------------

fn events(written: &[EventText], links: &[Link], packet_bytes_max: u32) -> Result<Vec<Event>> {
    let mut events = Vec::with_capacity(written.len());
    for (index, text) in written.iter().enumerate() {
        let event = event(text, links, packet_bytes_max)
            .map_err(|error| at(format_args!("event {} (at_s = {})", index + 1, text.at_s), &error))?;
        events.push((index, event));
    }
    // Stable: what is written later happens later at the same time.
    events.sort_by_key(|(_, event)| event.at);

    let mut directions: Vec<_> = links.iter().map(|link| link.directions.clone()).collect();
    for (index, event) in &events {
        for end in event.from.map_or(0..2, |end| end..end + 1) {
            let direction = &mut directions[event.link][end];
            *direction = event.change.applied(direction, packet_bytes_max).map_err(|error| {
                let (link, at_s) = (&links[event.link], event.at.as_secs_f64());
                let place = format!("event {} (at_s = {at_s}, what {} sends)", index + 1, link.ends[end]);
                at(place, &error)
            })?;
        }
    }
    Ok(events.into_iter().map(|(_, event)| event).collect())
}

fn event(text: &EventText, links: &[Link], packet_bytes_max: u32) -> Result<Event> {
    // Not a number is in no range.
    if !(0.0..=limits::WAN_EVENT_AT_MAX.as_secs_f64()).contains(&text.at_s) {
        return Err(wrong(
            "its time is out of range",
            format!("write seconds between 0 and {}", limits::WAN_EVENT_AT_MAX.as_secs()),
        ));
    }
    let Some(link) = links.iter().position(|link| link.name == text.link) else {
        let known: Vec<&str> = links.iter().take(8).map(|link| link.name.as_str()).collect();
        return Err(wrong(
            format!("there is no link {:?}", shortened(&text.link)),
            format!("links are named {}{}", known.join(", "), if links.len() > 8 { ", …" } else { "" }),
        ));
    };
    let ends = &links[link].ends;
    let from = match &text.from {
        None => None,
        Some(name) => Some(ends.iter().position(|end| end == name).ok_or_else(|| {
            wrong(
                format!("{:?} is not an end of link {:?}", shortened(name), links[link].name),
                format!("write from = {:?} or from = {:?}, or leave it out for both", ends[0], ends[1]),
            )
        })?),
    };
    let change: Change = text.figures().parse()?;
    if change.is_empty() {
        return Err(wrong(
            "it changes nothing",
            "add at least one of rate, delay_ms, queue, loss, jitter_ms and down",
        ));
    }
    change.check(packet_bytes_max)?;
    Ok(Event { at: Duration::from_nanos((text.at_s * 1e9).round() as u64), link, from, change })
}

// --- Errors ------------------------------------------------------------------------------------

/// The same mistake, and where it is.
fn at(place: impl Display, error: &Error) -> Error {
    let placed = Error::new(error.kind(), format!("{place}: {}", error.message())).fault(error.whose_fault());
    match error.advice() {
        Some(hint) => placed.hint(hint.clone()),
        None => placed,
    }
}

/// The fault in a text that is no TOML, or not of this shape: in which line, without the picture that `toml` draws.
fn syntax(text: &str, error: &toml::de::Error) -> Error {
    let message = error.message().trim().replace('\n', ", ");
    let place = match error.span() {
        Some(span) => {
            let before = &text.as_bytes()[..span.start.min(text.len())];
            format!("line {}: ", before.iter().filter(|byte| **byte == b'\n').count() + 1)
        }
        None => String::new(),
    };
    Error::new(ErrorKind::Usage, format!("{place}{message}"))
        .fault(Fault::Caller)
        .hint("a scenario is TOML; rates and queues are text, as in rate = \"800Mb/s\"")
}

/// A name for an error message: the file may hold a megabyte of it.
fn shortened(name: &str) -> String {
    match name.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests;

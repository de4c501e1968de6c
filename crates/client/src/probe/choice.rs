//! A set of sites by stated criteria: pure.
//!
//! Each site that meets the criteria has a rank. Sites that share a network (a zone, a host) are a group, and one of each group
//! is chosen at most: the first of it by rank. Sharing is made transitive for that, so that the groups are a partition: where A
//! shares one network with B and another one with C, all three are one group. Of a partition the greedy choice is the best
//! one: it finds as many as there are groups, and no other set of that size has a better rank anywhere in order. It is an
//! independent set of a partition matroid.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::time::Duration;

use gridlane_core::Network;
use gridlane_core::limits::{PROBE_NETWORK_IPV4_BITS, PROBE_NETWORK_IPV6_BITS};

use super::report::{Report, Step};
use super::site::{Protocol, Site};

/// The ability of an endpoint that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ability {
    /// Its directory can be listed.
    List,
    /// A file can be read.
    Read,
    /// A file can be written.
    Write,
    /// A file can be removed.
    Delete,
}

impl Ability {
    /// The step that shows it.
    pub fn step(self) -> Step {
        match self {
            Ability::List => Step::List,
            Ability::Read => Step::Read,
            Ability::Write => Step::Write,
            Ability::Delete => Step::Delete,
        }
    }

    /// The name of it.
    pub fn name(self) -> &'static str {
        self.step().name()
    }
}

/// The sense in which chosen sites are to be apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Apart {
    /// No two have an address in one network: the first 16 bits of an IPv4 address, the first 32 of an IPv6 one.
    Network,
    /// No two are in one zone.
    Zone,
    /// No two have a host of one name.
    Host,
}

impl Apart {
    /// The name of it.
    pub fn name(self) -> &'static str {
        match self {
            Apart::Network => "network",
            Apart::Zone => "zone",
            Apart::Host => "host",
        }
    }
}

/// The figure by which sites are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rank {
    /// The rate of reading, the highest first.
    Rate,
    /// The round trip, the shortest first.
    RoundTrip,
    /// The time to read a small file, the shortest first.
    Latency,
}

impl Rank {
    /// The name of it.
    pub fn name(self) -> &'static str {
        match self {
            Rank::Rate => "rate",
            Rank::RoundTrip => "rtt",
            Rank::Latency => "latency",
        }
    }
}

/// The criteria of a choice.
#[derive(Clone, Debug)]
pub struct Criteria {
    /// Number of sites that are wanted.
    pub count: usize,
    /// The protocols that each must speak; with none, one of its endpoints is enough.
    pub protocols: Vec<Protocol>,
    /// The abilities that each must have, over each of them.
    pub require: Vec<Ability>,
    /// The longest round trip.
    pub round_trip_max: Option<Duration>,
    /// The least rate of reading, in bytes per second.
    pub rate_min_bytes_per_s: Option<u64>,
    /// The sense in which they must be apart.
    pub apart: Option<Apart>,
    /// The figure by which they are ranked.
    pub by: Rank,
}

/// Figures of a site over the protocols that count: the worst of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// The round trip.
    pub round_trip: Option<Duration>,
    /// The rate of reading, in bytes per second.
    pub rate_bytes_per_s: Option<f64>,
    /// The time to read a small file.
    pub latency: Option<Duration>,
}

impl Figures {
    fn of(report: &Report) -> Figures {
        Figures {
            round_trip: report.round_trip,
            rate_bytes_per_s: report.read_rate.map(|rate| rate.bytes_per_s()),
            latency: report.small_read,
        }
    }

    /// The worse of both in each; unknown where one is unknown.
    fn worse(self, other: Figures) -> Figures {
        Figures {
            round_trip: self.round_trip.zip(other.round_trip).map(|(a, b)| a.max(b)),
            rate_bytes_per_s: self.rate_bytes_per_s.zip(other.rate_bytes_per_s).map(|(a, b)| a.min(b)),
            latency: self.latency.zip(other.latency).map(|(a, b)| a.max(b)),
        }
    }

    /// The better one by a figure comes first; one that is not known, last.
    fn compare(&self, other: &Figures, by: Rank) -> Ordering {
        let shorter = |a: Option<Duration>, b: Option<Duration>| match (a, b) {
            (Some(a), Some(b)) => a.cmp(&b),
            (a, b) => b.is_some().cmp(&a.is_some()),
        };
        match by {
            Rank::RoundTrip => shorter(self.round_trip, other.round_trip),
            Rank::Latency => shorter(self.latency, other.latency),
            Rank::Rate => match (self.rate_bytes_per_s, other.rate_bytes_per_s) {
                (Some(a), Some(b)) => b.total_cmp(&a),
                (a, b) => b.is_some().cmp(&a.is_some()),
            },
        }
    }
}

/// The reason for which a site was not chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum Why {
    /// It does not speak this protocol, or was not reached over it: by the report of this number, if there is one.
    Unspoken(Protocol, Option<usize>),
    /// It lacks this ability, by the report of this number.
    Lacks(Ability, usize),
    /// Its round trip is longer than it may be, or not known.
    Far(Option<Duration>),
    /// Its rate is less than it must be, or not known.
    Slow(Option<f64>),
    /// The place that sites have to be apart by is not known.
    Nowhere(Apart),
    /// It is not apart from this site, which is chosen.
    Beside(usize, Apart),
    /// As many were chosen before it.
    Enough,
}

impl Why {
    /// The name used in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Why::Unspoken(..) => "protocol",
            Why::Lacks(..) => "ability",
            Why::Far(_) => "rtt",
            Why::Slow(_) => "rate",
            Why::Nowhere(_) => "place_unknown",
            Why::Beside(..) => "not_apart",
            Why::Enough => "enough",
        }
    }
}

/// A criterion, in the order in which they are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Criterion {
    /// Every protocol is spoken.
    Protocols,
    /// Every ability is there.
    Abilities,
    /// The round trip is short enough.
    RoundTrip,
    /// The rate is high enough.
    Rate,
    /// They are apart.
    Apart,
}

/// A site that was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// Number of the site.
    pub site: usize,
    /// Its figures.
    pub figures: Figures,
    /// Numbers of the reports of the endpoints for which it was chosen: one over each protocol that is asked for, or the
    /// best one.
    pub reports: Vec<usize>,
}

/// The sites that were chosen, and the reasons for the others.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The chosen sites by rank.
    pub chosen: Vec<Chosen>,
    /// The others, in their order.
    pub passed_over: Vec<(usize, Why)>,
    /// Number of sites that are left by each criterion and those before it. By the last one it is the number of groups.
    pub left: Vec<(Criterion, usize)>,
    /// As many were chosen as were wanted.
    pub is_met: bool,
}

/// A site that the choice is made from.
#[derive(Clone, Debug)]
struct Candidate {
    /// Number of the site.
    site: usize,
    figures: Figures,
    /// Numbers of the reports that count.
    reports: Vec<usize>,
    /// Keys of the places that it is at; with one of them in common two sites are not apart.
    places: Vec<String>,
}

/// A report and its number.
type Numbered<'a> = (usize, &'a Report);

/// Chooses sites by what was found of their endpoints.
pub fn choose(sites: &[Site], reports: &[Report], criteria: &Criteria) -> Choice {
    let mut of_site = vec![Vec::new(); sites.len()];
    for (number, report) in reports.iter().enumerate() {
        if let Some(of_site) = of_site.get_mut(report.site) {
            of_site.push((number, report));
        }
    }
    let mut candidates = Vec::new();
    let mut passed_over = Vec::new();
    let mut lost = [0; 4];
    for (at, (site, of_site)) in sites.iter().zip(&of_site).enumerate() {
        match judge(of_site, criteria) {
            Ok((figures, used)) => {
                let places = places(site, &used, criteria.apart);
                let reports = used.into_iter().map(|(number, _)| number).collect();
                candidates.push(Candidate { site: at, figures, reports, places });
            }
            Err(why) => {
                lost[depth(&why).min(3)] += 1;
                passed_over.push((at, why));
            }
        }
    }
    let mut left = Vec::new();
    let mut count = sites.len();
    let criterions = [Criterion::Protocols, Criterion::Abilities, Criterion::RoundTrip, Criterion::Rate];
    for (criterion, lost) in criterions.into_iter().zip(lost) {
        count -= lost;
        let is_asked = match criterion {
            Criterion::RoundTrip => criteria.round_trip_max.is_some(),
            Criterion::Rate => criteria.rate_min_bytes_per_s.is_some(),
            _ => true,
        };
        if is_asked {
            left.push((criterion, count));
        }
    }
    candidates.sort_by(|a, b| a.figures.compare(&b.figures, criteria.by).then(a.site.cmp(&b.site)));
    let groups = groups(&candidates, criteria.apart);
    if criteria.apart.is_some() {
        let known = groups.iter().flatten();
        let count = known.collect::<std::collections::BTreeSet<_>>().len();
        left.push((Criterion::Apart, count));
    }
    let mut taken = HashMap::<usize, usize>::new();
    let mut chosen = Vec::new();
    for (at, candidate) in candidates.iter().enumerate() {
        let site = candidate.site;
        let why = match (groups[at], criteria.apart) {
            (None, Some(apart)) => Why::Nowhere(apart),
            (Some(group), Some(apart)) if taken.contains_key(&group) => Why::Beside(taken[&group], apart),
            _ if chosen.len() == criteria.count => Why::Enough,
            (group, _) => {
                taken.extend(group.map(|group| (group, site)));
                let (figures, reports) = (candidate.figures, candidate.reports.clone());
                chosen.push(Chosen { site, figures, reports });
                continue;
            }
        };
        passed_over.push((site, why));
    }
    passed_over.sort_by_key(|(site, _)| *site);
    let is_met = chosen.len() == criteria.count;
    Choice { chosen, passed_over, left, is_met }
}

/// The figures of a site that meets the criteria, and the reports that count; or the first criterion that it does not meet.
fn judge<'a>(reports: &[Numbered<'a>], criteria: &Criteria) -> Result<(Figures, Vec<Numbered<'a>>), Why> {
    let judged = |(number, report): Numbered<'a>| {
        // What is reached of it: a login that works, or what comes behind it.
        if !report.works(Step::Login) {
            return Err(Why::Unspoken(report.endpoint.protocol.clone(), Some(number)));
        }
        let lacking = criteria.require.iter().find(|ability| !report.works(ability.step()));
        match lacking {
            Some(ability) => Err(Why::Lacks(*ability, number)),
            None => fast_enough(Figures::of(report), criteria),
        }
    };
    // Of several endpoints the best one counts, or else the one that comes furthest.
    let best = |mine: &mut dyn Iterator<Item = Numbered<'a>>| {
        let mut best: Option<(Result<Figures, Why>, Numbered<'a>)> = None;
        for report in mine {
            let next = judged(report);
            let is_better = best.as_ref().is_none_or(|(best, _)| match (&next, best) {
                (Ok(next), Ok(best)) => next.compare(best, criteria.by) == Ordering::Less,
                (Ok(_), Err(_)) => true,
                (Err(_), Ok(_)) => false,
                (Err(next), Err(best)) => depth(next) > depth(best),
            });
            if is_better {
                best = Some((next, report));
            }
        }
        best
    };
    if criteria.protocols.is_empty() {
        return match best(&mut reports.iter().copied()) {
            Some((judged, report)) => judged.map(|figures| (figures, vec![report])),
            None => Err(Why::Unspoken(Protocol::Other(String::new()), None)),
        };
    }
    let mut used: Vec<Numbered<'a>> = Vec::new();
    let mut all: Option<Figures> = None;
    let mut first_wrong: Option<Why> = None;
    for protocol in &criteria.protocols {
        let mut mine = reports.iter().copied().filter(|(_, report)| report.endpoint.protocol == *protocol);
        let (judged, report) = match best(&mut mine) {
            Some((judged, report)) => (judged, Some(report)),
            None => (Err(Why::Unspoken(protocol.clone(), None)), None),
        };
        match judged {
            Ok(figures) => {
                all = Some(all.map_or(figures, |all| all.worse(figures)));
                used.extend(report);
            }
            Err(why) if first_wrong.as_ref().is_none_or(|first| depth(&why) < depth(first)) => {
                first_wrong = Some(why);
            }
            Err(_) => {}
        }
    }
    match first_wrong {
        Some(why) => Err(why),
        None => Ok((all.unwrap_or_default(), used)),
    }
}

/// The place of a reason in the order in which criteria are applied.
fn depth(why: &Why) -> usize {
    match why {
        Why::Unspoken(..) => 0,
        Why::Lacks(..) => 1,
        Why::Far(_) => 2,
        Why::Slow(_) => 3,
        Why::Nowhere(_) | Why::Beside(..) | Why::Enough => 4,
    }
}

fn fast_enough(figures: Figures, criteria: &Criteria) -> Result<Figures, Why> {
    let is_near = |max| figures.round_trip.is_some_and(|found| found <= max);
    if criteria.round_trip_max.is_some_and(|max| !is_near(max)) {
        return Err(Why::Far(figures.round_trip));
    }
    let is_fast = |min: u64| figures.rate_bytes_per_s.is_some_and(|found| found >= min as f64);
    if criteria.rate_min_bytes_per_s.is_some_and(|min| !is_fast(min)) {
        return Err(Why::Slow(figures.rate_bytes_per_s));
    }
    Ok(figures)
}

/// Keys of the places that a site is at with the endpoints that count.
fn places(site: &Site, used: &[Numbered<'_>], apart: Option<Apart>) -> Vec<String> {
    match apart {
        None => Vec::new(),
        Some(Apart::Zone) => site.zone.iter().cloned().collect(),
        Some(Apart::Host) => {
            let hosts = used.iter().filter_map(|(_, report)| report.endpoint.host());
            hosts.map(str::to_ascii_lowercase).collect()
        }
        Some(Apart::Network) => {
            let networks = used.iter().flat_map(|(_, report)| &report.addresses).map(|address| {
                Network::around(*address, PROBE_NETWORK_IPV4_BITS, PROBE_NETWORK_IPV6_BITS).to_string()
            });
            networks.collect()
        }
    }
}

/// The group of each candidate: those that share a place, or share one with another of the group. `None`: it is at no place
/// that is known.
fn groups(candidates: &[Candidate], apart: Option<Apart>) -> Vec<Option<usize>> {
    if apart.is_none() {
        return vec![None; candidates.len()];
    }
    // Each points to an earlier one of its group, or to itself.
    let mut above: Vec<usize> = (0..candidates.len()).collect();
    fn root(above: &mut [usize], mut at: usize) -> usize {
        while above[at] != at {
            above[at] = above[above[at]];
            at = above[at];
        }
        at
    }
    let mut first_at = HashMap::<&str, usize>::new();
    for (at, candidate) in candidates.iter().enumerate() {
        for place in &candidate.places {
            let other = *first_at.entry(place).or_insert(at);
            let (a, b) = (root(&mut above, at), root(&mut above, other));
            above[a.max(b)] = a.min(b);
        }
    }
    let has_place = |at: usize| !candidates[at].places.is_empty();
    (0..candidates.len()).map(|at| has_place(at).then(|| root(&mut above, at))).collect()
}

#[cfg(test)]
mod tests;

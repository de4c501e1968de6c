//! A choice of sites, for people.

use std::fmt::Write as _;

use gridlane_client::probe::{Cause, Choice, Criteria, Criterion, Outcome, Report, Site, Step, Untried, Why};
use gridlane_core::text::printable;
use gridlane_core::units::format_rate;
use gridlane_core::{Error, ErrorKind, Fault};

use super::table::{ms, untried};

/// The choice in lines: the sites, then the others with the reasons.
pub(super) fn text(sites: &[Site], reports: &[Report], criteria: &Criteria, choice: &Choice) -> String {
    let name = |at: usize| printable(&sites[at].name);
    let mut text = format!(
        "chosen: {} of {} sites, the best by {} first\n",
        choice.chosen.len(),
        sites.len(),
        criteria.by.name()
    );
    for (number, (site, figures)) in choice.chosen.iter().enumerate() {
        let zone =
            sites[*site].zone.as_ref().map(|zone| format!(", zone {}", printable(zone))).unwrap_or_default();
        let rate = figures.rate_bytes_per_s.map_or("rate unknown".to_owned(), format_rate);
        let _ = writeln!(
            text,
            "{:>3}  {}: {rate}, rtt {} ms, small file {} ms{zone}",
            number + 1,
            name(*site),
            ms(figures.round_trip),
            ms(figures.latency),
        );
        for report in reports.iter().filter(|report| report.site == *site && counts(report, criteria)) {
            let _ = writeln!(text, "     {}", printable(&report.endpoint.shown));
        }
    }
    if !choice.passed_over.is_empty() {
        text.push_str("not chosen:\n");
    }
    for (site, reason) in &choice.passed_over {
        let _ = writeln!(
            text,
            "     {}: {}",
            name(*site),
            printable(&why(sites, reports, criteria, *site, reason))
        );
    }
    text
}

/// True if an endpoint of a chosen site is one of those for which it was chosen.
fn counts(report: &Report, criteria: &Criteria) -> bool {
    let is_asked = criteria.protocols.is_empty() || criteria.protocols.contains(&report.endpoint.protocol);
    is_asked
        && report.works(Step::Login)
        && criteria.require.iter().all(|ability| report.works(ability.step()))
}

/// The reason for which a site was not chosen.
pub(super) fn why(sites: &[Site], reports: &[Report], criteria: &Criteria, site: usize, why: &Why) -> String {
    let mine = |protocol: &gridlane_client::probe::Protocol| {
        reports.iter().find(|report| report.site == site && report.endpoint.protocol == *protocol)
    };
    let unknown = || "unknown".to_owned();
    match why {
        Why::Unspoken(protocol) => match mine(protocol).map(|report| (report, report.failures().next())) {
            Some((_, Some((step, error)))) => format!("{protocol}: {}", Cause::of(step, error)),
            Some((report, None)) => match report.outcome(Step::Login) {
                Outcome::Untried(why) => format!("{protocol}: {}", untried(*why)),
                Outcome::Works | Outcome::Fails(_) => format!("it does not speak {protocol}"),
            },
            None => format!("it has no endpoint of {protocol}"),
        },
        Why::Lacks(ability, protocol) => {
            let outcome = mine(protocol).map(|report| report.outcome(ability.step()));
            let cause = match outcome {
                Some(Outcome::Fails(error)) => Cause::of(ability.step(), error).to_string(),
                Some(Outcome::Untried(Untried::Needless)) | Some(Outcome::Works) | None => {
                    format!("cannot {} it", ability.name())
                }
                Some(Outcome::Untried(why)) => format!("{}: {}", ability.name(), untried(*why)),
            };
            format!("{protocol}: {cause}")
        }
        Why::Far(round_trip) => {
            let most = criteria.round_trip_max.map_or_else(unknown, |max| ms(Some(max)));
            match round_trip {
                Some(found) => format!("rtt {} ms, more than {most} ms", ms(Some(*found))),
                None => "rtt unknown".to_owned(),
            }
        }
        Why::Slow(rate) => {
            let least = criteria.rate_min_bytes_per_s.map_or_else(unknown, |min| format_rate(min as f64));
            match rate {
                Some(found) => format!("{}, less than {least}", format_rate(*found)),
                None => "rate unknown: it is measured with --write or --file".to_owned(),
            }
        }
        Why::Nowhere(apart) => format!("its {} is not known", apart.name()),
        Why::Beside(other, apart) => {
            format!("not apart from {} by {}", sites[*other].name, apart.name())
        }
        Why::Enough => "behind those that are chosen".to_owned(),
    }
}

/// The criteria in words, with the number of sites that each and those before it leave.
pub(super) fn criteria_left(criteria: &Criteria, choice: &Choice) -> Vec<(String, usize)> {
    let words = |criterion: Criterion| match criterion {
        Criterion::Protocols => match criteria.protocols.as_slice() {
            [] => "are reached".to_owned(),
            protocols => format!("speak {}", joined(protocols.iter().map(|protocol| protocol.name()))),
        },
        Criterion::Abilities => {
            format!("can {}", joined(criteria.require.iter().map(|ability| ability.name())))
        }
        Criterion::RoundTrip => format!("have an rtt of at most {} ms", ms(criteria.round_trip_max)),
        Criterion::Rate => {
            let min = criteria.rate_min_bytes_per_s.unwrap_or_default();
            format!("are read at {} or more", format_rate(min as f64))
        }
        Criterion::Apart => format!("are apart by {}", criteria.apart.map_or("", |apart| apart.name())),
    };
    choice.left.iter().map(|(criterion, left)| (words(*criterion), *left)).collect()
}

fn joined<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// The error of a choice that is too small.
pub(super) fn too_few(sites: &[Site], criteria: &Criteria, choice: &Choice) -> Option<Error> {
    if choice.is_met {
        return None;
    }
    let left = criteria_left(criteria, choice);
    let left: Vec<String> = left.iter().map(|(criterion, left)| format!("{left} {criterion}")).collect();
    let message = format!(
        "{} of the {} sites that are wanted can be chosen: of {}, {}",
        choice.chosen.len(),
        criteria.count,
        sites.len(),
        left.join(", of these ")
    );
    Some(Error::new(ErrorKind::Precondition, message).fault(Fault::Caller))
}

//! A choice of sites, for people.

use std::fmt::Write as _;

use gridlane_client::probe::{
    Cause, Choice, Chosen, Criteria, Criterion, Outcome, Report, Site, Step, Untried, Why,
};
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
    for (number, Chosen { site, figures, reports: counted }) in choice.chosen.iter().enumerate() {
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
        for number in counted {
            let _ = writeln!(text, "     {}", printable(&reports[*number].endpoint.shown));
        }
    }
    if !choice.passed_over.is_empty() {
        text.push_str("not chosen:\n");
    }
    for (site, reason) in &choice.passed_over {
        let reason = why(sites, reports, criteria, reason);
        let _ = writeln!(text, "     {}: {}", name(*site), printable(&reason));
    }
    text
}

/// The reason for which a site was not chosen.
pub(super) fn why(sites: &[Site], reports: &[Report], criteria: &Criteria, why: &Why) -> String {
    let unknown = || "unknown".to_owned();
    match why {
        Why::Unspoken(protocol, None) => format!("it has no endpoint of {protocol}"),
        Why::Unspoken(protocol, Some(number)) => match reports[*number].failures().next() {
            Some((step, error)) => format!("{protocol}: {}", Cause::of(step, error)),
            None => match reports[*number].outcome(Step::Login) {
                Outcome::Untried(why) => format!("{protocol}: {}", untried(*why)),
                Outcome::Works | Outcome::Fails(_) => format!("it does not speak {protocol}"),
            },
        },
        Why::Lacks(ability, number) => {
            let report = &reports[*number];
            let cause = match report.outcome(ability.step()) {
                Outcome::Fails(error) => Cause::of(ability.step(), error).to_string(),
                Outcome::Untried(Untried::Needless) | Outcome::Works => {
                    format!("cannot {} it", ability.name())
                }
                Outcome::Untried(why) => format!("{}: {}", ability.name(), untried(*why)),
            };
            format!("{}: {cause}", report.endpoint.protocol)
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gridlane_client::events::ProbeLine;
    use gridlane_client::probe::{Ability, Rank, SiteList, choose};

    use super::*;

    /// A site whose first endpoint is dead, and one of which no endpoint can be removed from.
    #[test]
    fn endpoints_and_reasons_are_those_that_count() {
        let mut list = SiteList::default();
        list.add("site=A https://dead.example/ https://alive.example/").unwrap();
        list.add("site=B https://gone.example/ https://mute.example/").unwrap();
        let sites = list.over(&[]).unwrap();
        let mut reports = Vec::new();
        for (at, site) in sites.iter().enumerate() {
            reports.extend(site.endpoints.iter().map(|endpoint| Report::new(at, endpoint.clone())));
        }
        let fails = |kind, message: &str| Outcome::Fails(Error::new(kind, message));
        for dead in [0, 2] {
            reports[dead].note(Step::Connect, fails(ErrorKind::Network, "refused"), Duration::ZERO);
        }
        for step in [Step::Login, Step::List] {
            reports[1].note(step, Outcome::Works, Duration::ZERO);
        }
        reports[3].note(Step::Login, Outcome::Works, Duration::ZERO);
        reports[3].note(Step::List, fails(ErrorKind::Timeout, "late"), Duration::ZERO);
        let criteria = Criteria {
            count: 2,
            protocols: Vec::new(),
            require: vec![Ability::List],
            round_trip_max: None,
            rate_min_bytes_per_s: None,
            apart: None,
            by: Rank::Rate,
        };
        let choice = choose(&sites, &reports, &criteria);
        let text = text(&sites, &reports, &criteria, &choice);
        assert!(text.contains("https://alive.example/") && !text.contains("dead.example"), "{text}");
        assert!(text.contains("B: https: list: too slow"), "{text}");
        let why = |why: &Why| super::why(&sites, &reports, &criteria, why);
        let line = ProbeLine::choice((&sites, &reports), (&choice, 2), why, Vec::new());
        let line = serde_json::to_value(&line).unwrap();
        assert_eq!(line["chosen"][0]["urls"], serde_json::json!(["https://alive.example/"]));
        assert_eq!(line["passed_over"][0]["why"], "https: list: too slow");
    }
}

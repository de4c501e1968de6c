use std::collections::HashSet;
use std::net::IpAddr;

use proptest::prelude::*;

use super::super::report::{Outcome, Rate};
use super::super::site::SiteList;
use super::*;

/// What an endpoint of a site is like.
#[derive(Clone, Debug)]
struct Found {
    url: &'static str,
    works: Vec<Step>,
    round_trip_ms: Option<u64>,
    rate: Option<f64>,
    address: &'static str,
}

fn found(url: &'static str, works: &[Step], round_trip_ms: u64, rate: f64, address: &'static str) -> Found {
    Found { url, works: works.to_vec(), round_trip_ms: Some(round_trip_ms), rate: Some(rate), address }
}

const ALL: [Step; 4] = [Step::Login, Step::List, Step::Read, Step::Write];

fn made(sites: &[(&str, Option<&str>, Vec<Found>)]) -> (Vec<Site>, Vec<Report>) {
    let mut list = SiteList::default();
    for (name, zone, endpoints) in sites {
        let zone = zone.map(|zone| format!("zone={zone}")).unwrap_or_default();
        let urls: Vec<&str> = endpoints.iter().map(|found| found.url).collect();
        list.add(&format!("site={name} {zone} {}", urls.join(" "))).unwrap();
    }
    let made = list.over(&[]).unwrap();
    let mut reports = Vec::new();
    for (at, (site, (_, _, endpoints))) in made.iter().zip(sites).enumerate() {
        for (endpoint, found) in site.endpoints.iter().zip(endpoints) {
            let mut report = Report::new(at, endpoint.clone());
            found.works.iter().for_each(|step| report.note(*step, Outcome::Works, Duration::ZERO));
            report.round_trip = found.round_trip_ms.map(Duration::from_millis);
            report.small_read = report.round_trip.map(|round_trip| 2 * round_trip);
            report.read_rate =
                found.rate.map(|rate| Rate { bytes: rate as u64, seconds: 1.0, is_verified: true });
            report.addresses = found.address.split_whitespace().map(|text| text.parse().unwrap()).collect();
            reports.push(report);
        }
    }
    (made, reports)
}

fn criteria(count: usize) -> Criteria {
    Criteria {
        count,
        protocols: Vec::new(),
        require: vec![Ability::List, Ability::Read],
        round_trip_max: None,
        rate_min_bytes_per_s: None,
        apart: None,
        by: Rank::Rate,
    }
}

fn names(sites: &[Site], choice: &Choice) -> Vec<String> {
    choice.chosen.iter().map(|chosen| sites[chosen.site].name.clone()).collect()
}

fn why(sites: &[Site], choice: &Choice, name: &str) -> Why {
    let of = |(site, _): &&(usize, Why)| sites[*site].name == name;
    choice.passed_over.iter().find(of).unwrap_or_else(|| panic!("{name} is chosen")).1.clone()
}

/// Seven sites as a virtual organisation has them.
fn some_sites() -> (Vec<Site>, Vec<Report>) {
    let one = |found| vec![found];
    made(&[
        ("slow", Some("fr"), one(found("https://a/", &ALL, 5, 10.0, "10.1.0.1"))),
        ("fast", Some("fr"), one(found("https://b/", &ALL, 50, 100.0, "10.1.9.9"))),
        ("far", Some("us"), one(found("https://c/", &ALL, 200, 90.0, "10.2.0.1"))),
        ("dumb", Some("de"), one(found("https://d/", &[Step::Login, Step::List], 9, 80.0, "10.3.0.1"))),
        ("dead", Some("de"), one(Found { rate: None, ..found("https://e/", &[], 1, 1.0, "") })),
        (
            "both",
            None,
            vec![
                found("https://f/", &ALL, 9, 70.0, "10.4.0.1"),
                found("root://f//", &ALL, 11, 60.0, "10.4.0.1"),
            ],
        ),
        (
            "half",
            Some("it"),
            vec![
                found("https://g/", &ALL, 9, 65.0, "2001:db8::1"),
                found("root://g//", &[], 0, 0.0, "10.5.0.1"),
            ],
        ),
    ])
}

#[test]
fn the_best_that_meet_the_criteria_are_chosen() {
    let (sites, reports) = some_sites();
    let choice = choose(&sites, &reports, &criteria(3));
    assert_eq!(names(&sites, &choice), ["fast", "far", "both"]);
    assert!(choice.is_met);
    assert_eq!(why(&sites, &choice, "slow"), Why::Enough);
    assert_eq!(why(&sites, &choice, "dumb"), Why::Lacks(Ability::Read, 3));
    assert_eq!(why(&sites, &choice, "dead"), Why::Unspoken(Protocol::named("https").unwrap(), Some(4)));
    assert_eq!(choice.left, [(Criterion::Protocols, 6), (Criterion::Abilities, 5)]);
    for (by, expected) in
        [(Rank::RoundTrip, ["slow", "both", "half"]), (Rank::Latency, ["slow", "both", "half"])]
    {
        let choice = choose(&sites, &reports, &Criteria { by, ..criteria(3) });
        assert_eq!(names(&sites, &choice), expected);
    }
}

#[test]
fn every_protocol_counts_with_its_worst_figures() {
    let (sites, reports) = some_sites();
    let protocols = ["https", "root"].map(|name| Protocol::named(name).unwrap()).to_vec();
    let both = Criteria { protocols, ..criteria(1) };
    let choice = choose(&sites, &reports, &both);
    assert_eq!(names(&sites, &choice), ["both"]);
    let Chosen { figures, reports: counted, .. } = choice.chosen[0].clone();
    assert_eq!(counted, [5, 6]);
    assert_eq!((figures.round_trip, figures.rate_bytes_per_s), (Some(Duration::from_millis(11)), Some(60.0)));
    assert_eq!(why(&sites, &choice, "half"), Why::Unspoken(Protocol::named("root").unwrap(), Some(8)));
    let near = Criteria { round_trip_max: Some(Duration::from_millis(10)), ..both.clone() };
    let choice = choose(&sites, &reports, &near);
    assert_eq!(why(&sites, &choice, "both"), Why::Far(Some(Duration::from_millis(11))));
    assert!(!choice.is_met && choice.chosen.is_empty());
    assert_eq!(choice.left.last(), Some(&(Criterion::RoundTrip, 0)));
    let fast = Criteria { rate_min_bytes_per_s: Some(61), ..both.clone() };
    assert_eq!(why(&sites, &choose(&sites, &reports, &fast), "both"), Why::Slow(Some(60.0)));
    // What is not spoken here is spoken by none.
    let more = Criteria {
        protocols: [both.protocols, vec![Protocol::named("gsiftp").unwrap()]].concat(),
        ..criteria(1)
    };
    let choice = choose(&sites, &reports, &more);
    assert_eq!(choice.left[0], (Criterion::Protocols, 0));
}

#[test]
fn chosen_sites_are_apart() {
    let (sites, reports) = some_sites();
    let apart = |apart| Criteria { apart: Some(apart), ..criteria(4) };
    let choice = choose(&sites, &reports, &apart(Apart::Network));
    assert_eq!(names(&sites, &choice), ["fast", "far", "both", "half"]);
    assert_eq!(why(&sites, &choice, "slow"), Why::Beside(1, Apart::Network));
    assert_eq!(choice.left.last(), Some(&(Criterion::Apart, 4)));
    let choice = choose(&sites, &reports, &apart(Apart::Zone));
    assert_eq!(names(&sites, &choice), ["fast", "far", "half"]);
    assert_eq!(why(&sites, &choice, "both"), Why::Nowhere(Apart::Zone));
    assert!(!choice.is_met);
    let choice = choose(&sites, &reports, &Criteria { count: 9, ..apart(Apart::Host) });
    assert_eq!((choice.chosen.len(), choice.left.last()), (5, Some(&(Criterion::Apart, 5))));
}

/// Two endpoints over one protocol, of which the first is worse.
#[test]
fn a_site_stands_for_the_endpoints_that_count_and_for_no_others() {
    let two = |name, url, other, works: &[Step], address| {
        let worse = Found { round_trip_ms: None, rate: None, ..found(url, works, 0, 0.0, "10.9.0.1") };
        (name, None, vec![worse, found(other, &ALL, 5, 50.0, address)])
    };
    let (sites, reports) = made(&[
        two("dead", "https://a/", "https://a/b", &[], "10.1.0.1"),
        two("dumb", "https://b/", "https://b/b", &[Step::Login, Step::List], "10.2.0.1"),
        two("slow", "https://c/", "https://c/b", &ALL, "10.3.0.1"),
    ]);
    for protocols in [Vec::new(), vec![Protocol::named("https").unwrap()]] {
        let wanted = Criteria { protocols, apart: Some(Apart::Network), ..criteria(3) };
        let choice = choose(&sites, &reports, &wanted);
        // The address that they share is that of the others.
        let counted: Vec<_> =
            choice.chosen.iter().map(|chosen| (chosen.site, chosen.reports.clone())).collect();
        assert_eq!(counted, [(0, vec![1]), (1, vec![3]), (2, vec![5])]);
        // The reason is that of the endpoint that comes furthest.
        let wanted = Criteria { require: vec![Ability::List, Ability::Delete], ..wanted };
        let choice = choose(&sites, &reports, &wanted);
        assert_eq!(why(&sites, &choice, "dead"), Why::Lacks(Ability::Delete, 1));
        assert_eq!(why(&sites, &choice, "dumb"), Why::Lacks(Ability::Delete, 2));
    }
}

#[test]
fn sites_that_share_something_with_a_third_one_are_together() {
    let at = |url, rate, addresses| vec![found(url, &ALL, 1, rate, addresses)];
    let (sites, reports) = made(&[
        ("a", None, at("https://a/", 1.0, "10.1.0.1 10.2.0.1")),
        ("b", None, at("https://b/", 3.0, "10.1.0.2")),
        ("c", None, at("https://c/", 2.0, "10.2.0.2")),
    ]);
    let choice = choose(&sites, &reports, &Criteria { apart: Some(Apart::Network), ..criteria(2) });
    assert_eq!(names(&sites, &choice), ["b"]);
    assert_eq!(why(&sites, &choice, "c"), Why::Beside(1, Apart::Network));
}

/// Candidates with a rate and places of few, so that many are shared.
fn candidates() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
    prop::collection::vec((0_u8..6, prop::collection::vec(0_u8..6, 0..3)), 0..9)
}

/// True if no two of these sites share a place, or are joined by sites that do.
fn are_apart(places: &[Vec<u8>], set: &[usize]) -> bool {
    // The places that can be got to from a site, by way of any others.
    let reach = |from: usize| {
        let mut seen: HashSet<u8> = places[from].iter().copied().collect();
        loop {
            let before = seen.len();
            for other in places {
                if other.iter().any(|place| seen.contains(place)) {
                    seen.extend(other);
                }
            }
            if seen.len() == before {
                return seen;
            }
        }
    };
    set.iter().enumerate().all(|(at, a)| {
        !places[*a].is_empty() && set[at + 1..].iter().all(|b| reach(*a).is_disjoint(&reach(*b)))
    })
}

proptest! {
    /// The choice is as large as any set that is apart, and none of its size has a better rank anywhere in order.
    #[test]
    fn no_other_set_is_better(found in candidates(), count in 1_usize..5) {
        let mut list = SiteList::default();
        for at in 0..found.len() {
            list.add(&format!("site=s{at} https://h{at}/")).unwrap();
        }
        let sites = list.over(&[]).unwrap();
        let places: Vec<Vec<u8>> = found.iter().map(|(_, places)| places.clone()).collect();
        let reports: Vec<Report> = sites.iter().zip(&found).enumerate().map(|(at, (site, (rate, places)))| {
            let mut report = Report::new(at, site.endpoints[0].clone());
            for step in [Step::Login, Step::List, Step::Read] {
                report.note(step, Outcome::Works, Duration::ZERO);
            }
            report.read_rate = Some(Rate { bytes: u64::from(*rate), seconds: 1.0, is_verified: true });
            report.addresses = places.iter().map(|place| IpAddr::from([10, *place, 0, 1])).collect();
            report
        }).collect();
        let wanted = Criteria { apart: Some(Apart::Network), ..criteria(count) };
        let choice = choose(&sites, &reports, &wanted);
        let chosen: Vec<usize> = choice.chosen.iter().map(|chosen| chosen.site).collect();
        prop_assert!(are_apart(&places, &chosen), "{:?}", chosen);
        prop_assert_eq!(choice.is_met, chosen.len() == count);
        // Each site is chosen, or has a reason.
        let mut all: Vec<usize> = chosen.iter().copied().chain(choice.passed_over.iter().map(|(site, _)| *site)).collect();
        all.sort_unstable();
        prop_assert_eq!(all, (0..sites.len()).collect::<Vec<_>>());
        let ranks = |set: &[usize]| {
            let mut ranks: Vec<u8> = set.iter().map(|site| found[*site].0).collect();
            ranks.sort_unstable_by(|a, b| b.cmp(a));
            ranks
        };
        let mine = ranks(&chosen);
        for mask in 0_u32..1 << found.len() {
            let set: Vec<usize> = (0..found.len()).filter(|at| mask >> at & 1 == 1).collect();
            if set.len() > count || !are_apart(&places, &set) {
                continue;
            }
            prop_assert!(set.len() <= chosen.len(), "{:?} is larger than {:?}", set, chosen);
            let others = ranks(&set);
            prop_assert!(others.iter().zip(&mine).all(|(other, mine)| mine >= other), "{:?} beats {:?}", set, chosen);
        }
    }
}

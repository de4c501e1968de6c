//! The findings as a table, and as lines below it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use gridlane_client::events::ProbeCounts;
use gridlane_client::probe::{Cause, Group, Outcome, Report, Site, Step, Untried};
use gridlane_core::ErrorKind;
use gridlane_core::limits::PROBE_SITE_NAME_BYTES_MAX;
use gridlane_core::text::printable;
use gridlane_core::units::format_seconds;

use crate::words;

/// Columns of a line behind the name of its site.
const FIGURES_COLUMNS: usize = 64;
/// The shortest that a name is cut to.
const NAME_COLUMNS_MIN: usize = 12;
/// The longest that one may be, even where lines have no end: it may be a URL of any length.
const NAME_COLUMNS_MAX: usize = PROBE_SITE_NAME_BYTES_MAX;

/// The table, a line for each endpoint, no wider than `columns` where names can be cut for that.
pub(super) fn table(sites: &[Site], reports: &[Report], columns: usize) -> String {
    let name = |report: &Report| printable(&sites[report.site].name);
    let longest = reports.iter().map(|report| name(report).chars().count()).max().unwrap_or(0);
    let most = columns.saturating_sub(FIGURES_COLUMNS).clamp(NAME_COLUMNS_MIN, NAME_COLUMNS_MAX);
    let room = longest.clamp(4, most);
    let mut text = format!("{:room$}  {:34}{:>14}{:>14}\n", "", "", "small file, ms", "MB/s");
    let heads = ["list", "read", "write", "del", "rtt ms", "write", "read", "write", "read"];
    text.push_str(&line(&format!("{:room$}  {:6}", "site", "over"), &heads.map(str::to_owned)));
    for report in reports {
        let start = format!("{:room$}  {:6.6}", cut(&name(report), room), report.endpoint.protocol.name());
        match unreached(report) {
            Some(why) => {
                let why: String = printable(&why).chars().take(columns.saturating_sub(room + 9)).collect();
                let _ = writeln!(text, "{start} {why}");
            }
            None => {
                let rate = |rate: &gridlane_client::probe::Rate| figure(rate.bytes_per_s() / 1e6);
                let figures = [
                    state(report, Step::List).to_owned(),
                    state(report, Step::Read).to_owned(),
                    state(report, Step::Write).to_owned(),
                    if report.left.is_empty() { state(report, Step::Delete) } else { "LEFT" }.to_owned(),
                    ms(report.round_trip),
                    ms(report.small_write),
                    ms(report.small_read),
                    report.write_rate.as_ref().map_or("-".to_owned(), rate),
                    report.read_rate.as_ref().map_or("-".to_owned(), rate),
                ];
                text.push_str(&line(&start, &figures));
            }
        }
    }
    text
}

fn line(start: &str, [list, read, write, delete, figures @ ..]: &[String; 9]) -> String {
    let mut line = format!("{start} {list:4} {read:4} {write:5} {delete:4}");
    figures.iter().for_each(|figure| {
        let _ = write!(line, " {figure:>6}");
    });
    line.push('\n');
    line
}

/// The beginning of a name that is too long.
fn cut(name: &str, room: usize) -> String {
    match name.chars().count() > room {
        true => name.chars().take(room.saturating_sub(1)).chain(['…']).collect(),
        false => name.to_owned(),
    }
}

/// The reason for which nothing was asked of an endpoint.
fn unreached(report: &Report) -> Option<String> {
    match report.outcome(Step::Login) {
        Outcome::Works => None,
        Outcome::Fails(error) => Some(Cause::of(Step::Login, error).to_string()),
        Outcome::Untried(why) => Some(match report.failures().next() {
            Some((step, error)) => Cause::of(step, error).to_string(),
            None => untried(*why).to_owned(),
        }),
    }
}

/// The end of a step in a word.
fn state(report: &Report, step: Step) -> &'static str {
    match report.outcome(step) {
        Outcome::Works => "yes",
        Outcome::Untried(_) => "-",
        Outcome::Fails(error) => match error.kind() {
            ErrorKind::Timeout => "late",
            ErrorKind::ChecksumMismatch => "bad",
            ErrorKind::Denied
            | ErrorKind::Unsupported
            | ErrorKind::Precondition
            | ErrorKind::NotFound
            | ErrorKind::Usage => "no",
            _ => "fail",
        },
    }
}

/// The reason for which a step was not tried.
pub(super) fn untried(why: Untried) -> &'static str {
    match why {
        Untried::NotAsked => "not asked for",
        Untried::Needless => "not tried",
        Untried::ByProxy => "a proxy does it",
        Untried::NoFile => "no file to read: name one with --file, or use --write",
        Untried::NoTime => "no time was left for it (--endpoint-timeout)",
        Untried::Stopped => "stopped",
    }
}

pub(super) fn ms(time: Option<Duration>) -> String {
    time.map_or("-".to_owned(), |time| figure(time.as_secs_f64() * 1e3))
}

/// A figure with two digits at least, in six columns.
fn figure(value: f64) -> String {
    match value {
        value if value < 9.995 => format!("{value:.2}"),
        value if value < 99.95 => format!("{value:.1}"),
        value if value < 999_999.5 => format!("{value:.0}"),
        value => format!("{value:.0e}"),
    }
}

/// The credentials that were used, each with its endpoints; nothing where there were none.
pub(super) fn credentials(sites: &[Site], reports: &[Report], columns: usize) -> String {
    let mut used = BTreeMap::<String, Vec<String>>::new();
    for report in reports.iter().filter(|report| report.works(Step::Login)) {
        let names: Vec<&str> = report.shown.iter().map(|shown| shown.name()).collect();
        let names = if names.is_empty() { "no credentials".to_owned() } else { names.join(" and ") };
        used.entry(names).or_default().push(called(sites, report));
    }
    let is_anonymous = used.keys().all(|names| names == "no credentials");
    match is_anonymous {
        true => String::new(),
        false => used.iter().map(|(names, of)| listed(&format!("with {names}"), of, columns)).collect(),
    }
}

/// The failures by their causes; with `verbose` also the whole error of each endpoint.
pub(super) fn causes(sites: &[Site], groups: &[Group<'_>], columns: usize, verbose: bool) -> String {
    let of_group = |group: &Group<'_>| {
        let of: Vec<String> = group.failures.iter().map(|(report, _)| called(sites, report)).collect();
        let title = format!("{} × {}", of.len(), group.cause);
        if !verbose {
            return listed(&title, &of, columns);
        }
        let errors = group.failures.iter().map(|(_, error)| words::error(error).to_string());
        errors.fold(printable(&title) + "\n", |text, error| text + "  " + &printable(&error) + "\n")
    };
    groups.iter().map(of_group).collect()
}

/// A title with names behind it, on as many lines as they take.
fn listed(title: &str, names: &[String], columns: usize) -> String {
    let mut text = printable(title) + ":";
    let mut width = text.chars().count();
    for (at, name) in names.iter().enumerate() {
        let name = printable(name) + if at + 1 < names.len() { "," } else { "" };
        let count = name.chars().count() + 1;
        if width + count > columns && width > 4 {
            text.push_str("\n   ");
            width = 3;
        }
        text.push(' ');
        text.push_str(&name);
        width += count;
    }
    text + "\n"
}

/// The name of an endpoint: that of its site, and its protocol where the site has several.
pub(super) fn called(sites: &[Site], report: &Report) -> String {
    let site = &sites[report.site];
    match site.endpoints.len() {
        1 => site.name.clone(),
        _ => format!("{} ({})", site.name, report.endpoint.protocol),
    }
}

/// The counts, in a line.
pub(super) fn summary(counts: &ProbeCounts, took: Duration) -> String {
    let ProbeCounts { sites, endpoints, reached, listed, read, written, deleted, failed: _, left } = counts;
    let mut text = format!(
        "{endpoints} {} of {sites} {} in {}: {reached} reached, {listed} listed, {read} read, {written} written, \
         {deleted} removed from",
        if *endpoints == 1 { "endpoint" } else { "endpoints" },
        if *sites == 1 { "site" } else { "sites" },
        format_seconds(took.as_secs_f64())
    );
    if *left > 0 {
        let _ = write!(
            text,
            "; {left} {}, or may be, still there",
            if *left == 1 { "file is" } else { "files are" }
        );
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use gridlane_client::probe::{Rate, SiteList, by_cause};
    use gridlane_core::Error;

    use super::*;

    fn some() -> (Vec<Site>, Vec<Report>) {
        let mut list = SiteList::default();
        list.add("site=Short https://a/ root://a//").unwrap();
        list.add("https://a-very-long-name.of.a.storage.element.example.org:8443/vo/ gsiftp://b/").unwrap();
        let sites = list.over(&[]).unwrap();
        let endpoints = sites.iter().enumerate();
        let mut reports: Vec<Report> = endpoints
            .flat_map(|(at, site)| {
                site.endpoints.iter().map(move |endpoint| Report::new(at, endpoint.clone()))
            })
            .collect();
        let took = Duration::ZERO;
        for step in [Step::Login, Step::List, Step::Read, Step::Write, Step::Delete] {
            reports[0].note(step, Outcome::Works, took);
            reports[2].note(step, Outcome::Works, took);
        }
        reports[0].round_trip = Some(Duration::from_micros(50));
        reports[0].small_write = Some(Duration::from_millis(12));
        reports[0].small_read = Some(Duration::from_millis(1234));
        reports[0].read_rate = Some(Rate { bytes: 16_000_000, seconds: 1.0, is_verified: true });
        reports[1].note(Step::Login, Outcome::Fails(Error::new(ErrorKind::Denied, "no")), took);
        reports[2].note(
            Step::Write,
            Outcome::Fails(Error::new(ErrorKind::Denied, "no").http_status(403)),
            took,
        );
        reports[2].note(Step::Read, Outcome::Fails(Error::new(ErrorKind::Timeout, "late")), took);
        let unspoken = Error::new(ErrorKind::Unsupported, "gsiftp is not spoken here");
        reports[3].note(Step::Protocol, Outcome::Fails(unspoken), took);
        (sites, reports)
    }

    #[test]
    fn the_table_fits() {
        let (sites, reports) = some();
        for columns in [80, 120] {
            let text = table(&sites, &reports, columns);
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= columns, "{widest} of {columns}\n{text}");
        }
        let expected = "                                                    small file, ms          MB/s
site              over   list read write del  rtt ms  write   read  write   read
Short             https  yes  yes  yes   yes    0.05   12.0   1234      -   16.0
Short             root   login: not allowed
a-very-long-nam…  https  yes  late no    yes       -      -      -      -      -
a-very-long-nam…  gsiftp protocol: gsiftp is not spoken here
";
        assert_eq!(table(&sites, &reports, 80), expected);
    }

    /// Formatting has widths of 16 bits.
    #[test]
    fn no_name_is_too_long_for_the_table() {
        let mut list = SiteList::default();
        let path = "p".repeat(70_000);
        list.add(&format!("https://a/{path}/")).unwrap();
        list.add(&format!("https://a/{path}2/")).unwrap();
        let sites = list.over(&[]).unwrap();
        let reports: Vec<Report> =
            sites.iter().enumerate().map(|(at, site)| Report::new(at, site.endpoints[0].clone())).collect();
        let text = table(&sites, &reports, usize::MAX);
        assert!(text.lines().all(|line| line.chars().count() < 400) && text.contains("pp…"), "{text}");
    }

    #[test]
    fn what_may_be_left_is_told_of() {
        let counts = ProbeCounts { left: 2, ..ProbeCounts::default() };
        let text = summary(&counts, Duration::ZERO);
        assert!(text.ends_with("; 2 files are, or may be, still there\n"), "{text}");
    }

    #[test]
    fn causes_are_listed_with_their_endpoints() {
        let (sites, reports) = some();
        let text = causes(&sites, &by_cause(&reports), 60, false);
        let long = "a-very-long-name.of.a.storage.element.example.org:8443";
        let expected = format!(
            "1 × protocol: gsiftp is not spoken here:\n    {long} (gsiftp)\n1 × login: not allowed: Short (root)\n\
             1 × write: HTTP 403, not allowed:\n    {long} (https)\n1 × read: too slow:\n    {long} (https)\n"
        );
        assert_eq!(text, expected);
        let text = causes(&sites, &by_cause(&reports), 60, true);
        assert!(text.contains("\n  late ["), "{text}");
    }

    #[test]
    fn figures_have_six_columns() {
        for (value, text) in [
            (0.0, "0.00"),
            (0.05, "0.05"),
            (9.994, "9.99"),
            (9.999, "10.0"),
            (99.99, "100"),
            (123_456.0, "123456"),
            (12_345_678.0, "1e7"),
        ] {
            assert_eq!(figure(value), text);
        }
    }
}

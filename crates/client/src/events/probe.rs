//! The lines of a probe.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::common::{Failure, Words};
use crate::probe::{Ability, Choice, Chosen, Group, Left, Outcome, Report, Site, Step, Why};

/// An event of a probe.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type")]
pub enum ProbeLine {
    /// All is known of an endpoint.
    #[serde(rename = "endpoint")]
    Endpoint(Box<EndpointLine>),
    /// Failures with one cause.
    #[serde(rename = "cause")]
    Cause(CauseLine),
    /// A set of sites was chosen, or could not be.
    #[serde(rename = "choice")]
    Choice(ChoiceLine),
    /// The end.
    #[serde(rename = "summary")]
    Summary(ProbeSummary),
}

/// The findings about an endpoint.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the fields are those of probe::Report")]
pub struct EndpointLine {
    pub site: String,
    pub zone: Option<String>,
    pub protocol: String,
    pub url: String,
    pub address: Option<String>,
    pub addresses: Vec<String>,
    pub connection: Option<String>,
    pub credentials: Vec<CredentialLine>,
    /// By the names of the steps.
    pub steps: BTreeMap<&'static str, StepLine>,
    pub entries: Option<usize>,
    pub entries_are_all: Option<bool>,
    pub round_trip_s: Option<f64>,
    pub small_write_s: Option<f64>,
    pub small_read_s: Option<f64>,
    pub write_rate: Option<RateLine>,
    pub read_rate: Option<RateLine>,
    pub left: Vec<LeftLine>,
}

/// A credential that was used.
#[derive(Clone, Debug, Serialize)]
pub struct CredentialLine {
    /// `token`, `certificate` or `url`.
    pub kind: &'static str,
    /// The name in messages, which is no secret.
    pub name: String,
}

/// The end of a step.
#[derive(Clone, Debug, Serialize)]
pub struct StepLine {
    /// `works`, `fails` or `untried`.
    pub state: &'static str,
    /// Time that it took.
    pub seconds: f64,
    /// The reason for which it was not tried.
    pub why: Option<&'static str>,
    /// The failure.
    pub error: Option<Failure>,
}

/// Bytes that were moved in a time.
#[derive(Clone, Copy, Debug, Serialize)]
#[expect(missing_docs, reason = "the fields are those of probe::Rate")]
pub struct RateLine {
    pub bytes: u64,
    pub seconds: f64,
    pub rate_bytes_per_s: f64,
    pub verified: bool,
}

/// A file that is left.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the fields are those of probe::Left")]
pub struct LeftLine {
    pub url: String,
    pub is_certain: bool,
    pub error: Failure,
}

/// Failures with one cause.
#[derive(Clone, Debug, Serialize)]
pub struct CauseLine {
    /// The step that failed.
    pub step: &'static str,
    /// The failure in a few words.
    pub cause: String,
    /// Number of endpoints.
    pub count: usize,
    /// The endpoints.
    pub endpoints: Vec<FailedLine>,
}

/// A failure of an endpoint.
#[derive(Clone, Debug, Serialize)]
pub struct FailedLine {
    /// The URL of the endpoint.
    pub url: String,
    /// The failure.
    pub error: Failure,
}

/// A choice.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the fields are those of probe::Choice")]
pub struct ChoiceLine {
    pub is_met: bool,
    pub wanted: usize,
    pub chosen: Vec<ChosenLine>,
    pub passed_over: Vec<PassedOverLine>,
    pub criteria: Vec<CriterionLine>,
}

/// A site that was chosen.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the fields are those of probe::Figures")]
pub struct ChosenLine {
    pub site: String,
    pub zone: Option<String>,
    /// Of the endpoints for which it was chosen.
    pub urls: Vec<String>,
    pub round_trip_s: Option<f64>,
    pub rate_bytes_per_s: Option<f64>,
    pub latency_s: Option<f64>,
}

/// A site that was not chosen.
#[derive(Clone, Debug, Serialize)]
pub struct PassedOverLine {
    /// Its name.
    pub site: String,
    /// The reason.
    pub why: String,
    /// The name of the reason, which stays when its words change.
    pub why_id: &'static str,
}

/// A criterion, and what it leaves.
#[derive(Clone, Debug, Serialize)]
pub struct CriterionLine {
    /// The criterion in words.
    pub criterion: String,
    /// Number of sites that it and those before it leave.
    pub left: usize,
}

/// The counts at the end of a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProbeCounts {
    /// Sites.
    pub sites: usize,
    /// Endpoints.
    pub endpoints: usize,
    /// Endpoints that a connection was made to and that took us.
    pub reached: usize,
    /// Endpoints that can be listed.
    pub listed: usize,
    /// Endpoints from which a file can be read.
    pub read: usize,
    /// Endpoints to which a file can be written.
    pub written: usize,
    /// Endpoints from which a file can be removed.
    pub deleted: usize,
    /// Endpoints of which a step fails.
    pub failed: usize,
    /// Files that are, or may be, left.
    pub left: usize,
}

impl ProbeCounts {
    /// The counts of these reports.
    pub fn of(sites: usize, reports: &[Report]) -> ProbeCounts {
        let works = |step| reports.iter().filter(|report| report.works(step)).count();
        let can = |ability: Ability| works(ability.step());
        ProbeCounts {
            sites,
            endpoints: reports.len(),
            reached: works(Step::Login),
            listed: can(Ability::List),
            read: can(Ability::Read),
            written: can(Ability::Write),
            deleted: can(Ability::Delete),
            failed: reports.iter().filter(|report| report.failures().next().is_some()).count(),
            left: reports.iter().map(|report| report.left.len()).sum(),
        }
    }
}

/// The end of a probe.
#[derive(Clone, Debug, Serialize)]
pub struct ProbeSummary {
    /// The counts.
    #[serde(flatten)]
    pub counts: ProbeCounts,
    /// The time that it took.
    pub seconds: f64,
    /// The failure of the whole.
    pub error: Option<Failure>,
}

fn seconds(time: Option<Duration>) -> Option<f64> {
    time.map(|time| time.as_secs_f64())
}

impl ProbeLine {
    /// The line of an endpoint.
    pub fn endpoint(sites: &[Site], report: &Report, words: &dyn Words) -> ProbeLine {
        let site = sites.get(report.site);
        let step = |step: Step| {
            let (state, why, error) = match report.outcome(step) {
                Outcome::Works => ("works", None, None),
                Outcome::Fails(error) => ("fails", None, Some(Failure::new(error, words))),
                Outcome::Untried(why) => ("untried", Some(why.name()), None),
            };
            (step.name(), StepLine { state, seconds: report.took(step).as_secs_f64(), why, error })
        };
        let rate = |rate: &crate::probe::Rate| RateLine {
            bytes: rate.bytes,
            seconds: rate.seconds,
            rate_bytes_per_s: rate.bytes_per_s(),
            verified: rate.is_verified,
        };
        let left = |left: &Left| LeftLine {
            url: left.url.clone(),
            is_certain: left.is_certain,
            error: Failure::new(&left.error, words),
        };
        let credentials = report.shown.iter();
        let credentials = credentials
            .map(|shown| CredentialLine { kind: shown.kind(), name: shown.name().to_owned() })
            .collect();
        ProbeLine::Endpoint(Box::new(EndpointLine {
            site: site.map(|site| site.name.clone()).unwrap_or_default(),
            zone: site.and_then(|site| site.zone.clone()),
            protocol: report.endpoint.protocol.name().to_owned(),
            url: report.endpoint.shown.clone(),
            address: report.address.map(|address| address.to_string()),
            addresses: report.addresses.iter().map(ToString::to_string).collect(),
            connection: report.connection.clone(),
            credentials,
            steps: Step::ALL.into_iter().map(step).collect(),
            entries: report.listed.map(|(entries, _)| entries),
            entries_are_all: report.listed.map(|(_, is_all)| is_all),
            round_trip_s: seconds(report.round_trip),
            small_write_s: seconds(report.small_write),
            small_read_s: seconds(report.small_read),
            write_rate: report.write_rate.as_ref().map(rate),
            read_rate: report.read_rate.as_ref().map(rate),
            left: report.left.iter().map(left).collect(),
        }))
    }

    /// The line of failures with one cause.
    pub fn cause(group: &Group<'_>, words: &dyn Words) -> ProbeLine {
        let failed = group.failures.iter().map(|(report, error)| FailedLine {
            url: report.endpoint.shown.clone(),
            error: Failure::new(error, words),
        });
        ProbeLine::Cause(CauseLine {
            step: group.cause.step.name(),
            cause: group.cause.to_string(),
            count: group.failures.len(),
            endpoints: failed.collect(),
        })
    }

    /// The line of a choice of `wanted` sites, from these reports. `why` words the reasons,
    /// `criteria` has the criteria in words with what they leave.
    pub fn choice(
        (sites, reports): (&[Site], &[Report]),
        (choice, wanted): (&Choice, usize),
        why: impl Fn(&Why) -> String,
        criteria: Vec<(String, usize)>,
    ) -> ProbeLine {
        let chosen = |Chosen { site, figures, reports: counted }: &Chosen| {
            let site = &sites[*site];
            ChosenLine {
                site: site.name.clone(),
                zone: site.zone.clone(),
                urls: counted.iter().map(|number| reports[*number].endpoint.shown.clone()).collect(),
                round_trip_s: seconds(figures.round_trip),
                rate_bytes_per_s: figures.rate_bytes_per_s,
                latency_s: seconds(figures.latency),
            }
        };
        let passed_over = choice.passed_over.iter().map(|(at, reason)| PassedOverLine {
            site: sites[*at].name.clone(),
            why: why(reason),
            why_id: reason.name(),
        });
        ProbeLine::Choice(ChoiceLine {
            is_met: choice.is_met,
            wanted,
            chosen: choice.chosen.iter().map(chosen).collect(),
            passed_over: passed_over.collect(),
            criteria: criteria
                .into_iter()
                .map(|(criterion, left)| CriterionLine { criterion, left })
                .collect(),
        })
    }
}

//! Messages for the message bus (fts3-rest 14): a copy has begun, a copy has ended, a file has another state, the optimiser has
//! decided.
//!
//! A body is one JSON object and one blank behind it, which some consumers cut off. Numbers are numbers, times are milliseconds since
//! 1970, flags are flags.

use gridlane_core::limits::JOB_MESSAGE_REASON_BYTES_MAX;
use gridlane_core::text;
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::failure::errno::ECANCELED;
use crate::refusal::shortened;
use crate::{Family, File, FileState, Job, JobKind, Link, Overwrite, date, place};

/// The topic of messages about copies that begin.
pub const START_TOPIC: &str = "transfer.fts_monitoring_start";
/// The topic of messages about copies that have ended.
pub const COMPLETE_TOPIC: &str = "transfer.fts_monitoring_complete";
/// The topic of messages about states of files.
pub const STATE_TOPIC: &str = "transfer.fts_monitoring_state";
/// The topic of messages about decisions of the optimiser.
pub const QUEUE_STATE_TOPIC: &str = "transfer.fts_monitoring_queue_state";

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its topic.
    pub topic: &'static str,
    /// Its property `vo`, which only messages about states have.
    pub vo: Option<String>,
    /// Its body.
    pub body: String,
}

/// The service that sends messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sender {
    /// The name of the service, which all its brokers have.
    pub alias: String,
    /// The name of this broker, if it is to be told.
    pub fqdn: Option<String>,
    /// Users are named.
    pub shows_user_dn: bool,
}

/// The way in which a copy was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The destination has fetched it.
    Pull,
    /// The source has sent it.
    Push,
    /// This service has.
    Streamed,
}

impl Way {
    /// Its name, as FTS3's consumers know it.
    pub fn name(self) -> &'static str {
        match self {
            Way::Pull => "3rd pull",
            Way::Push => "3rd push",
            Way::Streamed => "streamed",
        }
    }
}

/// A time with a beginning and an end, in milliseconds since 1970; 0 and 0 if there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The beginning.
    pub from_ms: u64,
    /// The end.
    pub to_ms: u64,
}

impl Span {
    /// Its length, in milliseconds; 0 if a clock was set back meanwhile.
    pub fn length_ms(self) -> u64 {
        self.to_ms.saturating_sub(self.from_ms)
    }
}

/// A copy that has ended.
#[derive(Clone, Debug, Default)]
pub struct Ended {
    /// The whole of it, from its first step to its last.
    pub all: Span,
    /// Bytes moved.
    pub transfer: Span,
    /// The source's checksum was asked for.
    pub source_checksum: Span,
    /// The destination's checksum was asked for.
    pub destination_checksum: Span,
    /// Its failure; `None`: there is none.
    pub failure: Option<Failure>,
    /// The step at which it has failed, in FTS3's words: `TRANSFER_PREPARATION`, `TRANSFER`, `TRANSFER_FINALIZATION`.
    pub phase: &'static str,
    /// Bytes that have moved.
    pub transferred_bytes: u64,
    /// Bytes of the file.
    pub size_bytes: u64,
    /// Parallel streams.
    pub streams: u16,
    /// Bytes of a TCP buffer; 0: the system's.
    pub buffer_bytes: u64,
    /// The time that it was given, in seconds.
    pub timeout_s: u32,
    /// The way in which it was made; `None`: it was not begun.
    pub way: Option<Way>,
    /// The family of addresses; `None`: not known.
    pub family: Option<Family>,
    /// The name of the server that has the file in the end, if it is known.
    pub final_destination: String,
    /// The number of the error of removing what was brought from tape; -1: not tried.
    pub eviction_code: i32,
    /// The number of the error of removing what was left of the copy; -1: not tried.
    pub cleanup_code: i32,
    /// The number of the error of removing a destination that was on disk only; -1: not tried.
    pub overwrite_on_disk_code: i32,
}

/// The place of a file in its job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Attempts after the first that it may have.
    pub retries_max: u32,
    /// No other replica, or no other hop, is left after it.
    pub is_last: bool,
}

/// A decision of the optimiser about a link.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueState {
    /// Bytes per second.
    pub rate_bytes_per_s: f64,
    /// The same, smoothed.
    pub smoothed_bytes_per_s: f64,
    /// The mean time of a copy, in seconds.
    pub duration_mean_s: f64,
    /// The mean size of a file, in bytes.
    pub size_mean_bytes: f64,
    /// Its standard deviation, in bytes.
    pub size_deviation_bytes: f64,
    /// The share of copies that went well, 0 to 1.
    pub success: f64,
    /// Attempts of files that wait.
    pub retries: u32,
    /// Files that are copied.
    pub active: u32,
    /// Files that wait.
    pub waiting: u32,
    /// Copies at the same time from now on.
    pub connections: u32,
    /// More than before by so many.
    pub difference: i32,
    /// The reason.
    pub rationale: String,
}

impl Sender {
    /// A copy begins.
    pub fn start(&self, job: &Job, file: &File, standing: Standing, now_ms: u64) -> Message {
        let mut body = self.common(job, file);
        set(
            &mut body,
            [
                ("transfer_id", json!(transfer_id(file, now_ms))),
                ("timestamp", json!(now_ms)),
                ("src_site_name", json!("")),
                ("dst_site_name", json!("")),
                ("is_archiving", json!(is_archiving(job, standing))),
            ],
        );
        self.message(START_TOPIC, None, body)
    }

    /// A copy has ended: well, or in an attempt that is not the last one, or for good.
    pub fn complete(&self, job: &Job, file: &File, standing: Standing, ended: &Ended) -> Message {
        let mut body = self.common(job, file);
        let (source, destination) = (place::scheme_of(&file.source), place::scheme_of(&file.destination));
        let (source_wire, destination_wire) = (canonical(&source), canonical(&destination));
        let is_http = |scheme: &str| matches!(scheme, "http" | "https");
        let is_translated =
            source_wire != destination_wire && !(is_http(source_wire) && is_http(destination_wire));
        let transfer_ms = ended.transfer.length_ms();
        let rate = match transfer_ms {
            0 => -1.0,
            ms => ended.size_bytes as f64 * 1000.0 / ms as f64,
        };
        set(
            &mut body,
            [
                ("tr_id", json!(transfer_id(file, ended.all.from_ms))),
                ("src_se", json!(file.link.source)),
                ("dst_se", json!(file.link.destination)),
                ("protocol", json!(destination)),
                ("src_protocol", json!(source)),
                ("dst_protocol", json!(destination)),
                ("src_transfer_protocol", json!(source_wire)),
                ("dst_transfer_protocol", json!(destination_wire)),
                ("protocol_translation", json!(is_translated)),
                ("src_site_name", json!("")),
                ("dst_site_name", json!("")),
                ("timestamp_tr_st", json!(ended.transfer.from_ms)),
                ("timestamp_tr_comp", json!(ended.transfer.to_ms)),
                ("timestamp_chk_src_st", json!(ended.source_checksum.from_ms)),
                ("timestamp_chk_src_ended", json!(ended.source_checksum.to_ms)),
                ("timestamp_checksum_dest_st", json!(ended.destination_checksum.from_ms)),
                ("timestamp_checksum_dest_ended", json!(ended.destination_checksum.to_ms)),
                ("timestamp_checksum_src_diff", json!(ended.source_checksum.length_ms())),
                ("timestamp_checksum_dst_diff", json!(ended.destination_checksum.length_ms())),
                ("t_timeout", json!(ended.timeout_s)),
                ("chk_timeout", json!(0)),
            ],
        );
        set(&mut body, outcome(ended));
        set(
            &mut body,
            [
                ("tr_bt_transfered", json!(ended.transferred_bytes)),
                ("nstreams", json!(ended.streams)),
                ("buf_size", json!(ended.buffer_bytes)),
                ("tcp_buf_size", json!(ended.buffer_bytes)),
                ("block_size", json!(0)),
                ("scitag", json!(file.scitag.unwrap_or_default())),
                ("f_size", json!(ended.size_bytes)),
                ("file_size", json!(ended.size_bytes)),
                ("tr_timestamp_start", json!(ended.all.from_ms)),
                ("tr_timestamp_complete", json!(ended.all.to_ms)),
                ("transfer_time", json!(transfer_ms)),
                ("operation_time", json!(ended.all.length_ms())),
                ("throughput", json!(rate)),
                ("channel_type", json!("urlcopy")),
                ("activity", json!(file.activity)),
                ("retry", json!(file.attempts)),
                ("retry_max", json!(standing.retries_max)),
                ("job_m_replica", json!(job.kind == JobKind::Replicas)),
                ("job_multihop", json!(job.kind == JobKind::Multihop)),
                ("transfer_lasthop", json!(job.kind == JobKind::Multihop && standing.is_last)),
                ("is_archiving", json!(is_archiving(job, standing))),
                ("job_state", json!(job_state(job.kind, standing, ended.failure.is_some()))),
                ("ipver", json!(family(ended.family))),
                ("eviction_code", json!(ended.eviction_code)),
                ("cleanup_code", json!(ended.cleanup_code)),
                ("final_destination", json!(ended.final_destination)),
                ("transfer_type", json!(ended.way.map_or("", Way::name))),
                ("auth_method", auth_method(job)),
                ("overwrite_on_disk_flag", json!(is_overwritten_on_disk(job.params.overwrite))),
                ("overwrite_on_disk_deletion_code", json!(ended.overwrite_on_disk_code)),
            ],
        );
        // Of SRM, which nothing is copied by here.
        for name in ["time_srm_prep_st", "time_srm_prep_end", "time_srm_fin_st", "time_srm_fin_end"] {
            body.insert(name.to_owned(), json!(0));
        }
        for name in
            ["srm_preparation_time", "srm_finalization_time", "srm_overhead_time", "srm_overhead_percentage"]
        {
            body.insert(name.to_owned(), json!(0));
        }
        self.message(COMPLETE_TOPIC, None, body)
    }

    /// A file has a state, from its submission on.
    pub fn state(&self, job: &Job, file: &File, standing: Standing, now_ms: u64) -> Message {
        let mut body = Map::new();
        let is_staging = job.params.bring_online_s.is_some() || job.params.pin_lifetime_s.is_some();
        set(
            &mut body,
            [
                ("user_dn", json!(self.user(job))),
                ("src_url", json!(file.source)),
                ("dst_url", json!(file.destination)),
                ("vo_name", json!(file.vo)),
                ("source_se", json!(file.link.source)),
                ("dest_se", json!(file.link.destination)),
                ("job_id", json!(job.id.to_string())),
                ("file_id", json!(file.id)),
                ("job_state", json!(job.state.name())),
                ("file_state", json!(file.state.name())),
                ("retry_counter", json!(file.attempts)),
                ("retry_max", json!(standing.retries_max)),
                ("user_filesize", json!(file.user_size_bytes)),
                ("timestamp", json!(now_ms)),
                ("submit_time", json!(ms(Some(job.submitted_s)))),
                ("staging", json!(is_staging)),
                ("staging_start", json!(ms(file.stamps.staging_started_s))),
                ("staging_finished", json!(ms(file.stamps.staging_finished_s))),
                ("archiving", json!(is_archiving(job, standing) || file.state == FileState::Archiving)),
                ("archiving_start", json!(ms(file.stamps.archive_started_s))),
                ("archiving_finished", json!(ms(file.stamps.archive_finished_s))),
                ("reason", json!(file.reason.as_deref().unwrap_or_default())),
                ("job_metadata", job.metadata.clone().unwrap_or_default()),
                ("file_metadata", file.metadata.clone().unwrap_or_default()),
                ("staging_metadata", file.staging_metadata.clone().unwrap_or_default()),
                ("archive_metadata", file.archive_metadata.clone().unwrap_or_default()),
            ],
        );
        self.message(STATE_TOPIC, Some(file.vo.clone()), body)
    }

    /// The optimiser has decided about a link.
    pub fn queue_state(&self, link: &Link, state: &QueueState, now_ms: u64) -> Message {
        let mut body = Map::new();
        set(
            &mut body,
            [
                ("source_se", json!(link.source)),
                ("dest_se", json!(link.destination)),
                ("throughput", json!(state.rate_bytes_per_s)),
                ("throughput_ema", json!(state.smoothed_bytes_per_s)),
                ("duration_avg", json!(state.duration_mean_s.round() as i64)),
                ("filesize_avg", json!(state.size_mean_bytes)),
                ("filesize_stddev", json!(state.size_deviation_bytes)),
                // Percent, in whole numbers, of which the larger counts.
                ("success_rate", json!((100.0 * state.success.clamp(0.0, 1.0)).ceil())),
                ("retry_count", json!(state.retries)),
                ("active_count", json!(state.active)),
                ("submitted_count", json!(state.waiting)),
                ("connections", json!(state.connections)),
                ("diff", json!(state.difference)),
                ("rationale", json!(state.rationale)),
                ("timestamp", json!(now_ms)),
            ],
        );
        self.message(QUEUE_STATE_TOPIC, None, body)
    }

    /// Fields that messages about a copy's beginning and about its end have.
    fn common(&self, job: &Job, file: &File) -> Map<String, Value> {
        let mut body = Map::new();
        set(
            &mut body,
            [
                ("job_id", json!(job.id.to_string())),
                ("file_id", json!(file.id)),
                ("vo", json!(file.vo)),
                ("src_url", json!(file.source)),
                ("dst_url", json!(file.destination)),
                ("src_hostname", json!(place::host_of(&file.source))),
                ("dst_hostname", json!(place::host_of(&file.destination))),
                ("src_srm_v", json!("")),
                ("dest_srm_v", json!("")),
                ("t_channel", json!(format!("{}__{}", file.link.source, file.link.destination))),
                ("srm_space_token_src", json!(job.params.source_spacetoken)),
                ("srm_space_token_dst", json!(job.params.destination_spacetoken)),
                ("user_dn", json!(self.user(job))),
                ("file_metadata", file.metadata.clone().unwrap_or_default()),
                ("job_metadata", job.metadata.clone().unwrap_or_default()),
            ],
        );
        body
    }

    fn user<'a>(&self, job: &'a Job) -> &'a str {
        if self.shows_user_dn { &job.owner.user_dn } else { "" }
    }

    fn message(&self, topic: &'static str, vo: Option<String>, mut body: Map<String, Value>) -> Message {
        body.insert("endpnt".to_owned(), json!(self.alias));
        if let Some(fqdn) = &self.fqdn {
            body.insert("fqdn".to_owned(), json!(fqdn));
        }
        Message { topic, vo, body: format!("{} ", Value::Object(body)) }
    }
}

/// The fields about the end of a copy, good or bad.
fn outcome(ended: &Ended) -> [(&'static str, Value); 8] {
    let Some(failure) = &ended.failure else {
        return [
            ("t_error_code", json!(0)),
            ("tr_error_scope", json!("")),
            ("t_failure_phase", json!("")),
            ("tr_error_category", json!("")),
            ("t_final_transfer_state", json!("Ok")),
            ("t_final_transfer_state_flag", json!(1)),
            ("t__error_message", json!("")),
            ("is_recoverable", json!(false)),
        ];
    };
    let (state, flag) = if failure.errno == ECANCELED { ("Abort", -1) } else { ("Error", 0) };
    let words = text::printable(&failure.text).replace(['"', '\''], "");
    [
        ("t_error_code", json!(failure.errno)),
        ("tr_error_scope", json!(failure.scope.name())),
        ("t_failure_phase", json!(ended.phase)),
        ("tr_error_category", json!(category(failure.errno))),
        ("t_final_transfer_state", json!(state)),
        ("t_final_transfer_state_flag", json!(flag)),
        ("t__error_message", json!(shortened(&words, JOB_MESSAGE_REASON_BYTES_MAX))),
        ("is_recoverable", json!(failure.is_recoverable())),
    ]
}

/// The system's words for the number of an error, in capital letters and without blanks, as FTS3 has them.
fn category(errno: i32) -> String {
    let words = std::io::Error::from_raw_os_error(errno).to_string();
    let words = words.split(" (os error").next().unwrap_or_default();
    words.replace(' ', "_").to_uppercase()
}

/// The name of a copy: `2026-11-27-2214__<source host>__<destination host>__<file>__<job>`.
fn transfer_id(file: &File, from_ms: u64) -> String {
    let stamp = date::stamp(i64::try_from(from_ms / 1000).unwrap_or(i64::MAX));
    let (source, destination) = (place::host_of(&file.source), place::host_of(&file.destination));
    format!("{stamp}__{source}__{destination}__{}__{}", file.id, file.job)
}

/// The state that a job has by what a copy has come to, for consumers that wait for its end: told of replicas and hops only.
fn job_state(kind: JobKind, standing: Standing, has_failed: bool) -> &'static str {
    match (kind, has_failed, standing.is_last) {
        (JobKind::Plain | JobKind::Reuse, _, _) => "UNKNOWN",
        (JobKind::Replicas, false, _) | (JobKind::Multihop, false, true) => "FINISHED",
        (JobKind::Replicas, true, true) | (JobKind::Multihop, true, _) => "FAILED",
        (JobKind::Replicas, true, false) | (JobKind::Multihop, false, false) => "ACTIVE",
    }
}

/// True if a copy is waited for until it is on tape: of hops, the last one is.
fn is_archiving(job: &Job, standing: Standing) -> bool {
    job.params.archive_timeout_s.is_some() && (job.kind != JobKind::Multihop || standing.is_last)
}

/// The protocol by which bytes of a URL move: clouds and WebDAV are HTTP.
fn canonical(scheme: &str) -> &str {
    match scheme {
        "http" | "dav" | "s3" | "gcloud" => "http",
        "https" | "davs" | "s3s" | "gclouds" => "https",
        other => other,
    }
}

fn family(family: Option<Family>) -> &'static str {
    match family {
        Some(Family::V4) => "ipv4",
        Some(Family::V6) => "ipv6",
        None => "unknown",
    }
}

fn auth_method(job: &Job) -> Value {
    job.metadata
        .as_ref()
        .and_then(|metadata| metadata.get("auth_method"))
        .cloned()
        .unwrap_or_else(|| json!(""))
}

fn is_overwritten_on_disk(overwrite: Overwrite) -> bool {
    matches!(overwrite, Overwrite::OnlyOnDisk | Overwrite::HopsAndOnlyOnDisk)
}

/// A time in milliseconds; 0 for none.
fn ms(at_s: Option<i64>) -> u64 {
    at_s.and_then(|at_s| u64::try_from(at_s).ok()).unwrap_or_default().saturating_mul(1000)
}

fn set<const N: usize>(body: &mut Map<String, Value>, fields: [(&str, Value); N]) {
    body.extend(fields.map(|(name, value)| (name.to_owned(), value)));
}

#[cfg(test)]
mod tests;

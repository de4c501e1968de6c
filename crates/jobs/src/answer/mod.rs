//! Answers to clients: jobs, files and attempts as FTS3's JSON has them (fts3-rest 5), and the statuses of answers about several jobs
//! (3.3).
//!
//! A field is made by its name, so that a client that asks for three of forty gets three made. What there is no value for is `null`;
//! FTS3's clients need every name to be there.

mod many;
mod service;

pub use many::{Item, Reply, about, canceled_files, ids};
pub use service::{affected, audit, hosts, versions};

use serde_json::{Map, Value, json};

use crate::{Attempt, Family, File, FileState, Job, JobState, Overwrite, Params, Verify, date};

/// Names of the fields of a job.
pub const JOB_FIELDS: [&str; 29] = [
    "job_id",
    "job_state",
    "job_type",
    "source_se",
    "dest_se",
    "user_dn",
    "cred_id",
    "vo_name",
    "reason",
    "submit_time",
    "job_finished",
    "priority",
    "submit_host",
    "cancel_job",
    "max_time_in_queue",
    "source_spacetoken",
    "destination_spacetoken",
    "internal_job_params",
    "overwrite_flag",
    "dst_file_report",
    "copy_pin_lifetime",
    "verify_checksum",
    "bring_online",
    "archive_timeout",
    "target_qos",
    "job_metadata",
    "retry",
    "retry_delay",
    "os_project_id",
];

/// Names of the fields of a file.
pub const FILE_FIELDS: [&str; 42] = [
    "file_id",
    "file_index",
    "hashed_id",
    "job_id",
    "dest_surl_uuid",
    "vo_name",
    "source_se",
    "dest_se",
    "source_surl",
    "dest_surl",
    "priority",
    "file_state",
    "file_state_initial",
    "transfer_host",
    "staging_host",
    "reason",
    "recoverable",
    "filesize",
    "user_filesize",
    "checksum",
    "start_time",
    "finish_time",
    "staging_start",
    "staging_finished",
    "archive_start_time",
    "archive_finish_time",
    "internal_file_params",
    "pid",
    "tx_duration",
    "throughput",
    "retry",
    "file_metadata",
    "staging_metadata",
    "archive_metadata",
    "selection_strategy",
    "bringonline_token",
    "log_file",
    "log_debug",
    "activity",
    "scitag",
    "src_token_id",
    "dst_token_id",
];

/// Bytes of a MiB, in which FTS3 counts rates.
const MIB: f64 = 1024.0 * 1024.0;

/// A field of a job by its name; `None`: there is no such field.
pub fn job_field(job: &Job, name: &str) -> Option<Value> {
    let params = &job.params;
    Some(match name {
        "job_id" => json!(job.id.to_string()),
        "job_state" => json!(job.state.name()),
        "job_type" => json!(job.kind.name()),
        "source_se" => json!(job.source_se),
        "dest_se" => json!(job.dest_se),
        "user_dn" => json!(job.owner.user_dn),
        "cred_id" => json!(job.owner.delegation_id),
        "vo_name" => json!(job.owner.vo),
        "reason" => json!(job.reason),
        "submit_time" => json!(date::written(job.submitted_s)),
        "job_finished" => when(job.finished_s),
        "priority" => json!(job.priority),
        "submit_host" => json!(job.submit_host),
        "cancel_job" => json!(job.state == JobState::Canceled),
        "max_time_in_queue" => json!(job.expires_s),
        "source_spacetoken" => json!(params.source_spacetoken),
        "destination_spacetoken" => json!(params.destination_spacetoken),
        "internal_job_params" => json!(internal_job_params(params)),
        "overwrite_flag" => json!(overwrite_flag(params.overwrite)),
        "dst_file_report" => json!(params.dst_file_report),
        "copy_pin_lifetime" => or_minus_one(params.pin_lifetime_s),
        "verify_checksum" => json!(verify_letter(params.verify)),
        "bring_online" => or_minus_one(params.bring_online_s),
        "archive_timeout" => or_minus_one(params.archive_timeout_s),
        "job_metadata" => job.metadata.clone().unwrap_or_default(),
        "retry" => json!(params.retry),
        "retry_delay" => json!(params.retry_delay_s),
        // Of FTS3's own past.
        "target_qos" | "os_project_id" => Value::Null,
        _ => return None,
    })
}

/// A field of a file by its name; `None`: there is no such field.
pub fn file_field(file: &File, name: &str) -> Option<Value> {
    let has_begun = file.stamps.started_s.is_some();
    let tokens = file.tokens.as_ref();
    Some(match name {
        "file_id" => json!(file.id),
        "file_index" => json!(file.index),
        "hashed_id" => json!(file.hashed_id),
        "job_id" => json!(file.job.to_string()),
        "vo_name" => json!(file.vo),
        "source_se" => json!(file.link.source),
        "dest_se" => json!(file.link.destination),
        "source_surl" => json!(file.source),
        "dest_surl" => json!(file.destination),
        "priority" => json!(file.priority),
        "file_state" => json!(file.state.name()),
        "file_state_initial" => {
            json!(if file.state == FileState::TokenPrep { file.initial_state.name() } else { "" })
        }
        "transfer_host" => json!(file.transfer_host),
        "staging_host" => {
            let is_staging = matches!(file.state, FileState::Staging | FileState::Started);
            json!(file.transfer_host.as_ref().filter(|_| is_staging))
        }
        "reason" => json!(file.reason),
        "recoverable" => json!(file.is_recoverable),
        "filesize" => json!(file.size_bytes),
        "user_filesize" => json!(file.user_size_bytes),
        "checksum" => json!(file.checksum),
        "start_time" => when(file.stamps.started_s),
        "finish_time" => when(file.stamps.finished_s),
        "staging_start" => when(file.stamps.staging_started_s),
        "staging_finished" => when(file.stamps.staging_finished_s),
        "archive_start_time" => when(file.stamps.archive_started_s),
        "archive_finish_time" => when(file.stamps.archive_finished_s),
        "tx_duration" => json!(has_begun.then_some(file.duration_s)),
        "throughput" => json!(has_begun.then_some(file.throughput_bytes_per_s / MIB)),
        "retry" => json!(file.attempts),
        "file_metadata" => file.metadata.clone().unwrap_or_default(),
        "staging_metadata" => file.staging_metadata.clone().unwrap_or_default(),
        "archive_metadata" => file.archive_metadata.clone().unwrap_or_default(),
        "selection_strategy" => json!(file.selection.name()),
        "bringonline_token" => json!(file.bringonline_token),
        "activity" => json!(file.activity),
        "scitag" => json!(file.scitag),
        "src_token_id" => json!(tokens.map(|(source, _)| source)),
        "dst_token_id" => json!(tokens.map(|(_, destination)| destination)),
        // Of FTS3's processes and data base, which there are none of here.
        "dest_surl_uuid" | "internal_file_params" | "pid" | "log_file" | "log_debug" => Value::Null,
        _ => return None,
    })
}

/// A job with all its fields.
pub fn job(job: &Job) -> Map<String, Value> {
    subset(JOB_FIELDS.into_iter(), |name| job_field(job, name))
}

/// A job with some of its fields; those that it has not are left out.
pub fn job_with(job: &Job, fields: &[&str]) -> Map<String, Value> {
    subset(fields.iter().copied(), |name| job_field(job, name))
}

/// A file with all its fields.
pub fn file(file: &File) -> Map<String, Value> {
    subset(FILE_FIELDS.into_iter(), |name| file_field(file, name))
}

/// A file with some of its fields; those that it has not are left out.
pub fn file_with(file: &File, fields: &[&str]) -> Map<String, Value> {
    subset(fields.iter().copied(), |name| file_field(file, name))
}

/// An attempt that has failed. FTS3 counts them from 1.
pub fn attempt(attempt: &Attempt) -> Value {
    json!({
        "file_id": attempt.file,
        "attempt": attempt.number.saturating_add(1),
        "datetime": date::written(attempt.ended_s),
        "reason": attempt.reason,
        "transfer_host": attempt.transfer_host,
        "log_file": null,
    })
}

fn subset<'a>(
    names: impl Iterator<Item = &'a str>,
    field: impl Fn(&str) -> Option<Value>,
) -> Map<String, Value> {
    names.filter_map(|name| Some((name.to_owned(), field(name)?))).collect()
}

fn when(at_s: Option<i64>) -> Value {
    json!(at_s.map(date::written))
}

fn or_minus_one(seconds: Option<u32>) -> Value {
    json!(seconds.map_or(-1, i64::from))
}

/// Wishes of a job for its copies, as FTS3 writes them: `nostreams:4,timeout:3600,strict`. `None`: there are none.
pub fn internal_job_params(params: &Params) -> Option<String> {
    let numbers = [
        params.streams.map(|streams| format!("nostreams:{streams}")),
        params.timeout_s.map(|timeout_s| format!("timeout:{timeout_s}")),
        params.buffer_size_bytes.map(|bytes| format!("buffersize:{bytes}")),
    ];
    let family = params.family.map(|family| match family {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    });
    let words = [
        params.strict_copy.then_some("strict"),
        params.disable_cleanup.then_some("disable-cleanup"),
        family,
        params.s3_alternate.then_some("s3alternate"),
    ];
    let all: Vec<String> =
        numbers.into_iter().flatten().chain(words.into_iter().flatten().map(str::to_owned)).collect();
    (!all.is_empty()).then(|| all.join(","))
}

/// The letter of which existing destinations are replaced; `None`: none are.
pub fn overwrite_flag(overwrite: Overwrite) -> Option<&'static str> {
    match overwrite {
        Overwrite::Never => None,
        Overwrite::Always => Some("Y"),
        Overwrite::OnRetry => Some("R"),
        Overwrite::Hops => Some("M"),
        Overwrite::OnlyOnDisk => Some("D"),
        Overwrite::HopsAndOnlyOnDisk => Some("Q"),
    }
}

/// The letter of the checksums that are compared.
pub fn verify_letter(verify: Verify) -> &'static str {
    match verify {
        Verify::None => "n",
        Verify::Source => "s",
        Verify::Target => "t",
        Verify::Both => "b",
    }
}

#[cfg(test)]
mod tests;

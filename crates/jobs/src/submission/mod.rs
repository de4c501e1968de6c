//! Submissions: the JSON of fts3-rest 4, read with every rule and default of FTS3, and made into a job with its files.
//!
//! ```text
//! body ─▶ Submission::parse ─▶ Submission ─▶ tokens (to be looked at, and kept) ─▶ into_job ─▶ NewJob
//! ```
//!
//! What a submission is refused for is refused here, in the words of FTS3; but for what only the store knows (an id or a destination
//! that is there already) and what only the service knows (credentials that the user has lent).

mod files;
mod new_job;
mod token;

pub use files::Requested;
pub use new_job::{Rules, Submitter};
pub use token::token_id;

use gridlane_core::limits::{
    JOB_BODY_BYTES_MAX, JOB_BUFFER_BYTES_MAX, JOB_METADATA_CHARS_MAX, JOB_NAME_BYTES_MAX, JOB_RETRIES_MAX,
    JOB_STREAMS_MAX, JOB_TIME_S_MAX,
};
use serde_json::{Map, Value};

use crate::body::{self, flag, integer, lenient_integer};
use crate::{Family, Overwrite, Params, Refusal, Verify};

/// A submission that can be made into a job: everything but for the rules of the service is right about it.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Its files; each has a pair of a source and a destination or more.
    pub files: Vec<Requested>,
    /// Its wishes for all files.
    pub params: Params,
    /// 1 to 5.
    pub priority: u8,
    /// Files are hops, one after the other.
    pub is_multihop: bool,
    /// One session for all files.
    pub is_reuse: bool,
    /// Time after which files that wait are cancelled, in seconds.
    pub queue_max_s: Option<u32>,
    /// The submitter's own words, an object.
    pub metadata: Option<Map<String, Value>>,
    /// The name by which its id is made; `None`: a random one.
    pub sid: Option<String>,
}

impl Submission {
    /// Reads the body of a request that submits a job.
    ///
    /// # Errors
    /// 400 for what breaks a rule of fts3-rest 4.1 or 4.2, 405 for a job that deletes, 413 for one that is too large.
    pub fn parse(body: &[u8]) -> Result<Submission, Refusal> {
        let mut body = body::object(body, JOB_BODY_BYTES_MAX)?;
        let params = match body.remove("params") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(params)) => params,
            Some(other) => {
                return Err(Refusal::malformed(format!(
                    "params: an object is expected and not {}",
                    body::kind(&other)
                )));
            }
        };
        let metadata = files::metadata_of(params.get("job_metadata"), JOB_METADATA_CHARS_MAX)?;
        if body.get("delete").is_some_and(|delete| !delete.is_null()) {
            return Err(Refusal::new(405, "Deletion jobs are no longer supported by FTS"));
        }
        let requested = match body.remove("files") {
            None | Some(Value::Null) => return Err(Refusal::bad("No transfers operations specified")),
            Some(Value::Array(files)) => files,
            Some(other) => {
                return Err(Refusal::malformed(format!(
                    "files: a list is expected and not {}",
                    body::kind(&other)
                )));
            }
        };
        let sid = sid(&params)?;
        let files = files::parse(requested)?;
        let is_multihop = flag(params.get("multihop"));
        let archive_timeout_s = positive_s(params.get("archive_timeout"));
        let overwrite = overwrite(&params, is_multihop, archive_timeout_s.is_some())?;
        files::judge_overwrite(&files, overwrite, is_multihop)?;
        let params_asked = Params {
            verify: verify(params.get("verify_checksum"), &files)?,
            overwrite,
            dst_file_report: flag(params.get("dst_file_report")),
            retry: whole(&params, "retry", -1, i64::from(JOB_RETRIES_MAX))?.unwrap_or_default() as i32,
            retry_delay_s: whole(&params, "retry_delay", 0, i64::from(JOB_TIME_S_MAX))?.unwrap_or_default()
                as u32,
            bring_online_s: positive_s(params.get("bring_online")),
            pin_lifetime_s: positive_s(params.get("copy_pin_lifetime")),
            archive_timeout_s,
            timeout_s: counted(&params, "timeout", i64::from(JOB_TIME_S_MAX))?.map(|timeout| timeout as u32),
            streams: counted(&params, "nostreams", i64::from(JOB_STREAMS_MAX))?.map(|streams| streams as u16),
            buffer_size_bytes: counted(&params, "buffer_size", JOB_BUFFER_BYTES_MAX as i64)?
                .map(|bytes| bytes as u64),
            strict_copy: flag(params.get("strict_copy")),
            disable_cleanup: flag(params.get("disable_cleanup")),
            family: match (flag(params.get("ipv4")), flag(params.get("ipv6"))) {
                (true, _) => Some(Family::V4),
                (false, true) => Some(Family::V6),
                (false, false) => None,
            },
            s3_alternate: flag(params.get("s3alternate")),
            source_spacetoken: named(&params, "source_spacetoken")?,
            destination_spacetoken: named(&params, "destination_spacetoken")?,
            unmanaged_tokens: flag(params.get("unmanaged_tokens")),
        };
        Ok(Submission {
            files,
            params: params_asked,
            priority: whole(&params, "priority", 1, 5)?.unwrap_or(3) as u8,
            is_multihop,
            is_reuse: flag(params.get("reuse")) && !is_multihop,
            queue_max_s: queue_max_s(params.get("max_time_in_queue")),
            metadata,
            sid,
        })
    }

    /// True if files are brought from tape before they are copied.
    pub fn is_staging(&self) -> bool {
        self.params.bring_online_s.is_some() || self.params.pin_lifetime_s.is_some()
    }
}

/// The JSON schema of a submission, for clients that look at theirs before they send it (fts3-rest 3.1).
pub const SCHEMA: &str = include_str!("schema.json");

/// A name for an id that anyone can compute: it is needed if that is asked for.
fn sid(params: &Map<String, Value>) -> Result<Option<String>, Refusal> {
    if params.get("id_generator").and_then(Value::as_str) != Some("deterministic") {
        return Ok(None);
    }
    let sid = body::text("sid", params.get("sid"), JOB_NAME_BYTES_MAX)?;
    sid.map(Some).ok_or_else(|| Refusal::bad("Need sid for deterministic job id generation"))
}

/// Rules of which existing destinations are replaced (fts3-rest 4.2).
fn overwrite(
    params: &Map<String, Value>,
    is_multihop: bool,
    is_archiving: bool,
) -> Result<Overwrite, Refusal> {
    let asked = |name| flag(params.get(name));
    let only_on_disk = asked("overwrite_when_only_on_disk");
    let overwrite =
        match (asked("overwrite"), asked("overwrite_on_retry"), asked("overwrite_hop"), only_on_disk) {
            (false, false, false, false) => Overwrite::Never,
            (true, false, false, false) => Overwrite::Always,
            (false, true, false, false) => Overwrite::OnRetry,
            (false, false, true, false) => Overwrite::Hops,
            (false, false, false, true) => Overwrite::OnlyOnDisk,
            (false, false, true, true) => Overwrite::HopsAndOnlyOnDisk,
            _ => return Err(Refusal::bad("Incompatible overwrite flags used at the same time")),
        };
    if only_on_disk && !is_archiving {
        return Err(Refusal::bad("'overwrite-when-only-on-disk' requires 'archive-timeout' to be set"));
    }
    if matches!(overwrite, Overwrite::Hops | Overwrite::HopsAndOnlyOnDisk) && !is_multihop {
        return Err(Refusal::bad("'overwrite-hop' requires multihop job submission"));
    }
    Ok(overwrite)
}

/// The checksums that are compared: a flag, or a word of which the first letter counts (fts3-rest 4.2).
fn verify(value: Option<&Value>, files: &[Requested]) -> Result<Verify, Refusal> {
    let is_given =
        || files.iter().any(|file| file.checksum.split_once(':').is_some_and(|(_, value)| !value.is_empty()));
    match value {
        Some(Value::String(word)) => match word.chars().next().map(|first| first.to_ascii_lowercase()) {
            Some('s') => Ok(Verify::Source),
            Some('t') => Ok(Verify::Target),
            Some('b') => Ok(Verify::Both),
            Some('n') => Ok(Verify::None),
            _ => Err(Refusal::invalid(format!(
                "verify_checksum is none of source, target, both, none ({word})"
            ))),
        },
        Some(other @ (Value::Array(_) | Value::Object(_))) => Err(Refusal::malformed(format!(
            "verify_checksum: a flag or a text is expected and not {}",
            body::kind(other)
        ))),
        value if flag(value) => Ok(Verify::Both),
        _ if is_given() => Ok(Verify::Target),
        _ => Ok(Verify::None),
    }
}

/// Time in a queue: a number of hours, or a text of a number with `s`, `m`, `h` or `d`. What is neither, or not more than nothing, is
/// no limit (fts3-rest 4.2).
fn queue_max_s(value: Option<&Value>) -> Option<u32> {
    let seconds = match value? {
        Value::Number(hours) => hours.as_i64()?.saturating_mul(3600),
        Value::String(text) => {
            let unit = text.chars().next_back()?;
            let unit_s = match unit.to_ascii_lowercase() {
                's' => 1,
                'm' => 60,
                'h' => 3600,
                'd' => 24 * 3600,
                _ => return None,
            };
            text[..text.len() - unit.len_utf8()].trim().parse::<i64>().ok()?.saturating_mul(unit_s)
        }
        _ => return None,
    };
    (seconds > 0).then(|| seconds.min(i64::from(JOB_TIME_S_MAX)) as u32)
}

/// A time in seconds, if it is more than nothing.
fn positive_s(value: Option<&Value>) -> Option<u32> {
    let seconds = lenient_integer(value);
    (seconds > 0).then(|| seconds.min(i64::from(JOB_TIME_S_MAX)) as u32)
}

/// A whole number that is brought into a range.
fn whole(params: &Map<String, Value>, name: &str, least: i64, most: i64) -> Result<Option<i64>, Refusal> {
    Ok(integer(params.get(name))?.map(|number| number.clamp(least, most)))
}

/// A whole number that is more than 0, and not more than a limit; what is less means that nothing is said.
fn counted(params: &Map<String, Value>, name: &str, most: i64) -> Result<Option<i64>, Refusal> {
    // FTS3 takes what Python calls false for nothing, whatever its type.
    let is_nothing = params.get(name) == Some(&Value::String(String::new()));
    let number = if is_nothing { None } else { integer(params.get(name))? };
    Ok(number.filter(|number| *number > 0).map(|number| number.min(most)))
}

/// A name: nothing if it is not there.
fn named(params: &Map<String, Value>, name: &str) -> Result<String, Refusal> {
    body::text(name, params.get(name), JOB_NAME_BYTES_MAX).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests;

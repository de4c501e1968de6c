//! Answers about one job or several (fts3-rest 3.3).

use gridlane_core::limits::JOBS_PER_REQUEST_MAX;
use serde_json::{Map, Value, json};

use crate::Refusal;
use crate::refusal::status_line;

/// An answer: its status and its JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The status of HTTP.
    pub status: u16,
    /// The JSON.
    pub body: Value,
}

/// The part of an answer that is about one job.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// The job, which was asked for.
    Found(Map<String, Value>),
    /// The job, which was changed or cancelled.
    Changed(Map<String, Value>),
    /// The job, which could not be, since it has ended.
    Final(Map<String, Value>),
    /// No job, or none that the client may see: its id as the client wrote it.
    Refused(String, Refusal),
}

/// The ids that a client asks for, as the path has them, and whether it gets a list: for `a,b` it does.
///
/// # Errors
/// 400 for too many, 404 for none.
pub fn ids(text: &str) -> Result<(Vec<&str>, bool), Refusal> {
    let is_list = text.contains(',');
    let ids: Vec<&str> = text.split(',').filter(|id| !id.is_empty()).take(JOBS_PER_REQUEST_MAX + 1).collect();
    match ids.len() {
        0 => Err(Refusal::no_such_job(text)),
        count if count > JOBS_PER_REQUEST_MAX => {
            Err(Refusal::bad(format!("A request is about at most {JOBS_PER_REQUEST_MAX} jobs")))
        }
        _ => Ok((ids, is_list)),
    }
}

/// The answer about these jobs, of which there is one at least: the object itself for one, with the status of its refusal if it has
/// one; a list for several, with 207 if any is refused. Jobs that have ended already are no refusal.
pub fn about(items: Vec<Item>, is_list: bool) -> Reply {
    let refused = |item: &Item| match item {
        Item::Refused(_, refusal) => Some(refusal.status),
        _ => None,
    };
    let first_refused = items.iter().find_map(refused);
    let mut bodies = items.into_iter().map(body);
    if is_list {
        let status = if first_refused.is_some() { 207 } else { 200 };
        return Reply { status, body: bodies.collect() };
    }
    Reply { status: first_refused.unwrap_or(200), body: bodies.next().unwrap_or_default() }
}

fn body(item: Item) -> Value {
    let with = |mut job: Map<String, Value>, status: u16, message: Option<Value>| {
        job.insert("http_status".to_owned(), json!(status_line(status)));
        if let Some(message) = message {
            job.insert("http_message".to_owned(), message);
        }
        Value::Object(job)
    };
    match item {
        Item::Found(job) => with(job, 200, None),
        Item::Changed(job) => with(job, 200, Some(Value::Null)),
        Item::Final(job) => with(job, 304, Some(json!("The job is in a terminal state"))),
        Item::Refused(id, refusal) => json!({
            "job_id": id, "http_status": refusal.status_line(), "http_message": refusal.message,
        }),
    }
}

/// The answer to a client that cancels files of a job: the state of each, `None` for one that is not the job's; a bare text for one.
pub fn canceled_files(states: Vec<Option<&'static str>>) -> Value {
    let word = |state: Option<&'static str>| json!(state.unwrap_or("File does not belong to the job"));
    let mut words: Vec<Value> = states.into_iter().map(word).collect();
    if words.len() == 1 { words.swap_remove(0) } else { Value::Array(words) }
}

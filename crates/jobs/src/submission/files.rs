//! Files of a submission (fts3-rest 4.1).

use std::sync::Arc;

use gridlane_core::Secret;
use gridlane_core::limits::{
    FILE_METADATA_CHARS_MAX, JOB_CHECKSUM_BYTES_MAX, JOB_FILES_MAX, JOB_NAME_BYTES_MAX, JOB_REPLICAS_MAX,
    TAPE_METADATA_CHARS_MAX, TOKEN_BYTES_MAX,
};
use serde_json::{Map, Value};

use crate::body;
use crate::{Overwrite, Refusal, Selection, Storage, place};

/// A file of a submission, with all its replicas and destinations.
#[derive(Clone, Debug)]
pub struct Requested {
    /// Sources: one or more.
    pub sources: Vec<Place>,
    /// Destinations: one or more.
    pub destinations: Vec<Place>,
    /// `ADLER32:1a2b3c4d`, or the type alone.
    pub checksum: String,
    /// Bytes; 0: not known.
    pub size_bytes: u64,
    /// The submitter's own words, an object.
    pub metadata: Option<Value>,
    /// Words for the tape system of the source, an object.
    pub staging_metadata: Option<Value>,
    /// Words for the tape system of the destination, an object.
    pub archive_metadata: Option<Value>,
    /// The activity.
    pub activity: String,
    /// The mark of its packets.
    pub scitag: Option<u16>,
    /// The way in which one of several sources is chosen.
    pub selection: Selection,
}

/// A source or a destination.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its URL, as it was given but for blanks around it.
    pub url: String,
    /// Its scheme, in small letters.
    pub scheme: String,
    /// Its storage.
    pub storage: Storage,
    /// The token for it.
    pub token: Option<Arc<Secret>>,
}

/// Reads the files of a submission.
pub(super) fn parse(requested: Vec<Value>) -> Result<Vec<Requested>, Refusal> {
    let mut files = Vec::with_capacity(requested.len().min(JOB_FILES_MAX));
    let mut pairs = 0_usize;
    for value in requested {
        let Value::Object(fields) = value else {
            return Err(Refusal::malformed(format!(
                "files: an object is expected and not {}",
                body::kind(&value)
            )));
        };
        let file = file(&fields)?;
        pairs += judge_pairs(&file)?;
        if pairs > JOB_FILES_MAX {
            return Err(Refusal::bad(format!("A job has at most {JOB_FILES_MAX} files")));
        }
        files.push(file);
    }
    if files.is_empty() {
        return Err(Refusal::bad("No valid pairs available"));
    }
    Ok(files)
}

/// Pairs of a source and a destination of a file: at least one. FTS3 leaves a file without any out of the job, and tells nothing.
fn judge_pairs(file: &Requested) -> Result<usize, Refusal> {
    let (sources, destinations) = (file.sources.len(), file.destinations.len());
    match sources.saturating_mul(destinations) {
        0 => Err(Refusal::bad("No valid pairs available")),
        pairs if pairs > JOB_REPLICAS_MAX => Err(Refusal::bad(format!(
            "A file has at most {JOB_REPLICAS_MAX} pairs of sources and destinations"
        ))),
        pairs => Ok(pairs),
    }
}

fn file(fields: &Map<String, Value>) -> Result<Requested, Refusal> {
    let (sources, destinations) = places(fields)?;
    let activity = body::text("activity", fields.get("activity"), JOB_NAME_BYTES_MAX)?;
    let checksum = body::text("checksum", fields.get("checksum"), JOB_CHECKSUM_BYTES_MAX)?;
    Ok(Requested {
        selection: selection(fields.get("selection_strategy"), sources.len() > 1 || destinations.len() > 1)?,
        sources,
        destinations,
        checksum: checksum.filter(|checksum| !checksum.is_empty()).unwrap_or_else(|| "ADLER32".to_owned()),
        size_bytes: size_bytes(fields.get("filesize"))?,
        metadata: metadata_of(fields.get("metadata"), FILE_METADATA_CHARS_MAX)?.map(Value::Object),
        staging_metadata: tape_metadata(fields.get("staging_metadata"), "Staging metadata")?,
        archive_metadata: tape_metadata(fields.get("archive_metadata"), "Archive metadata")?,
        activity: activity.filter(|activity| !activity.is_empty()).unwrap_or_else(|| "default".to_owned()),
        scitag: scitag(fields.get("scitag"))?,
    })
}

/// Sources and destinations with the tokens for them: all have one or none has.
fn places(fields: &Map<String, Value>) -> Result<(Vec<Place>, Vec<Place>), Refusal> {
    let mut sources = urls(fields, "sources")?;
    let mut destinations = urls(fields, "destinations")?;
    let source_tokens = tokens(fields.get("source_tokens"), "Source")?;
    let destination_tokens = tokens(fields.get("destination_tokens"), "Destination")?;
    if source_tokens.is_empty() && destination_tokens.is_empty() {
        return Ok((sources, destinations));
    }
    if source_tokens.is_empty() || destination_tokens.is_empty() {
        let message = "Both source_tokens and destination_tokens are required if one of them is present.";
        return Err(Refusal::bad(message));
    }
    lend(&mut sources, source_tokens, "source")?;
    lend(&mut destinations, destination_tokens, "destination")?;
    Ok((sources, destinations))
}

fn lend(places: &mut [Place], tokens: Vec<Option<Secret>>, what: &str) -> Result<(), Refusal> {
    if places.len() != tokens.len() {
        let message = format!("Length of {what}_tokens should be equal to the length of {what}s.");
        return Err(Refusal::bad(message));
    }
    for (place, token) in places.iter_mut().zip(tokens) {
        let missing = || Refusal::bad(format!("Token for {what} '{}' is missing.", place.url));
        place.token = Some(Arc::new(token.ok_or_else(missing)?));
    }
    Ok(())
}

fn urls(fields: &Map<String, Value>, name: &str) -> Result<Vec<Place>, Refusal> {
    let urls = match fields.get(name) {
        None | Some(Value::Null) => return Err(Refusal::missing(name)),
        Some(Value::Array(urls)) => urls,
        Some(other) => {
            return Err(Refusal::malformed(format!(
                "{name}: a list is expected and not {}",
                body::kind(other)
            )));
        }
    };
    let place = |url: &Value| match url {
        Value::String(text) => {
            let (url, scheme, storage) = place::parse(text)?;
            Ok(Place { url: url.to_owned(), scheme, storage, token: None })
        }
        other => Err(Refusal::malformed(format!("{name}: a text is expected and not {}", body::kind(other)))),
    };
    urls.iter().map(place).collect()
}

/// Tokens of a list, of which none is empty; the list may be.
fn tokens(value: Option<&Value>, what: &str) -> Result<Vec<Option<Secret>>, Refusal> {
    let token = |token: &Value| match token {
        Value::Null => Ok(None),
        Value::String(token) if token.is_empty() => Ok(None),
        Value::String(token) if token.len() > TOKEN_BYTES_MAX => {
            Err(Refusal::bad(format!("{what} token has more than {TOKEN_BYTES_MAX} bytes")))
        }
        // Tokens go into headers of requests.
        Value::String(token) if !token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Err(Refusal::bad(format!("{what} token has characters that no token has")))
        }
        Value::String(token) => Ok(Some(Secret::new(token.as_str()))),
        other => Err(Refusal::bad(format!("{what} token is not a string: {}", body::kind(other)))),
    };
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(tokens)) => tokens.iter().map(token).collect(),
        Some(other) => Err(Refusal::malformed(format!(
            "{what} tokens: a list is expected and not {}",
            body::kind(other)
        ))),
    }
}

/// Bytes of a file, as its submitter says. Less than nothing means that it is not known, as nothing does.
fn size_bytes(value: Option<&Value>) -> Result<u64, Refusal> {
    let bytes = match value {
        None | Some(Value::Null) => 0.0,
        Some(Value::Number(number)) => match number.as_u64() {
            Some(bytes) => return judge_size(bytes),
            None => number.as_f64().unwrap_or_default(),
        },
        Some(Value::String(text)) => match text.trim().parse::<u64>() {
            Ok(bytes) => return judge_size(bytes),
            Err(_) => {
                let bytes: Option<f64> = text.trim().parse().ok();
                bytes
                    .filter(|bytes| !bytes.is_nan())
                    .ok_or_else(|| Refusal::invalid(format!("could not convert string to float: '{text}'")))?
            }
        },
        Some(other) => {
            return Err(Refusal::malformed(format!(
                "filesize: a number is expected and not {}",
                body::kind(other)
            )));
        }
    };
    judge_size(bytes as u64)
}

/// Sizes that no store can keep are none.
fn judge_size(bytes: u64) -> Result<u64, Refusal> {
    match i64::try_from(bytes) {
        Ok(_) => Ok(bytes),
        Err(_) => Err(Refusal::invalid("filesize is larger than any file")),
    }
}

fn tape_metadata(value: Option<&Value>, name: &str) -> Result<Option<Value>, Refusal> {
    let words = metadata_of(value, TAPE_METADATA_CHARS_MAX)?;
    if value.is_some_and(Value::is_string) {
        return Err(Refusal::invalid(format!("{name} not in JSON format")));
    }
    Ok(words.map(Value::Object))
}

fn scitag(value: Option<&Value>) -> Result<Option<u16>, Refusal> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(None) };
    let Some(number) = value.as_i64() else {
        let message = format!("Invalid SciTag value: {value}. Must be an integer in the [65, 65535] range!");
        return Err(Refusal::invalid(message));
    };
    match u16::try_from(number) {
        Ok(scitag) if scitag >= 65 => Ok(Some(scitag)),
        _ => Err(Refusal::invalid(format!("Invalid SciTag value: {number} (not in [65, 65535] range)"))),
    }
}

/// A strategy; one that is not known is refused where there is something to choose, as FTS3 does.
fn selection(value: Option<&Value>, is_choice: bool) -> Result<Selection, Refusal> {
    match value {
        None | Some(Value::Null) => Ok(Selection::default()),
        Some(Value::String(name)) => match Selection::named(name) {
            Some(selection) => Ok(selection),
            None if !is_choice => Ok(Selection::default()),
            None => Err(Refusal::bad(format!("{name} algorithm is not supported by Scheduler"))),
        },
        Some(other) => Err(Refusal::malformed(format!(
            "selection_strategy: a text is expected and not {}",
            body::kind(other)
        ))),
    }
}

/// Refuses to replace copies that are only on disk where the storage cannot be asked for that: of hops, only the last one matters.
pub(super) fn judge_overwrite(
    files: &[Requested],
    overwrite: Overwrite,
    is_multihop: bool,
) -> Result<(), Refusal> {
    if !matches!(overwrite, Overwrite::OnlyOnDisk | Overwrite::HopsAndOnlyOnDisk) {
        return Ok(());
    }
    let judged = if is_multihop { &files[files.len().saturating_sub(1)..] } else { files };
    let mut schemes = judged.iter().flat_map(|file| &file.destinations).map(|place| place.scheme.as_str());
    match schemes.all(|scheme| matches!(scheme, "https" | "davs" | "mock")) {
        true => Ok(()),
        false => Err(Refusal::bad(
            "'overwrite-when-only-on-disk' requires destination to be HTTPs endpoint (Tape REST API required)",
        )),
    }
}

/// Words of a submitter: an object, or a text that becomes one (fts3-rest 4.1).
pub(super) fn metadata_of(
    value: Option<&Value>,
    chars_max: usize,
) -> Result<Option<Map<String, Value>>, Refusal> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(None) };
    if body::python_chars(value) > chars_max {
        return Err(Refusal::invalid(format!(
            "Job Submission Refused, metadata exceeds size limit of {chars_max}"
        )));
    }
    match value {
        Value::Object(map) => Ok(Some(map.clone())),
        Value::String(_) => Ok(Some(Map::from_iter([("label".to_owned(), value.clone())]))),
        _ => Err(Refusal::invalid("Metadata neither JSON nor String")),
    }
}

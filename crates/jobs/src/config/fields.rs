//! Fields of requests that change settings.

use serde_json::{Map, Value};

use crate::{Refusal, Storage, body, place};

/// The most bytes of a name in a setting: of a VO, of a link, of a site.
pub(super) const NAME_BYTES_MAX: usize = gridlane_core::limits::JOB_NAME_BYTES_MAX;

/// A name, if it is there and not empty.
pub(super) fn name(fields: &Map<String, Value>, field: &str) -> Result<Option<String>, Refusal> {
    let name = body::text(field, fields.get(field), NAME_BYTES_MAX)?;
    Ok(name.filter(|name| !name.trim().is_empty()))
}

/// A DN, or the subject of a token, if it is there and not empty. The longest are a kilobyte.
pub(super) fn subject(fields: &Map<String, Value>, field: &str) -> Result<Option<String>, Refusal> {
    let name = body::text(field, fields.get(field), 1024)?;
    Ok(name.filter(|name| !name.is_empty()))
}

/// A whole number that is not less than 0, or a text of one.
///
/// # Errors
/// 400, in FTS3's words.
pub(super) fn count(field: &str, value: &Value) -> Result<u64, Refusal> {
    let refused = || Refusal::bad(format!("Field {field} is expected to be int"));
    match value {
        Value::Bool(flag) => Ok(u64::from(*flag)),
        Value::Number(number) => number.as_u64().ok_or_else(refused),
        Value::String(text) => text.trim().parse().map_err(|_| refused()),
        _ => Err(refused()),
    }
}

/// The same of at most 32 bits: what is more is as good as the largest.
pub(super) fn small_count(field: &str, value: &Value) -> Result<u32, Refusal> {
    count(field, value).map(|count| u32::try_from(count).unwrap_or(u32::MAX))
}

/// A switch: a flag, a number, or a text such as `on` (`Field x is expected to be bool` for anything else).
pub(super) fn switch(field: &str, value: &Value) -> Result<bool, Refusal> {
    match value {
        Value::Bool(flag) => Ok(*flag),
        Value::Number(number) => Ok(number.as_f64() != Some(0.0)),
        Value::String(text) => {
            Ok(["true", "yes", "on", "y", "1"].contains(&text.trim().to_ascii_lowercase().as_str()))
        }
        _ => Err(Refusal::bad(format!("Field {field} is expected to be bool"))),
    }
}

/// A field that no such setting has.
pub(super) fn unknown(field: &str) -> Refusal {
    Refusal::bad(format!("Field {field} unknown"))
}

/// The storage that a setting is for, or [`Storage::ANY`].
pub(super) fn storage(text: &str) -> Option<Storage> {
    match text.trim() {
        Storage::ANY => Some(Storage::from(Storage::ANY)),
        text => place::storage_of(text),
    }
}

/// A storage of these fields.
///
/// # Errors
/// 400 for one that is not a scheme with a host: `Invalid source`.
pub(super) fn storage_field(fields: &Map<String, Value>, field: &str) -> Result<Option<Storage>, Refusal> {
    let Some(text) = body::text(field, fields.get(field), gridlane_core::limits::JOB_URL_BYTES_MAX)? else {
        return Ok(None);
    };
    if text.trim().is_empty() {
        return Ok(None);
    }
    storage(&text).map(Some).ok_or_else(|| Refusal::bad(format!("Invalid {field}")))
}

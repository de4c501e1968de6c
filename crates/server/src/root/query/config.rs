//! Settings of the server, by name.

use gridlane_core::limits;
use gridlane_xrd::ErrorCode;

use crate::root::places::Context;
use gridlane_front::access_log::timestamp;
use gridlane_front::root::answer::{Answer, Failure, Outcome};
use gridlane_front::root::identity;
use std::time::{Duration, UNIX_EPOCH};

/// The version of XRootD that it behaves like, and its own. Clients take what begins with `v` and a number for a
/// version.
pub(super) const VERSION: &str = concat!("v5.5.3-gridlane/", env!("CARGO_PKG_VERSION"));

/// A line for each key, in the order of the query. An unknown key is its own value, as in XRootD.
pub(super) fn config(context: &Context, argument: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(argument);
    let keys: Vec<&str> = text.split([' ', '\n', '\r', '\t', '\0']).filter(|key| !key.is_empty()).collect();
    if keys.len() > limits::ROOT_CONFIG_KEYS_MAX {
        return Err(Failure::new(ErrorCode::ARG_TOO_LONG, "too many keys in one request"));
    }
    // The whole configuration is for operators.
    if matches!(keys.first(), Some(&("xrootd" | "cmsd"))) {
        return Ok(Answer::text("\n"));
    }
    let mut out = String::new();
    for key in keys {
        out.push_str(&value(context, key).unwrap_or_else(|| key.to_owned()));
        out.push('\n');
    }
    Ok(Answer::Ok(out.into_bytes()))
}

fn value(context: &Context, key: &str) -> Option<String> {
    let service = context.service();
    let id = || format!("gridlane@{}", name(context));
    Some(match key {
        "bind_max" => limits::ROOT_BOUND_MAX.to_string(),
        "chksum" => {
            let named = super::offered().enumerate();
            named.map(|(index, kind)| format!("{index}:{}", kind.name())).collect::<Vec<_>>().join(",")
        }
        "cid" => id(),
        // There is no manager above it.
        "cms" => "none|".to_owned(),
        "fattr" => {
            format!("{} {}", limits::ATTRIBUTE_NAME_BYTES_MAX, limits::ATTRIBUTE_VALUE_BYTES_MAX)
        }
        "pio_max" => limits::ROOT_PARALLEL_READS.to_string(),
        "readv_ior_max" => limits::ROOT_VECTOR_ELEMENT_BYTES_MAX.to_string(),
        "readv_iov_max" => limits::ROOT_VECTOR_ELEMENTS_MAX.to_string(),
        "role" => "server".to_owned(),
        "sitename" => service.front.root.site_name.clone()?,
        "start" => started(service.front.started_s),
        "sysid" => format!("s-{} {}", id(), id()),
        // By a key that the client gives both servers.
        "tpc" => "1".to_owned(),
        // Or by a proxy that the client lends; elsewhere the name is not known, which says no.
        "tpcdlg" if identity::takes_proxies(context.front()) => "gsi".to_owned(),
        "version" => VERSION.to_owned(),
        _ => return None,
    })
}

/// The name of the server: the operator's, or the address that the client reached.
pub(super) fn name(context: &Context) -> String {
    let named = context.front().root.server_name.clone();
    named.unwrap_or_else(|| context.link.local.ip().to_canonical().to_string())
}

/// `261122:061050.0`: date and time in UTC, as XRootD's log files have it.
fn started(at_s: u64) -> String {
    // 2026-11-22T06:10:50.000Z
    let digits: String =
        timestamp(UNIX_EPOCH + Duration::from_secs(at_s)).chars().filter(char::is_ascii_digit).collect();
    format!("{}:{}.0", digits.get(2..8).unwrap_or_default(), digits.get(8..14).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_as_xrootd_writes_it() {
        assert_eq!(started(1_795_327_850), "261122:061050.0");
    }
}

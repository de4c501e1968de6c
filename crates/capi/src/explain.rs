//! The record of a file as JSON (docs/reference/c-abi.md). What `gridlane read --json` tells as well has the same name.

use gridlane_engine::reading::RemoteFile;
use serde_json::{Map, Value, json};

/// An object, on one line.
pub(crate) fn explained(file: &RemoteFile) -> String {
    let (found, proof) = (file.explain(), file.proof());
    let by_purpose =
        found.moved_bytes.iter().map(|(purpose, bytes)| (purpose.name().to_owned(), json!(bytes)));
    let by_purpose: Map<String, Value> = by_purpose.collect();
    json!({
        "policy": found.policy.name(),
        "size_bytes": file.size_bytes(),
        "version": file.version(),
        "round_trip_s": found.round_trip_s,
        "rate_bytes_per_s": found.rate_bytes_per_s,
        "element_s": found.element_s,
        "gap_bytes": found.gap_bytes,
        "calls": found.calls,
        "ranges": found.ranges,
        "hits": found.hits,
        "shared": found.shared,
        "requests": found.requests,
        "elements": found.elements,
        "connections": found.handshakes,
        "wanted_bytes": found.wanted_bytes,
        "delivered_bytes": found.delivered_bytes,
        "moved_bytes": found.moved_in_all(),
        "moved_for_bytes": by_purpose,
        "speculation": found.speculation(),
        "stall_s": found.stall.as_secs_f64(),
        "copied_after_s": found.bulk_after.map(|after| after.as_secs_f64()),
        "memory_bytes_most": found.memory_bytes_most,
        "failures": found.failures,
        "last_failure": found.last_failure,
        "verification": proof.name(),
        "explain": found.to_string(),
    })
    .to_string()
}

//! Answers about the service itself (fts3-rest 3.1, 3.2, 3.5).

use serde_json::{Map, Value, json};

use crate::date;

/// The answer to `GET /`: versions, those of the FTS3 whose words are spoken here.
pub fn versions() -> Value {
    json!({
        "delegation": {"major": 1, "minor": 0, "patch": 0},
        "api": {"major": 3, "minor": 14, "patch": 2},
        "core": {"major": "3", "minor": "14", "patch": "4"},
        "schema": {"major": 10, "minor": 0, "patch": 1, "message": concat!("gridlane ", env!("CARGO_PKG_VERSION"))},
        "_links": {
            "curies": [],
            "fts:whoami": {"href": "/whoami", "title": "Check user certificate"},
            "fts:joblist": {
                "href": "/jobs{?vo_name,user_dn,dlg_id,state_in}", "title": "List of active jobs", "templated": true,
            },
            "fts:job": {
                "href": "/jobs/{id}", "title": "Job information", "templated": true,
                "hints": {"allow": ["GET", "DELETE"]},
            },
            "fts:jobsubmit": {
                "href": "/jobs", "hints": {"allow": ["POST"], "representations": ["fts:submitschema"]},
            },
            "fts:submitschema": {"href": "/api-docs/schema/submit", "title": "JSON schema of messages"},
            "fts:apidocs": {"href": "/api-docs/", "title": "API Documentation"},
            "fts:configaudit": {"href": "/config/audit", "title": "Configuration"},
            "fts:optimizer": {"href": "/optimizer/", "title": "Optimizer"},
            "fts:archive": {"href": "/archive/", "title": "Archive"},
        },
    })
}

/// The answer to a client that cancels all jobs, or those of a VO.
pub fn affected(files: u64, jobs: u64) -> Value {
    json!({"affected_files": files, "affected_dm": 0, "affected_jobs": jobs})
}

/// A change of a setting: when (in seconds since 1970), the user, what was set, and the kind of change.
pub fn audit(at_s: i64, by: &str, config: &str, action: &str) -> Value {
    json!({"datetime": date::written(at_s), "dn": by, "config": config, "action": action})
}

/// The answer to a client that asks for the brokers: of each its name, files that it copies, files that it brings from tape.
pub fn hosts<'a>(hosts: impl IntoIterator<Item = (&'a str, u64, u64)>) -> Value {
    let host = |(name, active, staging): (&str, u64, u64)| {
        (name.to_owned(), json!({"active": active, "staging": staging}))
    };
    Value::Object(hosts.into_iter().map(host).collect::<Map<String, Value>>())
}

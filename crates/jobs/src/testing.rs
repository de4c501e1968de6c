//! Jobs for tests.

use std::collections::HashSet;

use serde_json::Value;

use crate::submission::{Rules, Submitter};
use crate::{Figures, Method, NewJob, Owner, Submission};

/// The job that a submission becomes, by Ada of dteam, on 2000-02-29.
pub(crate) fn submitted(body: &Value) -> NewJob {
    let owner =
        Owner { user_dn: "/CN=Ada".into(), vo: "dteam".into(), delegation_id: "0123456789abcdef".into() };
    let empty = HashSet::new();
    let rules = Rules {
        host: "broker.example",
        bans: &[],
        has_unique_destinations: false,
        has_automatic_reuse: false,
        unprepared_tokens: &empty,
        figures: &|_, _, _| Figures::default(),
    };
    let submission = Submission::parse(body.to_string().as_bytes()).unwrap();
    let submitter = Submitter { owner, method: Method::Certificate };
    submission.into_job(&submitter, 951_827_696, [7; 24], &rules).unwrap()
}

//! Submissions by the words of fts3-rest 4, 16 and 17, and any JSON at all.

use std::collections::HashSet;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use gridlane_core::Secret;
use gridlane_core::limits::{JOB_FILES_MAX, JOB_TIME_S_MAX, JOB_URL_BYTES_MAX};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::config::{Ban, BanEffect};
use crate::{
    Figures, File, FileState, JobKind, JobState, Link, Method, NewJob, Owner, Selection, Storage, Verify,
    place,
};

/// The examples of the reference, written by hand.
const EXAMPLES: [&str; 5] = [
    include_str!("../../tests/submissions/reference.json"),
    include_str!("../../tests/submissions/command-line.json"),
    include_str!("../../tests/submissions/bindings.json"),
    include_str!("../../tests/submissions/rucio.json"),
    include_str!("../../tests/submissions/dirac.json"),
];

const NOW_S: i64 = 1_800_000_000;

fn submitter() -> Submitter {
    let owner =
        Owner { user_dn: "/CN=Ada".into(), vo: "dteam".into(), delegation_id: "0123456789abcdef".into() };
    Submitter { owner, method: Method::Certificate }
}

/// A service without bans and figures.
fn rules<'a>(unprepared_tokens: &'a HashSet<String>) -> Rules<'a> {
    Rules {
        host: "broker.example.org",
        bans: &[],
        has_unique_destinations: false,
        has_automatic_reuse: false,
        unprepared_tokens,
        figures: &|_, _, _| Figures::default(),
    }
}

fn parse(body: &Value) -> Result<Submission, Refusal> {
    Submission::parse(body.to_string().as_bytes())
}

fn made(body: &Value) -> Result<NewJob, Refusal> {
    parse(body)?.into_job(&submitter(), NOW_S, [7; 24], &rules(&HashSet::new()))
}

/// A file from one storage to another, with other fields.
fn file(fields: Value) -> Value {
    let mut file = json!({"sources": ["davs://a.example/x"], "destinations": ["davs://b.example/x"]});
    if let (Some(file), Some(fields)) = (file.as_object_mut(), fields.as_object()) {
        file.extend(fields.clone());
    }
    file
}

fn one(fields: Value, params: Value) -> Value {
    json!({"files": [file(fields)], "params": params})
}

fn refused(body: &Value) -> (u16, String) {
    let refusal = made(body).expect_err(&body.to_string());
    (refusal.status, refusal.message)
}

fn refused_400(body: &Value) -> String {
    let (status, message) = refused(body);
    assert_eq!(status, 400, "{message}");
    message
}

fn states(job: &NewJob) -> Vec<FileState> {
    job.files.iter().map(|file| file.state).collect()
}

#[test]
fn the_examples_of_the_reference_become_jobs() {
    for example in EXAMPLES {
        let body: Value = serde_json::from_str(example).unwrap();
        let job = made(&body).unwrap();
        judge(&job);
        let pairs = |file: &Value| {
            file["sources"].as_array().unwrap().len() * file["destinations"].as_array().unwrap().len()
        };
        let expected: usize = body["files"].as_array().unwrap().iter().map(pairs).sum();
        assert_eq!(job.files.len(), expected, "{example}");
    }
}

#[test]
fn nulls_mean_the_defaults() {
    let command_line: Value = serde_json::from_str(EXAMPLES[1]).unwrap();
    let mut asked = parse(&command_line).unwrap();
    assert_eq!(asked.priority, 3);
    assert_eq!(asked.files.remove(0).checksum, "ADLER32");
    assert_eq!(asked.params, Params::default());
    let bindings: Value = serde_json::from_str(EXAMPLES[2]).unwrap();
    let asked = parse(&bindings).unwrap();
    let expected = Params { retry: -1, streams: Some(1), verify: Verify::Target, ..Params::default() };
    assert_eq!((asked.params, asked.files[0].selection), (expected, Selection::Auto));
    for name in [
        "verify_checksum",
        "overwrite",
        "overwrite_on_retry",
        "overwrite_hop",
        "overwrite_when_only_on_disk",
        "dst_file_report",
        "retry",
        "retry_delay",
        "priority",
        "multihop",
        "reuse",
        "bring_online",
        "copy_pin_lifetime",
        "archive_timeout",
        "timeout",
        "nostreams",
        "buffer_size",
        "strict_copy",
        "disable_cleanup",
        "ipv4",
        "ipv6",
        "s3alternate",
        "max_time_in_queue",
        "source_spacetoken",
        "destination_spacetoken",
        "job_metadata",
        "id_generator",
        "sid",
        "credential",
        "unmanaged_tokens",
        "gridftp",
        "target_qos",
        "account",
        "spacetoken",
        "fail_nearline",
    ] {
        let asked = parse(&one(json!({}), json!({name: null}))).unwrap();
        assert_eq!(asked.params, Params::default(), "{name}");
    }
    for name in [
        "checksum",
        "filesize",
        "metadata",
        "staging_metadata",
        "archive_metadata",
        "activity",
        "scitag",
        "selection_strategy",
        "source_tokens",
        "destination_tokens",
    ] {
        assert!(made(&one(json!({name: null}), Value::Null)).is_ok(), "{name}");
    }
}

#[test]
fn the_schema_has_every_field_that_is_read() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let of_files = &schema["properties"]["files"]["items"]["properties"];
    let of_params = &schema["properties"]["params"]["properties"];
    for example in EXAMPLES {
        let body: Value = serde_json::from_str(example).unwrap();
        for name in body["files"][0].as_object().unwrap().keys() {
            assert!(of_files.get(name).is_some(), "{name}");
        }
    }
    // A name that is read says so when its value is of a type that it cannot have.
    for name in of_params.as_object().unwrap().keys() {
        let odd = if name == "sid" {
            json!({"id_generator": "deterministic", name: []})
        } else {
            json!({name: [[]]})
        };
        let is_text_or_number = !["flags", "times"].contains(&match name.as_str() {
            "bring_online" | "copy_pin_lifetime" | "archive_timeout" | "max_time_in_queue"
            | "id_generator" => "times",
            name if of_params[name]["type"]
                .to_string()
                .starts_with("[\"boolean\",\"string\",\"integer\"") =>
            {
                "flags"
            }
            _ => "",
        });
        assert_eq!(made(&one(json!({}), odd)).is_err(), is_text_or_number, "{name}");
    }
}

#[test]
fn a_job_has_what_was_asked_for() {
    let mut body: Value = serde_json::from_str(EXAMPLES[0]).unwrap();
    body["params"] = json!({
        "verify_checksum": true, "overwrite_on_retry": "Y", "retry": "3", "retry_delay": 10, "priority": 9, "timeout": 3600,
        "nostreams": 4, "buffer_size": 1_048_576, "strict_copy": 1, "disable_cleanup": true, "ipv6": true, "s3alternate": true,
        "max_time_in_queue": "2h", "source_spacetoken": "S", "job_metadata": "words",
    });
    let NewJob { job, files, has_unique_destinations } = made(&body).unwrap();
    assert_eq!((job.kind, job.state, job.priority), (JobKind::Plain, JobState::Submitted, 5));
    assert_eq!((job.submitted_s, job.expires_s), (NOW_S, Some(NOW_S + 7200)));
    assert_eq!(job.metadata, Some(json!({"label": "words", "auth_method": "certificate"})));
    let expected = Params {
        verify: Verify::Both,
        overwrite: Overwrite::OnRetry,
        retry: 3,
        retry_delay_s: 10,
        timeout_s: Some(3600),
        streams: Some(4),
        buffer_size_bytes: Some(1_048_576),
        strict_copy: true,
        disable_cleanup: true,
        family: Some(Family::V6),
        s3_alternate: true,
        source_spacetoken: "S".into(),
        ..Params::default()
    };
    assert_eq!(job.params, expected);
    assert!(!has_unique_destinations);
    let file = &files[0];
    assert_eq!((file.state, file.priority, file.index), (FileState::Submitted, 5, 0));
    assert_eq!((file.user_size_bytes, file.scitag, &*file.checksum), (1024, Some(65), "ADLER32:1a2b3c4d"));
    assert_eq!(file.link, Link { source: "davs://a".into(), destination: "davs://b".into() });
    assert_eq!((&file.metadata, &*file.vo), (&Some(json!({})), "dteam"));
}

#[test]
fn checksums_are_compared_by_word_by_flag_and_by_what_is_given() {
    let verify = |checksum: Value, value: Value| {
        parse(&one(json!({"checksum": checksum}), json!({"verify_checksum": value}))).unwrap().params.verify
    };
    let value = || json!("adler32:1234");
    assert_eq!(verify(value(), json!(false)), Verify::Target);
    assert_eq!(verify(json!("ADLER32"), json!(false)), Verify::None);
    assert_eq!(verify(json!("ADLER32:"), Value::Null), Verify::None);
    assert_eq!(verify(Value::Null, json!(true)), Verify::Both);
    for (word, verified) in
        [("source", Verify::Source), ("t", Verify::Target), ("Both", Verify::Both), ("none", Verify::None)]
    {
        assert_eq!(verify(value(), json!(word)), verified);
    }
    assert!(refused_400(&one(json!({}), json!({"verify_checksum": "x"}))).starts_with("Invalid value"));
}

#[test]
fn flags_of_overwriting_go_together_or_not() {
    let overwrite = |params: Value| parse(&one(json!({}), params)).map(|asked| asked.params.overwrite);
    assert_eq!(overwrite(json!({"overwrite": true})), Ok(Overwrite::Always));
    assert_eq!(overwrite(json!({"overwrite": "N", "overwrite_on_retry": 1})), Ok(Overwrite::OnRetry));
    assert_eq!(overwrite(json!({"overwrite_hop": true, "multihop": true})), Ok(Overwrite::Hops));
    let on_disk = json!({"overwrite_when_only_on_disk": true, "archive_timeout": 60});
    assert_eq!(overwrite(on_disk), Ok(Overwrite::OnlyOnDisk));
    let both = json!({"overwrite_when_only_on_disk": true, "overwrite_hop": true, "archive_timeout": 60, "multihop": true});
    assert_eq!(overwrite(both), Ok(Overwrite::HopsAndOnlyOnDisk));
    for (params, message) in [
        (
            json!({"overwrite": true, "overwrite_on_retry": true}),
            "Incompatible overwrite flags used at the same time",
        ),
        (
            json!({"overwrite_when_only_on_disk": true}),
            "'overwrite-when-only-on-disk' requires 'archive-timeout' to be set",
        ),
        (json!({"overwrite_hop": true}), "'overwrite-hop' requires multihop job submission"),
    ] {
        assert_eq!(overwrite(params).unwrap_err(), Refusal::bad(message));
    }
    let params = json!({"overwrite_when_only_on_disk": true, "archive_timeout": 60});
    let by_root = one(json!({"destinations": ["root://b.example//x"]}), params.clone());
    assert!(refused_400(&by_root).contains("requires destination to be HTTPs endpoint"));
    let hops = |last: &str| {
        let mut params = params.clone();
        params["multihop"] = json!(true);
        json!({"files": [file(json!({"destinations": ["root://b.example//x"]})), file(json!({"destinations": [last]}))], "params": params})
    };
    assert!(made(&hops("https://c.example/x")).is_ok(), "only the last hop's destination matters");
    assert!(refused_400(&hops("root://c.example//x")).contains("HTTPs"));
}

#[test]
fn refusals_are_those_of_fts3() {
    for (body, status, message) in [
        (json!([]), 400, "Expecting a dictionary"),
        (json!({"parameters": {}}), 400, "No transfers operations specified"),
        (json!({"files": null}), 400, "No transfers operations specified"),
        (json!({"files": []}), 400, "No valid pairs available"),
        (json!({"files": [], "delete": ["davs://a/x"]}), 405, "Deletion jobs are no longer supported by FTS"),
        (json!({"files": [{"destinations": ["root://dest.ch/file"]}]}), 400, "Missing parameter: 'sources'"),
        (json!({"files": [{"sources": ["root://dest.ch/file"]}]}), 400, "Missing parameter: 'destinations'"),
        (one(json!({"sources": []}), json!({})), 400, "No valid pairs available"),
        (
            one(json!({"metadata": 3}), json!({})),
            400,
            "Invalid value within the request: Metadata neither JSON nor String",
        ),
        (
            one(json!({"staging_metadata": "x"}), json!({})),
            400,
            "Invalid value within the request: Staging metadata not in JSON format",
        ),
        (
            one(json!({"archive_metadata": "x"}), json!({})),
            400,
            "Invalid value within the request: Archive metadata not in JSON format",
        ),
        (
            one(json!({"metadata": "x".repeat(5000)}), json!({})),
            400,
            "Invalid value within the request: Job Submission Refused, metadata exceeds size limit of 4096",
        ),
        (
            one(json!({"scitag": 64}), json!({})),
            400,
            "Invalid value within the request: Invalid SciTag value: 64 (not in [65, 65535] range)",
        ),
        (
            one(json!({"scitag": "x"}), json!({})),
            400,
            "Invalid value within the request: Invalid SciTag value: \"x\". Must be an integer in the [65, 65535] range!",
        ),
        (
            one(json!({"sources": ["davs://a/1", "davs://b/1"], "selection_strategy": "best"}), json!({})),
            400,
            "best algorithm is not supported by Scheduler",
        ),
        (
            one(json!({}), json!({"id_generator": "deterministic"})),
            400,
            "Need sid for deterministic job id generation",
        ),
    ] {
        assert_eq!(refused(&body), (status, message.to_owned()), "{body}");
    }
    for body in [
        json!({"files": 48}),
        json!({"files": [48]}),
        json!({"files": [], "params": 1}),
        one(json!({"sources": "x"}), json!({})),
    ] {
        assert!(refused_400(&body).starts_with("Malformed request"), "{body}");
    }
    for (name, value) in [
        ("timeout", "this-is-a-string"),
        ("nostreams", "x"),
        ("buffer_size", "y"),
        ("retry", "z"),
        ("priority", ""),
    ] {
        let message = refused_400(&one(json!({}), json!({name: value})));
        assert!(message.starts_with("Invalid value within the request"), "{name}: {message}");
    }
    assert!(made(&one(json!({"selection_strategy": "best"}), json!({}))).is_ok(), "one source is no choice");
}

#[test]
fn times_in_the_queue_have_units() {
    let queue =
        |value: Value| parse(&one(json!({}), json!({"max_time_in_queue": value}))).unwrap().queue_max_s;
    for (value, seconds) in [
        (json!(2), Some(7200)),
        (json!("30s"), Some(30)),
        (json!("10m"), Some(600)),
        (json!("2H"), Some(7200)),
        (json!("1d"), Some(86_400)),
        (json!(0), None),
        (json!(-1), None),
        (json!("-5m"), None),
        (json!("7"), None),
        (json!(""), None),
        (json!("9é"), None),
        (json!(true), None),
        (json!(i64::MAX), Some(JOB_TIME_S_MAX)),
        (json!("9223372036854775807d"), Some(JOB_TIME_S_MAX)),
    ] {
        assert_eq!(queue(value.clone()), seconds, "{value}");
    }
}

#[test]
fn sizes_have_many_forms() {
    let size = |value: Value| {
        parse(&one(json!({"filesize": value}), json!({}))).map(|asked| asked.files[0].size_bytes)
    };
    for (value, bytes) in
        [(json!(1024), 1024), (json!("7"), 7), (json!(7.9), 7), (json!("1e3"), 1000), (json!(-1), 0)]
    {
        assert_eq!(size(value.clone()), Ok(bytes), "{value}");
    }
    for value in
        [json!("x"), json!({}), json!(true), json!(u64::MAX), json!(1e300), json!("inf"), json!("nan")]
    {
        assert_eq!(size(value.clone()).unwrap_err().status, 400, "{value}");
    }
}

#[test]
fn texts_that_no_store_or_page_should_have_are_refused() {
    for fields in [
        json!({"activity": "a\u{0}b"}),
        json!({"activity": "x".repeat(300)}),
        json!({"checksum": "ADLER32:1\n2"}),
        json!({"checksum": 5}),
        json!({"sources": [format!("https://a/{}", "x".repeat(JOB_URL_BYTES_MAX))]}),
        json!({"source_tokens": ["a\r\nX: y"], "destination_tokens": ["b"]}),
    ] {
        refused_400(&one(fields, json!({})));
    }
    refused_400(&one(json!({}), json!({"source_spacetoken": "a\u{202e}"})));
    refused_400(&one(json!({}), json!({"id_generator": "deterministic", "sid": "x".repeat(300)})));
    let quotes = made(&one(json!({"activity": "'; DROP TABLE t_file; --"}), json!({}))).unwrap();
    assert_eq!(quotes.files[0].activity, "'; DROP TABLE t_file; --");
}

#[test]
fn a_job_of_too_many_files_is_refused() {
    let urls = |count: usize| (0..count).map(|number| format!("davs://a/{number}")).collect::<Vec<_>>();
    refused_400(&one(json!({"sources": urls(17), "destinations": urls(16)}), json!({})));
    let files = vec![json!({"sources": ["davs://a/x"], "destinations": ["davs://b/x"]}); JOB_FILES_MAX + 1];
    let mut body = json!({"files": files});
    refused_400(&body);
    body["files"].as_array_mut().unwrap().pop();
    assert_eq!(made(&body).unwrap().files.len(), JOB_FILES_MAX);
}

#[test]
fn replicas_are_one_file_of_which_one_begins() {
    let body = one(json!({"sources": ["davs://a/x", "davs://c/x", "davs://d/x"]}), json!({}));
    let job = made(&body).unwrap();
    assert_eq!(job.job.kind, JobKind::Replicas);
    assert_eq!(states(&job), [FileState::Submitted, FileState::NotUsed, FileState::NotUsed]);
    assert!(job.files.iter().all(|file| file.index == 0 && file.hashed_id == job.files[0].hashed_id));
    assert_eq!((job.job.source_se, job.job.dest_se), (None, Some("davs://b.example".into())));
    let queues = |link: &Link, vo: &str, activity: &str| {
        assert_eq!((vo, activity, &*link.destination.0), ("dteam", "default", "davs://b.example"));
        Figures { waiting: if &*link.source.0 == "davs://c" { 1 } else { 2 }, ..Figures::default() }
    };
    let empty = HashSet::new();
    let rules = Rules { figures: &queues, ..rules(&empty) };
    let chosen = parse(&body).unwrap().into_job(&submitter(), NOW_S, [7; 24], &rules).unwrap();
    assert_eq!(states(&chosen), [FileState::NotUsed, FileState::Submitted, FileState::NotUsed]);

    let two = json!({"files": [file(json!({"sources": ["davs://a/x", "davs://c/x"]})), file(json!({}))]});
    assert_eq!(refused_400(&two), "Multiple replica jobs must only have one unique file");
    let hops = one(json!({"sources": ["davs://a/x", "davs://c/x"]}), json!({"multihop": true}));
    assert!(refused_400(&hops).starts_with("Can not request multiple replica job together with multihop"));
    let tape =
        made(&one(json!({"sources": ["davs://a/x", "davs://c/x"]}), json!({"bring_online": 60}))).unwrap();
    assert_eq!(states(&tape), [FileState::Staging, FileState::NotUsed]);
    assert_eq!(tape.files[1].initial_state, FileState::Staging);
}

#[test]
fn hops_begin_with_the_first() {
    let hop = |from: &str, to: &str| json!({"sources": [from], "destinations": [to]});
    let hops = |params: Value| json!({"files": [hop("davs://a/x", "davs://b/x"), hop("davs://b/x", "davs://c/x")], "params": params});
    let job = made(&hops(json!({"multihop": true, "reuse": true}))).unwrap();
    assert_eq!(job.job.kind, JobKind::Multihop);
    assert_eq!(states(&job), [FileState::Submitted, FileState::NotUsed]);
    assert_eq!((job.job.source_se, job.job.dest_se), (Some("davs://a".into()), Some("davs://c".into())));
    assert_eq!((job.files[1].index, job.files[0].hashed_id), (1, job.files[1].hashed_id));
    let tape = made(&hops(json!({"multihop": true, "copy_pin_lifetime": 3600}))).unwrap();
    assert_eq!(
        (tape.job.state, states(&tape)),
        (JobState::Staging, vec![FileState::Staging, FileState::NotUsed])
    );
    assert_eq!(tape.files[1].initial_state, FileState::Submitted, "what a hop has made is on disk");
}

#[test]
fn one_session_is_for_one_link() {
    let far = file(json!({"sources": ["davs://elsewhere/x"]}));
    let reuse = json!({"files": [file(json!({})), file(json!({}))], "params": {"reuse": true}});
    let job = made(&reuse).unwrap();
    assert_eq!((job.job.kind, job.files[0].hashed_id), (JobKind::Reuse, job.files[1].hashed_id));
    let two = json!({"files": [file(json!({})), far], "params": {"reuse": true}});
    let message = "Reuse jobs must only contain transfers for the same source ad destination storage";
    assert_eq!(refused_400(&two), message);

    let empty = HashSet::new();
    let automatic = Rules { has_automatic_reuse: true, ..rules(&empty) };
    let kind = |sizes: &[u64], params: Value| {
        let files: Vec<Value> = sizes.iter().map(|size| file(json!({"filesize": size}))).collect();
        let body = json!({"files": files, "params": params});
        parse(&body).unwrap().into_job(&submitter(), NOW_S, [7; 24], &automatic).unwrap().job.kind
    };
    let (small, large) = (100 << 20, 1 << 30);
    assert_eq!(kind(&[small; 5], json!({})), JobKind::Reuse);
    assert_eq!(kind(&[small, small, small, large, large], json!({})), JobKind::Reuse);
    assert_eq!(kind(&[small; 4], json!({})), JobKind::Plain);
    assert_eq!(kind(&[small, small, large, large, large], json!({})), JobKind::Plain);
    assert_eq!(kind(&[small, small, small, small, 0], json!({})), JobKind::Plain, "a size is not known");
    assert_eq!(kind(&[small; 5], json!({"bring_online": 5})), JobKind::Plain);
    assert_eq!(kind(&[small; 5], json!({"multihop": true})), JobKind::Multihop);
}

fn ban(storage: &str, vo: &str, effect: BanEffect) -> Ban {
    Ban {
        storage: storage.into(),
        vo: vo.into(),
        effect,
        since_s: 0,
        by: "/CN=Bob".into(),
        message: String::new(),
    }
}

#[test]
fn banned_storages_refuse_or_hold() {
    let made = |bans: &[Ban], params: Value| {
        let empty = HashSet::new();
        let rules = Rules { bans, ..rules(&empty) };
        parse(&one(json!({}), params)).unwrap().into_job(&submitter(), NOW_S, [7; 24], &rules)
    };
    for effect in [BanEffect::Cancel, BanEffect::Wait] {
        let refusal = made(&[ban("davs://b.example", "dteam", effect)], json!({})).unwrap_err();
        assert_eq!((refusal.status, &*refusal.message), (403, "davs://b.example is banned"));
    }
    let held = [ban("davs://a.example", "*", BanEffect::WaitButSubmit)];
    assert_eq!(states(&made(&held, json!({})).unwrap()), [FileState::OnHold]);
    assert_eq!(states(&made(&held, json!({"bring_online": 9})).unwrap()), [FileState::OnHoldStaging]);
    let other =
        [ban("davs://a.example", "atlas", BanEffect::Cancel), ban("davs://z", "*", BanEffect::Cancel)];
    assert_eq!(states(&made(&other, json!({})).unwrap()), [FileState::Submitted]);
    let both = [held[0].clone(), ban("davs://a.example", "dteam", BanEffect::Wait)];
    assert_eq!(made(&both, json!({})).unwrap_err().status, 403, "one VO's ban does not hide that of all");
}

#[test]
fn ids_are_random_or_computed() {
    let body = one(json!({}), json!({"id_generator": "deterministic", "sid": "request-1"}));
    let job = made(&body).unwrap();
    // python3 -c 'import uuid; b=uuid.UUID("01874efb-4735-4595-bc9c-591aef8240c9"); print(uuid.uuid5(uuid.uuid5(b,"dteam"),"request-1"))'
    assert_eq!(job.job.id.to_string(), "39f1eae8-0d9a-5fc7-8b35-2e1ff1f38a1e");
    let plain = made(&one(json!({}), json!({"sid": "request-1"}))).unwrap();
    assert_eq!((plain.job.id.0.get_version_num(), plain.job.id), (4, plain.files[0].job));
    let other = parse(&one(json!({}), json!({}))).unwrap();
    let other = other.into_job(&submitter(), NOW_S, [8; 24], &rules(&HashSet::new())).unwrap();
    assert_ne!(plain.job.id, other.job.id);
    let files = vec![file(json!({})); 1000];
    let many = made(&json!({"files": files})).unwrap();
    let distinct: HashSet<u16> = many.files.iter().map(|file| file.hashed_id).collect();
    assert!(distinct.len() > 900, "shared out: {}", distinct.len());
}

fn token(claims: &Value) -> String {
    let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.c2ln", part(&json!({"alg": "ES256"})), part(claims))
}

fn claims() -> Value {
    json!({"iss": "https://iam.example", "exp": NOW_S + 3600, "scope": "storage.read:/ offline_access", "aud": ["a", "b"]})
}

#[test]
fn tokens_are_for_all_places_or_for_none() {
    let (one_token, other_token) =
        (token(&claims()), token(&json!({"iss": "https://x/", "exp": 1, "scope": ""})));
    let with = |sources: Value, destinations: Value| {
        one(json!({"source_tokens": sources, "destination_tokens": destinations}), json!({}))
    };
    let asked = parse(&with(json!([one_token]), json!([other_token]))).unwrap();
    let tokens = asked.tokens().unwrap();
    let first = &tokens[0];
    assert_eq!(
        (&*first.issuer, first.ends_s, first.audience.as_deref()),
        ("https://iam.example/", NOW_S + 3600, Some("a b"))
    );
    assert_eq!((&*first.scope, first.id.len()), ("storage.read:/ offline_access", 16));
    assert_eq!(tokens.len(), 2);
    assert!(!format!("{asked:?}").contains(&one_token), "a token is not printed");

    let unprepared = HashSet::from([tokens[1].id.clone()]);
    let job = asked.into_job(&submitter(), NOW_S, [7; 24], &rules(&unprepared)).unwrap();
    assert_eq!(
        (job.files[0].state, job.files[0].initial_state),
        (FileState::TokenPrep, FileState::Submitted)
    );
    assert_eq!(job.files[0].tokens, Some((tokens[0].id.clone(), tokens[1].id.clone())));
    // A ban that holds it now may be over when the token is there.
    let held = [ban("davs://a.example", "*", BanEffect::WaitButSubmit)];
    let rules = Rules { bans: &held, ..rules(&unprepared) };
    let again = parse(&with(json!([one_token]), json!([other_token]))).unwrap();
    let job = again.into_job(&submitter(), NOW_S, [7; 24], &rules).unwrap();
    assert_eq!(
        (job.files[0].state, job.files[0].initial_state),
        (FileState::TokenPrep, FileState::Submitted)
    );

    let both = "Both source_tokens and destination_tokens are required if one of them is present.";
    for (sources, destinations, message) in [
        (json!([one_token]), json!(null), both),
        (json!([]), json!([one_token]), both),
        (
            json!([one_token, one_token]),
            json!([one_token]),
            "Length of source_tokens should be equal to the length of sources.",
        ),
        (json!([one_token]), json!([""]), "Token for destination 'davs://b.example/x' is missing."),
        (json!([null]), json!([one_token]), "Token for source 'davs://a.example/x' is missing."),
    ] {
        assert_eq!(refused_400(&with(sources, destinations)), message);
    }
    assert!(refused_400(&with(json!([1]), json!([one_token]))).starts_with("Source token is not a string"));
}

#[test]
fn the_token_of_the_request_is_lent_where_there_is_none() {
    let mut asked = parse(&one(json!({}), json!({}))).unwrap();
    asked.lend(Secret::new(token(&claims())));
    assert_eq!(asked.tokens().unwrap().len(), 1);
    let own = json!({"source_tokens": [token(&claims())], "destination_tokens": [token(&claims())]});
    let mut asked = parse(&one(own, json!({}))).unwrap();
    asked.lend(Secret::new("another"));
    assert_eq!(asked.tokens().unwrap()[0].issuer, "https://iam.example/");
}

#[test]
fn tokens_say_who_issued_them_until_when_and_for_what() {
    let refused = |token: String| {
        let mut asked = parse(&one(json!({}), json!({}))).unwrap();
        asked.lend(Secret::new(token));
        asked.tokens().unwrap_err().message
    };
    let without = |name: &str| {
        let mut claims = claims();
        claims.as_object_mut().unwrap().remove(name);
        refused(token(&claims))
    };
    assert_eq!(without("iss"), "Token does not contain an iss claim");
    assert_eq!(without("exp"), "Token does not contain an exp claim");
    assert_eq!(without("scope"), "Token does not contain a scope claim");
    assert_eq!(refused("opaque".into()), "Token does not contain an iss claim");
    let mut odd = claims();
    odd["aud"] = json!(5);
    assert_eq!(refused(token(&odd)), "Token audience must be a null, string or list of strings");
}

/// What holds for every job that is made.
fn judge(made: &NewJob) {
    let NewJob { job, files, .. } = made;
    assert!(!files.is_empty() && files.len() <= JOB_FILES_MAX);
    assert!((1..=5).contains(&job.priority));
    assert!(job.expires_s.is_none_or(|expires_s| expires_s > job.submitted_s));
    let runs = |file: &&File| file.state != FileState::NotUsed;
    match job.kind {
        JobKind::Replicas => {
            assert_eq!(files.iter().filter(runs).count(), 1);
            assert!(files.len() > 1 && files.iter().all(|file| file.index == 0));
        }
        JobKind::Multihop => {
            assert_eq!(files.iter().filter(runs).count(), 1);
            assert!(runs(&&files[0]));
        }
        JobKind::Plain | JobKind::Reuse => assert!(files.iter().all(|file| runs(&file))),
    }
    if job.kind != JobKind::Replicas {
        assert!(files.iter().enumerate().all(|(place, file)| file.index as usize == place));
    }
    for file in files {
        assert_eq!((file.job, &file.vo, file.priority), (job.id, &job.owner.vo, job.priority));
        for (url, storage) in [(&file.source, &file.link.source), (&file.destination, &file.link.destination)]
        {
            assert!(url.len() <= JOB_URL_BYTES_MAX && !url.starts_with("file:"));
            assert_eq!(place::parse(url).map(|(_, _, storage)| storage).as_ref(), Ok(storage));
        }
        assert!(!file.activity.is_empty() && !file.checksum.is_empty());
        assert!(file.metadata.as_ref().is_none_or(Value::is_object));
        assert!(i64::try_from(file.user_size_bytes).is_ok());
        let is_staging = job.state == JobState::Staging;
        assert!(is_staging || !matches!(file.state, FileState::Staging | FileState::OnHoldStaging));
    }
    assert!(job.metadata.as_ref().is_some_and(|metadata| metadata["auth_method"] == "certificate"));
    if let (Some(source), JobKind::Plain | JobKind::Reuse) = (&job.source_se, job.kind) {
        assert!(files.iter().all(|file| &file.link.source == source));
    }
    assert_eq!(Storage::from(&*files[0].link.source.0), files[0].link.source);
}

/// Any JSON, with words of submissions here and there.
fn json_like() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "davs://a/x",
        "root://b//y?z",
        "file:///x",
        "Y",
        "n",
        "-1",
        "7",
        "1d",
        "",
        "ADLER32:1",
        "orderly",
        "deterministic",
        "\u{0}",
        "é",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        prop_oneof![Just(0), Just(1), Just(-1), any::<i64>()].prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        words.prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let names = prop::sample::select(vec!["a", "label", "files", "sources", "\u{7f}"]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((names, inner), 0..4).prop_map(|members| Value::Object(
                members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            )),
        ]
    })
}

/// A submission that is right but for some fields.
fn nearly_right() -> impl Strategy<Value = Value> {
    let file_fields = prop::sample::select(vec![
        "sources",
        "destinations",
        "checksum",
        "filesize",
        "metadata",
        "staging_metadata",
        "archive_metadata",
        "activity",
        "scitag",
        "selection_strategy",
        "source_tokens",
        "destination_tokens",
    ]);
    let param_fields = prop::sample::select(vec![
        "verify_checksum",
        "overwrite",
        "overwrite_on_retry",
        "overwrite_hop",
        "overwrite_when_only_on_disk",
        "retry",
        "retry_delay",
        "priority",
        "multihop",
        "reuse",
        "bring_online",
        "copy_pin_lifetime",
        "archive_timeout",
        "timeout",
        "nostreams",
        "buffer_size",
        "ipv4",
        "max_time_in_queue",
        "job_metadata",
        "id_generator",
        "sid",
        "source_spacetoken",
    ]);
    let sources = prop::collection::vec(
        prop::sample::select(vec!["davs://a/x", "root://b:1094//y", "s3://c/z "]),
        1..3,
    );
    let files = prop::collection::vec(
        (sources, prop::collection::vec((file_fields, json_like()), 0..2)).prop_map(|(sources, odd)| {
            let mut file = file(json!({"sources": sources}));
            for (name, value) in odd {
                file[name] = value;
            }
            file
        }),
        1..4,
    );
    let flags = prop::sample::select(vec!["multihop", "reuse", "none"]);
    (files, flags, prop::collection::vec((param_fields, json_like()), 0..3)).prop_map(|(files, flag, odd)| {
        let mut params = json!({flag: true});
        for (name, value) in odd {
            params[name] = value;
        }
        json!({"files": files, "params": params})
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_json_is_refused_or_becomes_a_job(body in prop_oneof![1 => json_like(), 4 => nearly_right()]) {
        match made(&body) {
            Ok(job) => judge(&job),
            Err(refusal) => {
                prop_assert!((400..500).contains(&refusal.status), "{refusal}");
                prop_assert!(!refusal.message.is_empty());
                prop_assert!(!refusal.message.chars().any(gridlane_core::text::is_unprintable));
            }
        }
    }

    #[test]
    fn any_bytes_are_refused_or_read(body in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Err(refusal) = Submission::parse(&body) {
            prop_assert!((400..500).contains(&refusal.status));
        }
    }
}

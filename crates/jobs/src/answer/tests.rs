//! Answers by the words of fts3-rest 3.3, 5, 16 and 17.

use super::*;
use crate::testing::submitted;
use crate::{FileId, Refusal};

/// A job of one file, with wishes, and its file as it is after a copy that failed.
fn made() -> (Job, File) {
    let body = json!({
        "files": [{
            "sources": ["davs://a.example:443/x"], "destinations": ["davs://b.example/x"], "checksum": "ADLER32:1a2b3c4d",
            "filesize": 10, "metadata": {"request_id": "r1", "nested": [1, null]}, "activity": "Production", "scitag": 66,
        }],
        "params": {
            "overwrite": true, "nostreams": 4, "timeout": 3600, "buffer_size": 1_048_576, "strict_copy": true,
            "disable_cleanup": true, "ipv6": true, "s3alternate": true, "bring_online": 60, "max_time_in_queue": 1,
            "job_metadata": {"issuer": "rucio"},
        },
    });
    let mut new = submitted(&body);
    (new.job, new.files.remove(0))
}

#[test]
fn a_job_has_every_field_and_its_type() {
    let (made, _) = made();
    let answer = job(&made);
    assert_eq!(answer.len(), JOB_FIELDS.len());
    let expected = json!({
        "job_id": made.id.to_string(), "job_state": "STAGING", "job_type": "N", "source_se": "davs://a.example",
        "dest_se": "davs://b.example", "user_dn": "/CN=Ada", "cred_id": "0123456789abcdef", "vo_name": "dteam", "reason": null,
        "submit_time": "2000-02-29T12:34:56", "job_finished": null, "priority": 3, "submit_host": "broker.example",
        "cancel_job": false, "max_time_in_queue": 951_831_296, "source_spacetoken": "", "destination_spacetoken": "",
        "internal_job_params": "nostreams:4,timeout:3600,buffersize:1048576,strict,disable-cleanup,ipv6,s3alternate",
        "overwrite_flag": "Y", "dst_file_report": false, "copy_pin_lifetime": -1, "verify_checksum": "t", "bring_online": 60,
        "archive_timeout": -1, "target_qos": null, "job_metadata": {"issuer": "rucio", "auth_method": "certificate"}, "retry": 0,
        "retry_delay": 0, "os_project_id": null,
    });
    assert_eq!(Value::Object(answer), expected);
    assert_eq!(internal_job_params(&Params::default()), None);
    assert_eq!(job_field(&made, "nonsense"), None);
    assert_eq!(Value::Object(job_with(&made, &["vo_name", "nonsense"])), json!({"vo_name": "dteam"}));
}

#[test]
fn a_file_has_every_field_and_its_type() {
    let (_, mut made) = made();
    let waiting = file(&made);
    assert_eq!(waiting.len(), FILE_FIELDS.len());
    for name in [
        "start_time",
        "finish_time",
        "tx_duration",
        "throughput",
        "reason",
        "recoverable",
        "filesize",
        "transfer_host",
    ] {
        assert_eq!(waiting[name], Value::Null, "{name}");
    }
    made.id = FileId(17);
    made.state = FileState::Failed;
    made.stamps.started_s = Some(951_827_696);
    made.stamps.finished_s = Some(951_827_700);
    made.size_bytes = Some(10);
    made.throughput_bytes_per_s = 3.0 * 1_048_576.0;
    made.duration_s = 4.0;
    made.attempts = 2;
    made.is_recoverable = Some(false);
    made.reason = Some("SOURCE [2] No such file or directory".into());
    made.tokens = Some(("aa".into(), "bb".into()));
    let mut expected = json!({
        "file_id": 17, "file_index": 0, "hashed_id": made.hashed_id, "job_id": made.job.to_string(), "dest_surl_uuid": null,
        "vo_name": "dteam", "source_se": "davs://a.example", "dest_se": "davs://b.example",
        "source_surl": "davs://a.example:443/x", "dest_surl": "davs://b.example/x", "priority": 3, "file_state": "FAILED",
        "file_state_initial": "", "transfer_host": null, "staging_host": null, "reason": "SOURCE [2] No such file or directory",
        "recoverable": false, "filesize": 10, "user_filesize": 10, "checksum": "ADLER32:1a2b3c4d"
    });
    let more = json!({
        "start_time": "2000-02-29T12:34:56", "finish_time": "2000-02-29T12:35:00", "staging_start": null,
        "staging_finished": null, "archive_start_time": null, "archive_finish_time": null, "internal_file_params": null,
        "pid": null, "tx_duration": 4.0, "throughput": 3.0, "retry": 2,
        "file_metadata": {"request_id": "r1", "nested": [1, null]}, "staging_metadata": null, "archive_metadata": null,
        "selection_strategy": "auto", "bringonline_token": null, "log_file": null, "log_debug": null, "activity": "Production",
        "scitag": 66, "src_token_id": "aa", "dst_token_id": "bb",
    });
    expected.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    assert_eq!(Value::Object(file(&made)), expected);
    let asked = ["file_state", "dest_surl", "staging_start", "nonsense", "file_metadata"];
    assert_eq!(file_with(&made, &asked).len(), 4);
}

#[test]
fn attempts_are_counted_from_one() {
    let failed =
        Attempt { file: FileId(17), number: 0, ended_s: 0, reason: "x".into(), transfer_host: "h".into() };
    let expected = json!({
        "file_id": 17, "attempt": 1, "datetime": "1970-01-01T00:00:00", "reason": "x", "transfer_host": "h", "log_file": null,
    });
    assert_eq!(attempt(&failed), expected);
}

#[test]
fn one_job_is_an_object_and_several_are_a_list() {
    let job = || Map::from_iter([("job_id".to_owned(), json!("a"))]);
    let missing = || Item::Refused("b".into(), Refusal::no_such_job("b"));
    let not_there = json!({
        "job_id": "b", "http_status": "404 Not Found", "http_message": "No job with the id \"b\" has been found",
    });
    let reply = |items: Vec<Item>, is_list| {
        let Reply { status, body } = about(items, is_list);
        (status, body)
    };
    let found = json!({"job_id": "a", "http_status": "200 Ok"});
    assert_eq!(reply(vec![Item::Found(job())], false), (200, found.clone()));
    assert_eq!(reply(vec![missing()], false), (404, not_there.clone()));
    assert_eq!(reply(vec![Item::Found(job()), missing()], true), (207, json!([found, not_there])));
    assert_eq!(reply(vec![Item::Found(job())], true), (200, json!([found])));
    let changed = json!({"job_id": "a", "http_status": "200 Ok", "http_message": null});
    let ended = json!({
        "job_id": "a", "http_status": "304 Not Modified", "http_message": "The job is in a terminal state",
    });
    assert_eq!(reply(vec![Item::Final(job())], false), (200, ended.clone()));
    assert_eq!(reply(vec![Item::Changed(job()), Item::Final(job())], true), (200, json!([changed, ended])));
}

#[test]
fn ids_come_in_the_path() {
    assert_eq!(ids("a").unwrap(), (vec!["a"], false));
    assert_eq!(ids("a,b,").unwrap(), (vec!["a", "b"], true));
    assert_eq!(ids(",").unwrap_err().status, 404);
    assert_eq!(ids(&"a,".repeat(1001)).unwrap_err().status, 400);
    assert!(ids(&"a,".repeat(1000)).is_ok());
}

#[test]
fn files_that_are_cancelled_have_their_states() {
    assert_eq!(canceled_files(vec![Some("CANCELED")]), json!("CANCELED"));
    assert_eq!(
        canceled_files(vec![Some("FINISHED"), None]),
        json!(["FINISHED", "File does not belong to the job"])
    );
}

#[test]
fn the_service_names_versions_that_clients_compare() {
    let versions = versions();
    for name in ["major", "minor", "patch"] {
        assert!(versions["api"][name].is_u64() && versions["core"][name].is_string());
    }
    assert!(versions["schema"]["major"].as_u64() >= Some(8));
    assert_eq!(hosts([("h", 1, 2)]), json!({"h": {"active": 1, "staging": 2}}));
    assert_eq!(affected(3, 2), json!({"affected_files": 3, "affected_dm": 0, "affected_jobs": 2}));
    assert_eq!(audit(0, "/CN=Ada", "c", "a")["datetime"], "1970-01-01T00:00:00");
}

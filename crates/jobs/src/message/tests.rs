//! Messages by the words of fts3-rest 14 and 17.

use super::*;
use crate::FileId;
use crate::failure::Scope;
use crate::failure::errno::{ECANCELED, ENOENT};
use crate::testing::submitted;

fn made(params: Value, files: usize) -> (Job, File) {
    let file = json!({
        "sources": ["davs://a.example:443/x"], "destinations": ["root://b.example//x"], "filesize": 10,
        "metadata": {"request_id": "r1"}, "activity": "Production", "scitag": 66,
    });
    let body = json!({"files": vec![file; files], "params": params});
    let mut new = submitted(&body);
    let mut file = new.files.remove(0);
    file.id = FileId(17);
    (new.job, file)
}

fn sender() -> Sender {
    Sender { alias: "fts.example".into(), fqdn: Some("broker.example".into()), shows_user_dn: false }
}

fn read(message: &Message) -> Value {
    let json = message.body.strip_suffix(' ').expect("one blank behind it");
    serde_json::from_str(json).unwrap()
}

fn ended() -> Ended {
    Ended {
        all: Span { from_ms: 951_827_696_000, to_ms: 951_827_706_500 },
        transfer: Span { from_ms: 951_827_698_000, to_ms: 951_827_700_000 },
        size_bytes: 10_000_000,
        transferred_bytes: 10_000_000,
        streams: 1,
        timeout_s: 620,
        way: Some(Way::Pull),
        family: Some(Family::V6),
        ..Ended::default()
    }
}

#[test]
fn a_copy_that_went_well_is_told() {
    let (job, file) = made(json!({}), 1);
    let message = sender().complete(&job, &file, Standing { retries_max: 3, is_last: true }, &ended());
    assert_eq!((message.topic, &message.vo), ("transfer.fts_monitoring_complete", &None));
    let body = read(&message);
    let tr_id = format!("2000-02-29-1234__a.example__b.example__17__{}", job.id);
    for (name, value) in [
        ("tr_id", json!(tr_id)),
        ("endpnt", json!("fts.example")),
        ("fqdn", json!("broker.example")),
        ("vo", json!("dteam")),
        ("file_id", json!(17)),
        ("src_url", json!("davs://a.example:443/x")),
        ("src_hostname", json!("a.example")),
        ("src_se", json!("davs://a.example")),
        ("protocol", json!("root")),
        ("src_protocol", json!("davs")),
        ("src_transfer_protocol", json!("https")),
        ("protocol_translation", json!(true)),
        ("t_channel", json!("davs://a.example__root://b.example")),
        ("t_final_transfer_state", json!("Ok")),
        ("t_final_transfer_state_flag", json!(1)),
        ("transfer_time", json!(2000)),
        ("operation_time", json!(10_500)),
        ("throughput", json!(5_000_000.0)),
        ("tr_timestamp_start", json!(951_827_696_000_u64)),
        ("user_dn", json!("")),
        ("file_metadata", json!({"request_id": "r1"})),
        ("job_metadata", json!({"auth_method": "certificate"})),
        ("job_multihop", json!(false)),
        ("job_state", json!("UNKNOWN")),
        ("is_archiving", json!(false)),
        ("transfer_type", json!("3rd pull")),
        ("auth_method", json!("certificate")),
        ("ipver", json!("ipv6")),
        ("retry_max", json!(3)),
        ("scitag", json!(66)),
        ("t__error_message", json!("")),
    ] {
        assert_eq!(body[name], value, "{name}");
    }
}

/// Every name of the reference's list, for each kind of message.
#[test]
fn no_field_is_missing() {
    let (job, file) = made(json!({}), 1);
    let standing = Standing::default();
    let link = file.link.clone();
    for (message, names) in [
        (
            sender().start(&job, &file, standing, 5),
            "transfer_id job_id file_id endpnt timestamp src_srm_v dest_srm_v vo src_url dst_url src_hostname dst_hostname \
             src_site_name dst_site_name t_channel srm_space_token_src srm_space_token_dst user_dn is_archiving file_metadata \
             job_metadata",
        ),
        (
            sender().complete(&job, &file, standing, &ended()),
            "tr_id job_id file_id endpnt vo src_url dst_url src_hostname dst_hostname src_se dst_se protocol src_protocol \
             dst_protocol src_transfer_protocol dst_transfer_protocol protocol_translation t_channel timestamp_tr_st \
             timestamp_tr_comp timestamp_chk_src_st timestamp_chk_src_ended timestamp_checksum_dest_st \
             timestamp_checksum_dest_ended timestamp_checksum_src_diff timestamp_checksum_dst_diff t_timeout chk_timeout \
             t_error_code tr_error_scope t_failure_phase tr_error_category t_final_transfer_state \
             t_final_transfer_state_flag tr_bt_transfered nstreams buf_size tcp_buf_size block_size scitag f_size file_size \
             time_srm_prep_st time_srm_prep_end time_srm_fin_st time_srm_fin_end src_srm_v dest_srm_v srm_space_token_src \
             srm_space_token_dst srm_preparation_time srm_finalization_time srm_overhead_time srm_overhead_percentage \
             t__error_message tr_timestamp_start tr_timestamp_complete transfer_time operation_time throughput channel_type \
             user_dn file_metadata job_metadata activity retry retry_max job_m_replica job_multihop transfer_lasthop \
             is_archiving job_state is_recoverable ipver eviction_code cleanup_code final_destination transfer_type \
             auth_method overwrite_on_disk_flag overwrite_on_disk_deletion_code",
        ),
        (
            sender().state(&job, &file, standing, 5),
            "user_dn src_url dst_url vo_name source_se dest_se job_id file_id job_state file_state retry_counter retry_max \
             user_filesize timestamp submit_time staging staging_start staging_finished archiving archiving_start \
             archiving_finished reason job_metadata file_metadata endpnt",
        ),
        (
            sender().queue_state(&link, &QueueState::default(), 5),
            "source_se dest_se throughput throughput_ema duration_avg filesize_avg filesize_stddev success_rate retry_count \
             active_count submitted_count connections diff rationale timestamp endpnt",
        ),
    ] {
        let body = read(&message);
        for name in names.split_whitespace() {
            assert!(body.get(name).is_some(), "{}: {name}", message.topic);
        }
    }
}

#[test]
fn a_copy_that_failed_tells_why() {
    let (job, file) = made(json!({}), 1);
    let failed = |errno, text: &str| {
        let failure = Some(Failure::new(Scope::Source, errno, text));
        let ended = Ended { failure, phase: "TRANSFER_PREPARATION", transfer: Span::default(), ..ended() };
        read(&sender().complete(&job, &file, Standing::default(), &ended))
    };
    let body = failed(ENOENT, "No 'such'\nfile \"x\"");
    assert_eq!(
        (&body["t_final_transfer_state"], &body["t_final_transfer_state_flag"]),
        (&json!("Error"), &json!(0))
    );
    assert_eq!((&body["t_error_code"], &body["tr_error_scope"]), (&json!(2), &json!("SOURCE")));
    assert_eq!(body["t__error_message"], "No such\u{fffd}file x");
    assert_eq!(body["tr_error_category"], "NO_SUCH_FILE_OR_DIRECTORY");
    assert_eq!((&body["is_recoverable"], &body["throughput"]), (&json!(false), &json!(-1.0)));
    let body = failed(ECANCELED, &"x".repeat(3000));
    assert_eq!(
        (&body["t_final_transfer_state"], &body["t_final_transfer_state_flag"]),
        (&json!("Abort"), &json!(-1))
    );
    assert_eq!(body["t__error_message"].as_str().map(str::len), Some(1024));
}

#[test]
fn consumers_that_wait_for_the_end_of_a_job_find_it() {
    let told = |kind, is_last, has_failed| job_state(kind, Standing { retries_max: 0, is_last }, has_failed);
    for (kind, is_last, has_failed, state) in [
        (JobKind::Plain, true, true, "UNKNOWN"),
        (JobKind::Replicas, false, false, "FINISHED"),
        (JobKind::Replicas, false, true, "ACTIVE"),
        (JobKind::Replicas, true, true, "FAILED"),
        (JobKind::Multihop, false, false, "ACTIVE"),
        (JobKind::Multihop, true, false, "FINISHED"),
        (JobKind::Multihop, false, true, "FAILED"),
    ] {
        assert_eq!(told(kind, is_last, has_failed), state, "{kind:?}");
    }
    let (job, file) = made(json!({"multihop": true, "archive_timeout": 60}), 2);
    let hop = |is_last| read(&sender().complete(&job, &file, Standing { retries_max: 0, is_last }, &ended()));
    assert_eq!((&hop(false)["job_multihop"], &hop(false)["is_archiving"]), (&json!(true), &json!(false)));
    assert_eq!((&hop(true)["transfer_lasthop"], &hop(true)["is_archiving"]), (&json!(true), &json!(true)));
}

#[test]
fn a_state_is_told_to_its_vo() {
    let (job, mut file) = made(json!({"bring_online": 60, "archive_timeout": 60}), 1);
    file.stamps.staging_started_s = Some(7);
    let named = Sender { shows_user_dn: true, fqdn: None, ..sender() };
    let message = named.state(&job, &file, Standing::default(), 5);
    assert_eq!((message.topic, message.vo.as_deref()), ("transfer.fts_monitoring_state", Some("dteam")));
    let body = read(&message);
    for (name, value) in [
        ("user_dn", json!("/CN=Ada")),
        ("job_state", json!("STAGING")),
        ("file_state", json!("STAGING")),
        ("timestamp", json!(5)),
        ("submit_time", json!(951_827_696_000_u64)),
        ("staging", json!(true)),
        ("staging_start", json!(7000)),
        ("staging_finished", json!(0)),
        ("archiving", json!(true)),
        ("reason", json!("")),
    ] {
        assert_eq!(body[name], value, "{name}");
    }
    assert_eq!(body.get("fqdn"), None);
}

#[test]
fn a_decision_is_told_in_numbers() {
    let (_, file) = made(json!({}), 1);
    let state = QueueState {
        success: 0.9601,
        connections: 12,
        difference: -1,
        rationale: "why".into(),
        ..QueueState::default()
    };
    let body = read(&sender().queue_state(&file.link, &state, 5));
    assert_eq!(
        (&body["success_rate"], &body["connections"], &body["diff"]),
        (&json!(97.0), &json!(12), &json!(-1))
    );
}

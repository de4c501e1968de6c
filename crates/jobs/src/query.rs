//! Questions about jobs and files, and small changes of them, as a client asks (fts3-rest 3.2).

use std::str::FromStr;

use gridlane_core::limits::{FILES_LISTED_MAX, JOB_TIME_S_MAX, JOBS_LISTED_MAX, SETTING_BODY_BYTES_MAX};
use serde_json::Value;

use crate::{
    FileId, FileState, Identity, JobKind, JobState, Level, Operation, Refusal, Storage, body, place,
};

/// The jobs that are asked for. What is `None` holds for all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobsAsked {
    /// The user.
    pub user_dn: Option<String>,
    /// The VO.
    pub vo: Option<String>,
    /// The name of what the user has lent.
    pub delegation_id: Option<String>,
    /// These states; an empty list: none that there is.
    pub states: Option<Vec<JobState>>,
    /// Only those that have not ended.
    pub is_open: bool,
    /// Only those that have ended since, in seconds since 1970.
    pub ended_since_s: Option<i64>,
    /// The source of all files.
    pub source_se: Option<Storage>,
    /// The destination of all files.
    pub dest_se: Option<Storage>,
    /// At most so many, the newest first; `None`: all, in any order.
    pub limit: Option<u32>,
    /// These fields of each.
    pub fields: Option<Vec<String>>,
}

/// The files that are asked for. What is `None` holds for all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FilesAsked {
    /// The VO.
    pub vo: Option<String>,
    /// The user.
    pub user_dn: Option<String>,
    /// These states; an empty list: none that there is.
    pub states: Option<Vec<FileState>>,
    /// Only those that have ended since, in seconds since 1970; `None`: only those that have not.
    pub ended_since_s: Option<i64>,
    /// The source.
    pub source_se: Option<Storage>,
    /// The destination.
    pub dest_se: Option<Storage>,
    /// This URL of a destination.
    pub destination: Option<String>,
    /// At most so many.
    pub limit: u32,
}

/// The parameters of a question: names and values, decoded.
pub type Parameters = [(String, String)];

fn of<'a>(parameters: &'a Parameters, name: &str) -> Option<&'a str> {
    let found = parameters.iter().find(|(found, _)| found == name)?;
    Some(found.1.as_str()).filter(|value| !value.is_empty())
}

/// The jobs that a user asks for, as far as it may see them: its own ones, or those of its VO.
///
/// # Errors
/// 400 for the jobs of another user, and for a limit that is none; 403 for what another user has lent, and for a user that may see
/// no jobs.
pub fn jobs(parameters: &Parameters, user: &Identity, now_s: i64) -> Result<JobsAsked, Refusal> {
    let text = |name| of(parameters, name).map(str::to_owned);
    let mut asked = JobsAsked {
        user_dn: text("user_dn"),
        vo: text("vo_name"),
        delegation_id: text("dlg_id"),
        states: of(parameters, "state_in").map(states),
        source_se: of(parameters, "source_se").map(storage),
        dest_se: of(parameters, "dest_se").map(storage),
        fields: of(parameters, "fields").map(|fields| fields.split(',').map(str::to_owned).collect()),
        ..JobsAsked::default()
    };
    if asked.delegation_id.as_ref().is_some_and(|id| *id != user.delegation_id) {
        return Err(Refusal::forbidden("The provided delegation id does not match your delegation id"));
    }
    if asked.user_dn.as_ref().is_some_and(|dn| dn != user.user_dn()) {
        return Err(Refusal::bad("The provided DN and delegation id do not correspond to the same user"));
    }
    let limit: Option<i64> = of(parameters, "limit").and_then(|limit| limit.trim().parse().ok());
    if limit.is_some_and(|limit| !(0..=i64::from(JOBS_LISTED_MAX)).contains(&limit)) {
        let message = format!("The limit must be positive and less or equal than {JOBS_LISTED_MAX}");
        return Err(Refusal::bad(message));
    }
    asked.limit = limit.and_then(|limit| u32::try_from(limit).ok()).filter(|limit| *limit > 0);
    asked.ended_since_s = of(parameters, "time_window").and_then(|window| ended_since_s(window, now_s));
    match (asked.states.is_some(), limit) {
        (true, None) => asked.is_open = asked.ended_since_s.is_none(),
        (true, Some(_)) => asked.ended_since_s = None,
        (false, _) => (asked.is_open, asked.ended_since_s) = (true, None),
    }
    match user.level(Operation::Transfer) {
        Level::None => return Err(Refusal::forbidden("User not allowed to list jobs")),
        Level::Private => asked.delegation_id = Some(user.delegation_id.clone()),
        Level::Vo => asked.vo = Some(user.vo().to_owned()),
        Level::All => {}
    }
    Ok(asked)
}

/// The files that a user asks for, as far as it may see them.
///
/// # Errors
/// 403 for a user that may see no jobs.
pub fn files(parameters: &Parameters, user: &Identity, now_s: i64) -> Result<FilesAsked, Refusal> {
    let limit = of(parameters, "limit").and_then(|limit| limit.trim().parse::<i64>().ok());
    let limit = limit.map_or(FILES_LISTED_MAX, |limit| limit.clamp(1, i64::from(FILES_LISTED_MAX)) as u32);
    let destination = of(parameters, "dest_surl");
    let mut asked = FilesAsked {
        vo: of(parameters, "vo_name").map(str::to_owned),
        user_dn: None,
        states: of(parameters, "state_in").map(states),
        ended_since_s: of(parameters, "time_window").and_then(|window| ended_since_s(window, now_s)),
        source_se: of(parameters, "source_se").map(storage),
        dest_se: of(parameters, "dest_se").map(storage).or_else(|| destination.and_then(place::storage_of)),
        destination: destination.map(str::to_owned),
        limit,
    };
    match user.level(Operation::Transfer) {
        Level::None => return Err(Refusal::forbidden("User not allowed to list jobs")),
        Level::Private => asked.user_dn = Some(user.user_dn().to_owned()),
        Level::Vo => asked.vo = Some(user.vo().to_owned()),
        Level::All => {}
    }
    Ok(asked)
}

/// States by their names, with commas between them. Names that are none are left out.
fn states<T: FromStr>(names: &str) -> Vec<T> {
    names.split(',').filter_map(|name| name.trim().parse().ok()).collect()
}

/// The storage of a text; of one that is none, a storage that no job has.
fn storage(text: &str) -> Storage {
    place::storage_of(text).unwrap_or_else(|| Storage::from(text))
}

/// The beginning of a window of hours, or hours and minutes (`1:30`), that ends now.
fn ended_since_s(window: &str, now_s: i64) -> Option<i64> {
    let (hours, minutes) = window.split_once(':').unwrap_or((window, "0"));
    let (hours, minutes): (i64, i64) = (hours.trim().parse().ok()?, minutes.trim().parse().ok()?);
    let seconds = hours.saturating_mul(3600).saturating_add(minutes.saturating_mul(60));
    Some(now_s.saturating_sub(seconds.clamp(0, i64::from(JOB_TIME_S_MAX))))
}

/// The priority that a client gives to jobs: 1 to 5. `None`: it changes nothing.
///
/// # Errors
/// 400 for what is no priority, or not JSON.
pub fn priority(bytes: &[u8]) -> Result<Option<u8>, Refusal> {
    let body = body::object(bytes, SETTING_BODY_BYTES_MAX)?;
    let priority = body.get("params").and_then(|params| params.get("priority"));
    match body::integer(priority) {
        // FTS3 takes 0 for nothing.
        Ok(priority) => {
            Ok(priority.filter(|priority| *priority != 0).map(|priority| priority.clamp(1, 5) as u8))
        }
        Err(_) => Err(Refusal::bad("Invalid priority value")),
    }
}

/// The files that are to begin now, whatever the limits say.
///
/// # Errors
/// 400 for what is no list of numbers.
pub fn force_start(bytes: &[u8]) -> Result<Vec<FileId>, Refusal> {
    let listed = body::json(bytes, SETTING_BODY_BYTES_MAX).map_err(|refusal| match refusal.status {
        400 => Refusal::bad("Malformed input"),
        _ => refusal,
    })?;
    let ids = listed.as_array().and_then(|ids| ids.iter().map(Value::as_i64).collect::<Option<Vec<i64>>>());
    let ids = ids.ok_or_else(|| Refusal::bad("Only accepts a list of integer fileIDs"))?;
    Ok(ids.into_iter().map(FileId).collect())
}

/// The files of a job that are to be cancelled, by the last part of the path. Those that are no numbers are `None`.
///
/// # Errors
/// 400 for a job whose files belong together.
pub fn files_to_cancel(kind: JobKind, ids: &str) -> Result<Vec<Option<FileId>>, Refusal> {
    if kind != JobKind::Plain {
        let message = format!("Multihop or reuse jobs must be cancelled at once ({})", kind.name());
        return Err(Refusal::bad(message));
    }
    Ok(ids.split(',').map(|id| id.trim().parse().ok().map(FileId)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Grant;
    use crate::level::Roles;

    const NOW_S: i64 = 1_800_000_000;

    fn user(level: &str) -> Identity {
        let words = vec![format!("{level}:transfer")];
        let roles = Roles::read([("public", &*words)]).unwrap();
        let none: [Grant; 0] = [];
        let fqans = vec!["/dteam".to_owned()];
        Identity::of_certificate(vec!["/CN=Ada".to_owned()], fqans, None, None, &roles, &none)
    }

    fn parameters(query: &str) -> Vec<(String, String)> {
        let pair = |pair: &str| pair.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        query.split('&').filter_map(pair).collect()
    }

    fn asked(query: &str) -> Result<JobsAsked, Refusal> {
        jobs(&parameters(query), &user("all"), NOW_S)
    }

    #[test]
    fn jobs_that_have_not_ended_are_listed_unless_states_are_named() {
        let open = JobsAsked { is_open: true, ..JobsAsked::default() };
        assert_eq!(asked("").unwrap(), open);
        assert_eq!(asked("time_window=1").unwrap(), open);
        let failed = Some(vec![JobState::Failed]);
        let states = JobsAsked { states: failed.clone(), ..JobsAsked::default() };
        assert_eq!(asked("state_in=FAILED").unwrap(), JobsAsked { is_open: true, ..states.clone() });
        let since = JobsAsked { ended_since_s: Some(NOW_S - 5400), ..states.clone() };
        assert_eq!(asked("state_in=FAILED&time_window=1:30").unwrap(), since);
        assert_eq!(
            asked("state_in=FAILED&limit=9&time_window=1").unwrap(),
            JobsAsked { limit: Some(9), ..states }
        );
        assert_eq!(asked("state_in=ACTIVE,nonsense").unwrap().states, Some(vec![JobState::Active]));
        assert_eq!(asked("state_in=nonsense").unwrap().states, Some(Vec::new()));
        let named = asked("source_se=DAVS://A:1&dest_se=x&vo_name=v&fields=job_id,vo_name&limit=0").unwrap();
        assert_eq!((named.source_se, named.dest_se), (Some("davs://a".into()), Some("x".into())));
        assert_eq!(
            (named.vo.as_deref(), named.fields.map(|fields| fields.len()), named.limit),
            (Some("v"), Some(2), None)
        );
    }

    #[test]
    fn the_level_of_a_user_bounds_what_it_is_shown() {
        let of = |level: &str, query: &str| jobs(&parameters(query), &user(level), NOW_S);
        assert_eq!(of("vo", "vo_name=atlas").unwrap().vo.as_deref(), Some("dteam"));
        let own = of("private", "").unwrap();
        assert_eq!(own.delegation_id, Some(user("private").delegation_id));
        assert_eq!(of("", "").unwrap_err().status, 403);
        assert_eq!(of("all", "user_dn=/CN=Bob").unwrap_err().status, 400);
        assert_eq!(of("all", "user_dn=/CN=Ada").unwrap().user_dn.as_deref(), Some("/CN=Ada"));
        assert_eq!(of("all", "dlg_id=x").unwrap_err().status, 403);
        for limit in ["-1", "501"] {
            assert_eq!(of("all", &format!("limit={limit}")).unwrap_err().status, 400);
        }
        let of = |level: &str| files(&parameters("vo_name=atlas"), &user(level), NOW_S);
        assert_eq!(
            (of("vo").unwrap().vo.as_deref(), of("all").unwrap().vo.as_deref()),
            (Some("dteam"), Some("atlas"))
        );
        assert_eq!(of("private").unwrap().user_dn.as_deref(), Some("/CN=Ada"));
        assert_eq!(of("").unwrap_err().status, 403);
    }

    #[test]
    fn files_are_asked_for_by_state_storage_and_url() {
        let asked = |query: &str| files(&parameters(query), &user("all"), NOW_S).unwrap();
        let found = asked("state_in=ON_HOLD,ACTIVE&dest_surl=davs://B:1/x&limit=99999&time_window=2");
        let expected = FilesAsked {
            states: Some(vec![FileState::OnHold, FileState::Active]),
            dest_se: Some("davs://b".into()),
            destination: Some("davs://B:1/x".into()),
            ended_since_s: Some(NOW_S - 7200),
            limit: 1000,
            ..FilesAsked::default()
        };
        assert_eq!(found, expected);
        assert_eq!((asked("limit=-4").limit, asked("limit=x").limit), (1, 1000));
        assert_eq!(
            asked("time_window=9223372036854775807").ended_since_s,
            Some(NOW_S - i64::from(JOB_TIME_S_MAX))
        );
    }

    #[test]
    fn small_changes_are_read() {
        assert_eq!(priority(br#"{"params": {"priority": 9}}"#), Ok(Some(5)));
        assert_eq!(priority(br#"{"params": {"priority": "2"}}"#), Ok(Some(2)));
        assert_eq!(priority(b"{}"), Ok(None));
        assert_eq!(
            priority(br#"{"params": {"priority": "x"}}"#).unwrap_err().message,
            "Invalid priority value"
        );
        assert_eq!(force_start(b"[1, 2]"), Ok(vec![FileId(1), FileId(2)]));
        assert_eq!(force_start(b"[1.5]").unwrap_err().message, "Only accepts a list of integer fileIDs");
        assert_eq!(force_start(b"x").unwrap_err().message, "Malformed input");
        assert_eq!(files_to_cancel(JobKind::Plain, "1,x"), Ok(vec![Some(FileId(1)), None]));
        let together = files_to_cancel(JobKind::Multihop, "1").unwrap_err();
        assert_eq!(together.message, "Multihop or reuse jobs must be cancelled at once (H)");
    }
}

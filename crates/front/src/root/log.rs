//! Records of requests over root://: in the same logs and counters as those of HTTP.
//!
//! A request that opens, changes or asks for something leaves a line when it is answered, and a file one when it is
//! closed, with what was read and written. Reads and writes leave none unless they fail: there are thousands for each
//! file. No line has CGI, which may hold a token.

use std::time::{Instant, SystemTime};

use gridlane_xrd::registry::FattrKind;
use gridlane_xrd::request::{About, FattrAbout, Request};
use gridlane_xrd::{Handle, PathArg, QueryKind, RequestId, ztn};

use super::answer::{Failure, printable_path};
use super::connection::order::changed;
use super::context::{Context, Link, Session};
use super::session_files::SessionFiles;
use crate::access_log::{Record, loggable, timestamp};
use crate::client::{Client, Decided};
use crate::front::Front;
use crate::request_id::request_id;
use crate::service::Service;
use crate::settings::LogLevel;

/// Counts and records an answered request of a client, with the bytes of its answer.
pub(crate) fn answered<S: Service>(
    context: &Context<S>,
    client: &Client,
    request: &Request,
    began: Instant,
    failure: Option<&Failure>,
    bytes_out: u64,
) {
    let front = &**context.front();
    count(front, request.id(), failure);
    if failure.is_none() && !leaves_a_line(request) {
        return;
    }
    let about = subject(&context.session, request);
    let line = Line {
        method: method(request),
        path: &about.0,
        destination: about.1.as_deref(),
        began,
        bytes_in: 0,
        bytes_out,
        failure,
        changes: changes(request),
    };
    write(front, &context.link, Some((&*context.session, client)), &line);
}

/// Counts and records a request that was refused before its kind or its client was known.
pub(crate) fn refused(front: &Front, link: &Link, id: RequestId, began: Instant, failure: &Failure) {
    count(front, id, Some(failure));
    let line = Line {
        method: format!("root:{id}"),
        path: "",
        destination: None,
        began,
        bytes_in: 0,
        bytes_out: 0,
        failure: Some(failure),
        changes: false,
    };
    write::<()>(front, link, None, &line);
}

/// A file that is not open any longer.
pub struct Closed<'a> {
    /// Its path in the request that opened it.
    pub path: &'a [u8],
    /// The time when it was opened.
    pub opened: Instant,
    /// Bytes that were sent of it.
    pub read_bytes: u64,
    /// Bytes that came for it.
    pub written_bytes: u64,
    /// True if it was open for writing.
    pub is_writable: bool,
    /// The reason why it was not closed in good order, if so: also that the client left it open.
    pub failure: Option<&'a Failure>,
}

/// Records the end of a file that a client has opened. The request that closes it is counted by `answered`.
pub fn closed<S: Service>(context: &Context<S>, client: &Client, closed: &Closed<'_>) {
    let line = Line {
        method: "root:close".to_owned(),
        path: &printable_path(closed.path),
        destination: None,
        began: closed.opened,
        bytes_in: closed.written_bytes,
        bytes_out: closed.read_bytes,
        failure: closed.failure,
        changes: closed.is_writable,
    };
    write(context.front(), &context.link, Some((&*context.session, client)), &line);
}

fn count(front: &Front, id: RequestId, failure: Option<&Failure>) {
    front.data.metrics.requests.add(1);
    front.data.metrics.root.answered(id, failure.map(|failure| failure.code));
}

struct Line<'a> {
    method: String,
    path: &'a str,
    destination: Option<&'a str>,
    began: Instant,
    bytes_in: u64,
    bytes_out: u64,
    failure: Option<&'a Failure>,
    changes: bool,
}

fn write<F>(front: &Front, link: &Link, by: Option<(&Session<F>, &Client)>, line: &Line<'_>) {
    let is_logged = match front.access_log_level {
        LogLevel::All => true,
        LogLevel::Failures => line.failure.is_some(),
    } && front.access_log.is_on();
    let is_audited = line.changes && front.audit_log.is_on();
    if !is_logged && !is_audited {
        return;
    }
    let id = request_id(front.started_s, front.data.metrics.began.next());
    let session = by.map(|(session, _)| session);
    let decided = by.and_then(|(_, client)| client.decision());
    let loggable = |text: &str| Some(loggable(text)).filter(|text| !text.is_empty());
    let record = Record {
        time: timestamp(SystemTime::now()),
        id: &id,
        peer: link.peer,
        proxy: link.proxy,
        client: None,
        tls: link.tls,
        method: &line.method,
        path: line.path,
        destination: line.destination,
        // 0 is XRootD's "ok"; its errors begin at 3000, and the largest fit.
        status: line.failure.map_or(0, |failure| u16::try_from(failure.code.0).unwrap_or(u16::MAX)),
        bytes_in: line.bytes_in,
        bytes_out: line.bytes_out,
        seconds: line.began.elapsed().as_secs_f64(),
        range: None,
        identity: by.map(|(_, client)| &*client.identity),
        operation: decided.as_ref().and_then(Decided::operation),
        decision: decided.as_ref().map(|decided| decided.outcome.as_str()),
        decided_path: decided.as_ref().and_then(|decided| decided.path_beside(line.path)),
        user: session.and_then(|session| loggable(&session.user)),
        user_agent: session.and_then(|session| loggable(&session.agent)),
        client_id: None,
        client_info: session.and_then(|session| loggable(&session.purpose())),
        error: line.failure.map(|failure| failure.cause.as_deref().unwrap_or(&failure.text)),
    };
    if is_logged {
        front.access_log.write(&record);
    }
    if is_audited {
        front.audit_log.write(&record);
    }
}

/// True if a request leaves a line when it went well.
fn leaves_a_line(request: &Request) -> bool {
    match request {
        Request::Open(_)
        | Request::Stat(_)
        | Request::Statx(_)
        | Request::Dirlist(_)
        | Request::Locate(_)
        | Request::Query(_)
        | Request::Prepare(_)
        | Request::Login(_) => true,
        // What only says a name is in every line.
        Request::Auth(auth) => auth.kind == ztn::NAME,
        other => changes(other),
    }
}

/// True if a request changes something by itself. A file that is written leaves a line when it is closed.
fn changes(request: &Request) -> bool {
    match request {
        Request::Open(open) => open.options.is_write(),
        Request::Fattr(fattr) => matches!(fattr.kind, FattrKind::SET | FattrKind::DELETE),
        other => changed(other).is_some(),
    }
}

fn method(request: &Request) -> String {
    match request {
        Request::Query(query) => format!("root:query.{}", query.kind),
        Request::Fattr(fattr) => format!("root:fattr.{}", fattr.kind),
        other => format!("root:{}", other.id()),
    }
}

/// The subject of a request: the path, without CGI, and the target.
fn subject(session: &Session<impl SessionFiles>, request: &Request) -> (String, Option<String>) {
    let path = |about: &PathArg| (printable_path(&about.path), None);
    let file = |handle: Handle| {
        let file = session.files.readable(handle, "");
        (file.map(|file| printable_path(file.path())).unwrap_or_default(), None)
    };
    let either = |about: &About| match about {
        About::Path(about) => path(about),
        About::Handle(handle) => file(*handle),
    };
    match request {
        Request::Open(open) => path(&open.about),
        Request::Stat(stat) => either(&stat.about),
        Request::Truncate(truncate) => either(&truncate.about),
        Request::Dirlist(dirlist) => path(&dirlist.about),
        Request::Locate(locate) => path(&locate.about),
        Request::Mkdir(mkdir) => path(&mkdir.about),
        Request::Rm(rm) => path(&rm.about),
        Request::Rmdir(rmdir) => path(&rmdir.about),
        Request::Chmod(chmod) => path(&chmod.about),
        Request::Mv(mv) => (printable_path(&mv.from.path), Some(printable_path(&mv.to.path))),
        Request::Query(query) => match query.kind {
            QueryKind::CHECKSUM | QueryKind::SPACE | QueryKind::XATTR => {
                path(&PathArg::parse(&query.argument))
            }
            // Keys and letters are no paths, and what is opaque may be anything.
            _ => Default::default(),
        },
        Request::Fattr(fattr) => match &fattr.about {
            FattrAbout::Path(about) => path(about),
            FattrAbout::Handle(handle) => file(*handle),
        },
        // The first of them, lest a line be as long as the request.
        Request::Statx(statx) => {
            statx.paths.first().map(|first| path(&PathArg::parse(first))).unwrap_or_default()
        }
        Request::Prepare(prepare) => {
            prepare.lines.first().map(|first| path(&PathArg::parse(first))).unwrap_or_default()
        }
        Request::Close(close) => file(close.handle),
        Request::Read(read) => file(read.handle),
        Request::PgRead(read) => file(read.handle),
        Request::Write(write) => file(write.handle),
        Request::PgWrite(write) => file(write.handle),
        Request::Sync(sync) => file(sync.handle),
        _ => Default::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_log::AccessLog;
    use crate::null_service::{NullService, arg, context_of};
    use crate::settings::Settings;
    use gridlane_xrd::ErrorCode;
    use gridlane_xrd::request::{Mv, Ping, Query, Rm};
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    #[derive(Clone, Default)]
    struct Text(Arc<Mutex<Vec<u8>>>);

    impl Write for Text {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The contents of both logs after `run`.
    fn logged(level: LogLevel, run: impl FnOnce(&Context<NullService>)) -> [Vec<serde_json::Value>; 2] {
        let texts = [Text::default(), Text::default()];
        let context = context_of(|settings: &mut Settings<()>| {
            settings.access_log = AccessLog::to_writer(texts[0].clone());
            settings.audit_log = AccessLog::to_writer(texts[1].clone());
            settings.access_log_level = level;
        });
        context.session.set_purpose("run 7".to_owned());
        run(&context);
        for log in [&context.front().access_log, &context.front().audit_log] {
            assert!(log.finish(Duration::from_secs(60)));
        }
        texts.map(|text| {
            let text = String::from_utf8(text.0.lock().unwrap().clone()).unwrap();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        })
    }

    #[test]
    fn requests_that_leave_a_line() {
        let began = Instant::now();
        let failure = Failure::new(ErrorCode::NOT_FOUND, "Unable to remove /x; no such file or directory");
        let [access, audit] = logged(LogLevel::All, |context| {
            let secret = "/d/f?cks.type=md5&authz=secret";
            answered(
                context,
                &context.client,
                &Query::new(QueryKind::CHECKSUM, secret).into(),
                began,
                None,
                40,
            );
            answered(
                context,
                &context.client,
                &Query::new(QueryKind::OPAQUE, "secret").into(),
                began,
                None,
                0,
            );
            answered(context, &context.client, &Ping {}.into(), began, None, 0);
            answered(
                context,
                &context.client,
                &Rm { about: arg("/x?authz=secret") }.into(),
                began,
                Some(&failure),
                0,
            );
            answered(
                context,
                &context.client,
                &Mv { from: arg("/a?secret"), to: arg("/b?secret") }.into(),
                began,
                None,
                0,
            );
            let gone = Failure::new(ErrorCode::IO_ERROR, "the client left");
            let (path, failure) = (&b"/f"[..], Some(&gone));
            closed(
                context,
                &context.client,
                &Closed { path, opened: began, read_bytes: 7, written_bytes: 9, is_writable: true, failure },
            );
            refused(context.front(), &context.link, RequestId(2999), began, &gone);
        });
        let methods = |records: &[serde_json::Value]| -> Vec<String> {
            records.iter().map(|record| record["method"].as_str().unwrap().to_owned()).collect()
        };
        let all =
            ["root:query.checksum", "root:query.opaque", "root:rm", "root:mv", "root:close", "root:2999"];
        assert_eq!(methods(&access), all);
        assert_eq!(methods(&audit), ["root:rm", "root:mv", "root:close"]);
        assert!(!format!("{access:?}").contains("secret"));
        assert_eq!(
            (&access[0]["path"], &access[0]["status"], &access[0]["bytes_out"]),
            (&"/d/f".into(), &0.into(), &40.into())
        );
        assert_eq!((&access[0]["user"], &access[0]["user_agent"]), (&"ann".into(), &"xrdcp v5.5.3".into()));
        assert_eq!(access[0]["client_info"], "run 7");
        assert_eq!(
            (&access[2]["status"], &access[2]["error"]),
            (&3011.into(), &failure.text.as_str().into())
        );
        assert_eq!((&access[3]["path"], &access[3]["destination"]), (&"/a".into(), &"/b".into()));
        assert_eq!((&access[4]["bytes_in"], &access[4]["bytes_out"]), (&9.into(), &7.into()));
    }

    #[test]
    fn only_failures() {
        let [access, audit] = logged(LogLevel::Failures, |context| {
            let began = Instant::now();
            answered(context, &context.client, &Rm { about: arg("/x") }.into(), began, None, 0);
            let failure = Failure::new(ErrorCode::NOT_FOUND, "x");
            answered(context, &context.client, &Rm { about: arg("/y") }.into(), began, Some(&failure), 0);
        });
        assert_eq!((access.len(), audit.len()), (1, 2));
    }
}

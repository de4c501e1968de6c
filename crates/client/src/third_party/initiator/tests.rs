//! Copies between servers that answer as told.

use std::sync::Arc;

use gridlane_core::{Checksum, ChecksumKind, Secret};
use gridlane_engine::{Event, Observer};
use gridlane_net::tls::Trust;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// Answers a request, of which the head is given, as bytes; none: the connection breaks.
type Answer = dyn FnMut(&str, usize) -> String + Send;

/// A server of HTTP.
struct Server {
    url: Url,
    /// The heads of all requests.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// A server that answers so; the number is that of requests with the method before.
    async fn start(answer: impl FnMut(&str, usize) -> String + Send + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse_absolute(&format!("http://{}/f", listener.local_addr().unwrap())).unwrap();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let server = Server { url, asked: asked.clone() };
        let answer: Arc<Mutex<Answer>> = Arc::new(Mutex::new(answer));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (asked, answer) = (asked.clone(), answer.clone());
                // Ends with the connection.
                tokio::spawn(async move { drop(serve(stream, &asked, &answer).await) });
            }
        });
        server
    }

    fn asked(&self, method: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|head| head.starts_with(&format!("{method} "))).count()
    }
}

async fn serve(
    mut stream: TcpStream,
    asked: &Mutex<Vec<String>>,
    answer: &Mutex<Answer>,
) -> std::io::Result<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).await?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let method = head.split(' ').next().unwrap().to_owned();
    let before = {
        let mut asked = asked.lock().unwrap();
        let before = asked.iter().filter(|other| other.split(' ').next() == Some(&method)).count();
        asked.push(head.clone());
        before
    };
    let said = (answer.lock().unwrap())(&head, before);
    stream.write_all(said.as_bytes()).await?;
    stream.shutdown().await
}

/// An answer with these fields and this body.
fn said(status: u16, fields: &str, body: &str) -> String {
    let len = if fields.contains("Content-Length") {
        String::new()
    } else {
        format!("Content-Length: {}\r\n", body.len())
    };
    format!("HTTP/1.1 {status} X\r\n{fields}{len}Connection: close\r\n\r\n{body}")
}

/// What is said of a file of five bytes.
fn file(digest: &str) -> String {
    let digest = if digest.is_empty() { String::new() } else { format!("Digest: {digest}\r\n") };
    said(200, &format!("{digest}Content-Length: 5\r\n"), "")
}

fn is(head: &str, method: &str) -> bool {
    head.split(' ').next() == Some(method)
}

/// A source of five bytes, whose server sends nothing by itself.
async fn source() -> Server {
    Server::start(|head, _| if is(head, "HEAD") { file("adler32=00000001") } else { said(501, "", "") }).await
}

#[derive(Default)]
struct Heard(Vec<Detour>);

impl Observer for Heard {
    fn event(&mut self, _: &Event<'_>) {}
}

impl FileObserver for Heard {
    fn detour(&mut self, detour: Detour, _: &Error) {
        self.0.push(detour);
    }
}

fn wish(third_party: ThirdParty) -> Wish {
    Wish { third_party, ..Wish::default() }
}

fn options() -> Options {
    Options { patience: Duration::from_secs(5), ..Options::default() }
}

/// Has a file copied that replaces nothing.
async fn copied(
    initiator: &Initiator,
    ends: (&Client, &[Url], &Url),
    (options, wish): (&Options, Wish),
    stop: impl Future<Output = ()> + Send,
) -> (Tried, Vec<Detour>) {
    copied_over(initiator, ends, (options, wish, false), stop).await
}

/// Has a file copied that may replace another one if it `replaces`.
async fn copied_over(
    initiator: &Initiator,
    (client, sources, target): (&Client, &[Url], &Url),
    (options, wish, replaces): (&Options, Wish, bool),
    stop: impl Future<Output = ()> + Send,
) -> (Tried, Vec<Detour>) {
    let (facts, preserves_times) = (FileFacts::default(), false);
    let task = Task { client, sources, target, facts: &facts, options, replaces, preserves_times, wish };
    let mut heard = Heard::default();
    tokio::pin!(stop);
    let tried = initiator.copy(&task, &mut heard, stop.as_mut()).await;
    (tried, heard.0)
}

/// The same with `--tpc only`, as a pull.
async fn only(from: &Server, to: &Server) -> Result<()> {
    ended(from, to, Mode::Pull, false, std::future::pending()).await
}

/// The outcome of a copy with `--tpc only` that is stopped when `stop` ends.
async fn ended(
    from: &Server,
    to: &Server,
    mode: Mode,
    replaces: bool,
    stop: impl Future<Output = ()> + Send,
) -> Result<()> {
    let client = crate::connect(Trust::default());
    let ends = (&client, &[from.url.clone()][..], &to.url);
    let wish = Wish { third_party: ThirdParty::Only, mode: Some(mode), delegates: false };
    match copied_over(&Initiator::default(), ends, (&options(), wish, replaces), stop).await.0 {
        Tried::Ended(outcome, _) => outcome.result,
        Tried::Streams => panic!("it streams"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_pushed_where_something_may_be() {
    for (status, kind) in [(200, ErrorKind::Precondition), (403, ErrorKind::Unsupported)] {
        let from =
            Server::start(|head, _| if is(head, "HEAD") { file("") } else { said(201, "", "success") });
        let from = from.await;
        let to = Server::start(move |_, _| said(status, "Server: gridlane/1\r\n", "")).await;
        let client = crate::connect(Trust::default());
        // Its name says that it keeps what is there.
        let _ = client.http.request("HEAD", &to.url, &[]).await;
        assert!(client.http.keeps_existing(&to.url));
        let wish = Wish { third_party: ThirdParty::Only, mode: Some(Mode::Push), delegates: false };
        let ends = (&client, &[from.url.clone()][..], &to.url);
        let tried = copied(&Initiator::default(), ends, (&options(), wish), std::future::pending()).await.0;
        let Tried::Ended(outcome, _) = tried else { panic!("{tried:?}") };
        assert_eq!(outcome.result.unwrap_err().kind(), kind);
        assert_eq!(from.asked("COPY"), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_replica_over_root_is_tried() {
    use gridlane_xrd::answer::{error, ok};
    use gridlane_xrd::{ErrorCode, Request, RequestId};

    use crate::root::tests::Server;

    let to = Server::start(|stream, request| match request {
        Request::Query(_) => Some(vec![ok(stream, b"1\n0:adler32\n\0")]),
        _ => None,
    })
    .await;
    let absent = Server::start(|_, _| None).await;
    let shut = Server::start(|stream, request| match request {
        Request::Open(_) => Some(vec![error(stream, ErrorCode::NOT_AUTHORIZED, "no")]),
        _ => None,
    })
    .await;
    let initiator = Initiator::default();
    let client = crate::connect(Trust::default());
    for (sources, streams, told) in [
        ([&absent, &absent], false, &[Detour::OneSource][..]),
        ([&absent, &shut], true, &[Detour::Streamed]),
        ([&shut, &absent], true, &[Detour::Streamed]),
    ] {
        let before = absent.asked(RequestId::OPEN) + shut.asked(RequestId::OPEN);
        let urls = sources.map(|server| server.url.clone());
        let ends = (&client, &urls[..], &to.url);
        let asked = (&options(), wish(ThirdParty::Auto));
        let (tried, heard) = copied(&initiator, ends, asked, std::future::pending()).await;
        match tried {
            Tried::Streams => assert!(streams),
            Tried::Ended(outcome, _) => {
                assert_eq!((outcome.result.unwrap_err().kind(), streams), (ErrorKind::NotFound, false));
            }
        }
        assert_eq!(heard, told);
        assert_eq!(absent.asked(RequestId::OPEN) + shut.asked(RequestId::OPEN), before + 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_has_made_is_not_removed() {
    // Refused for being busy; then the file is there, as of another copy.
    let to = Server::start(|head, before| match head.split(' ').next().unwrap() {
        "HEAD" if before == 0 => said(404, "", ""),
        "HEAD" => file("adler32=00000002"),
        "COPY" => said(507, "", ""),
        _ => said(204, "", ""),
    })
    .await;
    only(&source().await, &to).await.unwrap_err();
    assert_eq!((to.asked("COPY"), to.asked("DELETE")), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_copy_whose_end_is_not_told_the_target_is_looked_at() {
    // The connection breaks before the head; or the answer is one without a body.
    for answer in [String::new(), said(201, "", "")] {
        for (is_made, is_right) in [(true, true), (true, false), (false, false)] {
            let answer = answer.clone();
            let has_head = !answer.is_empty();
            let digest = if is_right { "adler32=00000001" } else { "adler32=00000002" };
            let mut copied = false;
            let to = Server::start(move |head, _| match head.split(' ').next().unwrap() {
                "COPY" => {
                    copied = true;
                    answer.clone()
                }
                "HEAD" if copied && is_made => file(digest),
                "HEAD" => said(404, "", ""),
                _ => said(204, "", ""),
            })
            .await;
            let ended = only(&source().await, &to).await;
            assert_eq!((ended.is_ok(), to.asked("COPY")), (is_right, 1), "{ended:?}");
            // Only what a server has made that had begun is removed.
            assert_eq!(to.asked("DELETE"), usize::from(has_head && is_made && !is_right), "{ended:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checksum_that_only_the_user_knows_is_compared_or_the_copy_fails() {
    let mut copied_once = false;
    let to = Server::start(move |head, _| match head.split(' ').next().unwrap() {
        "COPY" => {
            copied_once = true;
            said(201, "", "success: Created")
        }
        "HEAD" if copied_once => file("adler32=00000001"),
        "HEAD" => said(404, "", ""),
        _ => said(204, "", ""),
    })
    .await;
    let (from, client) = (source().await, crate::connect(Trust::default()));
    let md5 = Checksum::from_hex(ChecksumKind::Md5, "d41d8cd98f00b204e9800998ecf8427e");
    let options = Options { checksum: Some((ChecksumKind::Md5, md5)), ..options() };
    let ends = (&client, &[from.url.clone()][..], &to.url);
    let asked = (&options, wish(ThirdParty::Only));
    let tried = copied(&Initiator::default(), ends, asked, std::future::pending()).await.0;
    let Tried::Ended(outcome, _) = tried else { panic!("{tried:?}") };
    let failed = outcome.result.unwrap_err();
    assert_eq!((failed.kind(), to.asked("DELETE")), (ErrorKind::ChecksumMismatch, 1), "{failed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_there_and_still_is_is_not_removed() {
    // The source's server says that it has sent the file, and has not.
    let from = Server::start(|head, _| match head.split(' ').next().unwrap() {
        "HEAD" => file("adler32=00000001"),
        _ => said(202, "", "success: Created"),
    })
    .await;
    for (after, removed) in [("\"old\"", 0), ("\"new\"", 1)] {
        let to = Server::start(move |head, before| match head.split(' ').next().unwrap() {
            "HEAD" => {
                let tag = if before == 0 { "\"old\"" } else { after };
                said(200, &format!("ETag: {tag}\r\nDigest: adler32=00000002\r\nContent-Length: 5\r\n"), "")
            }
            _ => said(204, "", ""),
        })
        .await;
        let failed = ended(&from, &to, Mode::Push, true, std::future::pending()).await.unwrap_err();
        assert_eq!(failed.message().contains("is still there"), removed == 0, "{failed}");
        assert_eq!(to.asked("DELETE"), removed, "{failed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_not_copied_onto_itself_by_another_name() {
    let mut at_name =
        Server::start(|head, _| if is(head, "HEAD") { file("") } else { said(201, "", "") }).await;
    let by_number = Server { url: at_name.url.clone(), asked: at_name.asked.clone() };
    let named = at_name.url.as_str().replace("127.0.0.1", "localhost");
    at_name.url = Url::parse_absolute(&named).unwrap();
    let failed = ended(&at_name, &by_number, Mode::Pull, true, std::future::pending()).await.unwrap_err();
    assert_eq!((failed.kind(), at_name.asked("COPY")), (ErrorKind::Usage, 0), "{failed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_begins_while_it_is_stopped_is_removed() {
    // The answer comes after the stop; it has begun, or has refused. What stays there is then another's.
    for (answer, removed) in [(202, 1), (403, 0)] {
        let begun = Arc::new(tokio::sync::Notify::new());
        let (telling, mut has_begun) = (begun.clone(), false);
        let to = Server::start(move |head, _| match head.split(' ').next().unwrap() {
            "COPY" => {
                has_begun = true;
                telling.notify_one();
                std::thread::sleep(Duration::from_millis(300));
                said(answer, "", "Perf Marker\nEnd\n")
            }
            "HEAD" if has_begun => file(""),
            "HEAD" => said(404, "", ""),
            _ => said(204, "", ""),
        })
        .await;
        let stop = async move { begun.notified().await };
        let stopped = ended(&source().await, &to, Mode::Pull, false, stop).await.unwrap_err();
        assert_eq!(stopped.kind(), ErrorKind::Interrupted);
        assert_eq!(to.asked("DELETE"), removed, "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_is_made_and_was_not_compared_is_removed_when_it_is_stopped() {
    // A server whose name says that it keeps what exists is not asked before.
    let made = Arc::new(tokio::sync::Notify::new());
    let (telling, mut is_made) = (made.clone(), false);
    let to = Server::start(move |head, _| match head.split(' ').next().unwrap() {
        "COPY" => {
            is_made = true;
            said(202, "", "success: Created\n")
        }
        "HEAD" if is_made => {
            telling.notify_one();
            std::thread::sleep(Duration::from_millis(300));
            file("adler32=00000001")
        }
        "HEAD" => said(404, "Server: gridlane/1\r\n", ""),
        _ => said(204, "", ""),
    })
    .await;
    let stop = async move { made.notified().await };
    let stopped = ended(&source().await, &to, Mode::Pull, false, stop).await.unwrap_err();
    assert_eq!((stopped.kind(), to.asked("DELETE")), (ErrorKind::Interrupted, 1), "{stopped}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_has_told_its_failure_is_not_waited_for() {
    let mut has_failed = false;
    let to = Server::start(move |head, _| match head.split(' ').next().unwrap() {
        "COPY" => {
            has_failed = true;
            said(202, "", "failure: no\n")
        }
        // As XRootD leaves it.
        "HEAD" if has_failed => file(""),
        "HEAD" => said(404, "", ""),
        _ => said(204, "", ""),
    })
    .await;
    only(&source().await, &to).await.unwrap_err();
    assert_eq!((to.asked("HEAD"), to.asked("DELETE")), (2, 1));
}

#[test]
fn what_a_server_says_of_others_and_of_files_does_not_make_it_unable() {
    let endpoint = Url::parse_absolute("http://h/f").unwrap().endpoint();
    for (status, mode, is_unable) in [
        (500, Mode::Pull, true),
        (404, Mode::Pull, true),
        (404, Mode::Push, false),
        (502, Mode::Pull, false),
        (504, Mode::Push, false),
        (403, Mode::Pull, false),
    ] {
        let initiator = Initiator::default();
        let why = Error::new(ErrorKind::Other, "no").http_status(status);
        for _ in 0..REFUSALS_MAX {
            initiator.refused((endpoint.clone(), mode), &why);
        }
        assert_eq!(initiator.lock().unable.len(), usize::from(is_unable), "{status} {mode}");
    }
}

#[test]
fn credentials_are_renewed_while_the_copy_goes_on_and_never_in_a_loop() {
    let mut renewals = Renewals::default();
    assert!((1..100).all(|moved_bytes| renewals.may_be_one_more(moved_bytes)));
    // The server begins again and again, and comes no further.
    let in_vain = (0..100).filter(|_| renewals.may_be_one_more(50)).count();
    assert_eq!(in_vain, THIRD_PARTY_RENEWALS_IN_VAIN_MAX as usize - 1);
    let mut renewals = Renewals::default();
    let most = (0..u64::from(2 * THIRD_PARTY_RENEWALS_MAX)).filter(|moved| renewals.may_be_one_more(*moved));
    assert_eq!(most.count(), THIRD_PARTY_RENEWALS_MAX as usize);
    assert_eq!(renewals.pause(), None, "the first one is at once");
    assert!(renewals.pause().is_some_and(|pause| pause <= THIRD_PARTY_RENEWAL_INTERVAL));
}

/// The active server is refused by the passive one in the middle, and the user has the same credential still, or none.
#[tokio::test]
async fn a_refused_copy_is_not_asked_for_again_without_another_credential() {
    let error = Error::new(ErrorKind::Denied, "the token expired");
    let client = crate::connect(Trust::default());
    let url = Url::parse_absolute("https://se.example/f").unwrap();
    let found = renewed(&client, &url, Mode::Pull, None, None, false).await.unwrap();
    assert!(matches!(found.1, Renewal::Same) && found.0.value.is_none());
    assert_eq!(found.1.explain(error.clone()).message(), error.message());
    // One that was got a moment ago is refused for another reason than its age.
    let macaroon = Secret::new("Bearer macaroon");
    let fresh = renewed(&client, &url, Mode::Pull, None, Some(&macaroon), true).await.unwrap();
    assert!(matches!(fresh.1, Renewal::Same) && fresh.0.value == Some(macaroon.clone()));
    let old = renewed(&client, &url, Mode::Pull, None, Some(&macaroon), false).await.unwrap();
    assert!(matches!(old.1, Renewal::Another));
}

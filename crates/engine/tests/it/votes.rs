//! The sources whose answers count, over real sockets: the honest answer when the copy has every byte already and
//! waits, so that order is what the tests say it is, however busy the machine.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

use crate::script;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use crate::support::{to_file, to_file_by};
use gridlane_core::checksum::adler32;
use gridlane_core::{Checksum, ChecksumKind, ErrorKind, Hasher, Url};
use gridlane_dav::digest;
use gridlane_engine::{Basis, CopySpec, Event, Observer, Options, Outcome, State, TargetSpec, copy};
use gridlane_net::Dialer;
use gridlane_net::tls::Trust;
use gridlane_peer::Client;
use gridlane_store::journal_key::JournalKeys;
use script::{Reply, Scripted, Seen};

/// Longer than anything takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// Opens a gate when every byte is there and words are waited for.
#[derive(Clone, Default)]
struct Gate(Arc<AtomicBool>);

impl Gate {
    fn wait(&self) {
        let begun = Instant::now();
        // The runtime's other threads go on, also where this one has waited for its sockets and clocks.
        tokio::task::block_in_place(|| {
            while !self.0.load(SeqCst) && begun.elapsed() < DEADLINE {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    }
}

impl Observer for Gate {
    fn event(&mut self, event: &Event<'_>) {
        if matches!(event, Event::Progress(snapshot) if snapshot.verifying) {
            self.0.store(true, SeqCst);
        }
    }
}

/// What a server does with its file.
#[derive(Clone)]
struct Replica {
    bytes: Arc<Vec<u8>>,
    /// The checksum that it says when it is asked.
    says: Option<Checksum>,
    /// The checksum that it says when it is asked for a strong one.
    strong: Option<Checksum>,
    /// It does not answer a HEAD that asks for a checksum, or any, until this is open.
    owes: Option<(Gate, bool)>,
    /// Fields of every answer that succeeds.
    fields: String,
    /// It answers when this is open.
    gate: Option<Gate>,
}

impl Replica {
    fn new(bytes: &[u8]) -> Replica {
        let says = Some(Checksum::adler32(adler32(bytes)));
        let bytes = Arc::new(bytes.to_vec());
        Replica { bytes, says, strong: None, owes: None, fields: String::new(), gate: None }
    }

    fn silent(self) -> Replica {
        Replica { says: None, ..self }
    }

    fn behind(self, gate: &Gate) -> Replica {
        Replica { gate: Some(gate.clone()), ..self }
    }

    fn stating(mut self, field: &str) -> Replica {
        self.fields += &format!("{field}\r\n");
        self
    }

    fn answer(&self, seen: &Seen) -> Reply {
        if let Some(gate) = &self.gate {
            gate.wait();
        }
        if let Some((gate, is_any)) = &self.owes
            && seen.method() == "HEAD"
            && (*is_any || seen.field("want-digest").is_some())
        {
            gate.wait();
        }
        let size = self.bytes.len();
        let is_strong = seen.field("want-digest").is_some_and(|wanted| wanted.contains("sha-512"));
        let says = self.strong.as_ref().filter(|_| is_strong).or(self.says.as_ref());
        let wanted = seen.field("want-digest").and(says);
        let digest = wanted.map(|said| format!("Digest: {}\r\n", digest::encode(said))).unwrap_or_default();
        let fields = format!("{digest}{}", self.fields);
        if seen.method() == "HEAD" {
            return Reply::Bytes(format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {size}\r\n\r\n").into());
        }
        let range = seen.field("range").and_then(|range| range["bytes=".len()..].split_once('-'));
        let (start, end) = range.map_or((0, size), |(start, end)| {
            (start.parse().unwrap(), end.parse::<usize>().unwrap().saturating_add(1).min(size))
        });
        if start >= size {
            let head =
                format!("HTTP/1.1 416 No\r\nContent-Range: bytes */{size}\r\nContent-Length: 0\r\n\r\n");
            return Reply::Bytes(head.into());
        }
        let head = format!(
            "HTTP/1.1 206 Part\r\n{fields}Content-Range: bytes {start}-{}/{size}\r\nContent-Length: {}\r\n\r\n",
            end - 1,
            end - start
        );
        Reply::Bytes([head.as_bytes(), &self.bytes[start..end]].concat())
    }

    async fn start(self) -> Scripted {
        Scripted::start(move |seen| self.answer(seen)).await
    }
}

fn noise(seed: u8, size: usize) -> Vec<u8> {
    (0..size).map(|at| (at % 251) as u8 ^ seed).collect()
}

fn checksum(kind: ChecksumKind, bytes: &[u8]) -> Checksum {
    let mut hasher = Hasher::new(kind);
    hasher.update(bytes);
    hasher.finish()
}

fn client() -> Client {
    Client::new(Dialer::new(Trust::default()), Duration::from_secs(30))
}

async fn copied(replicas: &[Replica], gate: &Gate, target: TargetSpec, options: Options) -> Outcome {
    let mut servers = Vec::new();
    for replica in replicas {
        servers.push(replica.clone().start().await);
    }
    let sources: Vec<Url> = servers.iter().map(|server| server.url("/f")).collect();
    let spec = CopySpec { sources, target, options };
    copy(spec, client(), &mut gate.clone(), std::future::pending()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn two_honest_replicas_outvote_a_liar_that_was_done_before_they_answered() {
    for size in [3000, 3_000_000] {
        let truth = noise(1, size);
        // Another file of the same size, and one of another.
        for lie in [noise(2, size), noise(3, size / 2)] {
            for place in 0..3 {
                let gate = Gate::default();
                let honest = Replica::new(&truth).behind(&gate);
                let mut replicas = vec![honest.clone(), honest];
                replicas.insert(place, Replica::new(&lie));
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("f");
                let outcome = copied(&replicas, &gate, to_file(&path), Options::default()).await;
                assert!(outcome.result.is_ok(), "{place}: {:?}", outcome.result);
                assert!(std::fs::read(&path).unwrap() == truth, "{place}: wrong bytes");
                let Some(Basis::Sources { agreeing: 2, named: 3, .. }) = outcome.report.verified else {
                    panic!("{:?}", outcome.report.verified)
                };
                assert_eq!(outcome.report.sources[place].state, State::Wrong);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn the_only_one_that_knows_the_checksum_is_waited_for() {
    let (truth, lie) = (noise(1, 200_000), noise(2, 200_000));
    let gate = Gate::default();
    let replicas = [Replica::new(&lie).silent(), Replica::new(&truth).behind(&gate)];
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let outcome = copied(&replicas, &gate, to_file(&path), Options::default()).await;
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    assert!(std::fs::read(&path).unwrap() == truth);
    let one_of_two = Basis::Sources { agreeing: 1, said: 1, named: 2 };
    assert_eq!(outcome.report.verified, Some(one_of_two));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_contradiction_that_nobody_resolves_is_a_failure_and_one_voice_of_three_is_counted() {
    let (one, two) = (noise(1, 5000), noise(2, 5000));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    for other in [two.clone(), noise(2, 4000)] {
        let gate = Gate::default();
        let mut replicas = vec![Replica::new(&one), Replica::new(&other)];
        if other.len() == one.len() {
            // Its word about the size would decide between two.
            replicas.push(Replica::new(&one).silent());
        }
        let outcome = copied(&replicas, &gate, to_file(&path), Options::default()).await;
        assert_eq!(outcome.result.unwrap_err().kind(), ErrorKind::ChecksumMismatch);
        assert!(!path.exists());
        std::fs::read_dir(dir.path())
            .unwrap()
            .for_each(|left| drop(std::fs::remove_file(left.unwrap().path())));
    }
    let mute = Replica::new(&one).silent();
    let replicas = [mute.clone(), Replica::new(&one), mute];
    let outcome = copied(&replicas, &Gate::default(), to_file(&path), Options::default()).await;
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    assert_eq!(outcome.report.verified, Some(Basis::Sources { agreeing: 1, said: 1, named: 3 }));
}

/// Each holds its first answer until all three were asked: a copy that asked one after the other would wait for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn three_near_mirrors_of_a_small_file_have_voted_after_one_round_trip() {
    let bytes = noise(1, 3000);
    let asked: Arc<[AtomicBool; 3]> = Arc::default();
    let was_late = Arc::new(AtomicBool::new(false));
    let mut servers = Vec::new();
    for number in 0..3 {
        let (replica, asked, was_late) = (Replica::new(&bytes), asked.clone(), was_late.clone());
        servers.push(
            Scripted::start(move |seen| {
                // What is behind the end of the file is refused without a checksum.
                let start = seen
                    .field("range")
                    .map_or("0", |range| range["bytes=".len()..].split('-').next().unwrap());
                if seen.field("want-digest").is_some() && start.parse::<usize>().unwrap() < 3000 {
                    asked[number].store(true, SeqCst);
                }
                let begun = Instant::now();
                while !asked.iter().all(|asked| asked.load(SeqCst)) {
                    if begun.elapsed() > DEADLINE / 4 {
                        was_late.store(true, SeqCst);
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                replica.answer(seen)
            })
            .await,
        );
    }
    let dir = tempfile::tempdir().unwrap();
    let sources: Vec<Url> = servers.iter().map(|server| server.url("/f")).collect();
    let spec = CopySpec { sources, target: to_file(&dir.path().join("f")), options: Options::default() };
    let outcome = copy(spec, client(), &mut Gate::default(), std::future::pending()).await;
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    assert!(matches!(outcome.report.verified, Some(Basis::Sources { agreeing: 2.., .. })));
    assert!(!was_late.load(SeqCst), "somebody was asked only when others had answered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_strong_checksum_that_a_server_states_unasked_is_compared() {
    let (bytes, other) = (noise(1, 100_000), noise(2, 100_000));
    let base64 = |kind, bytes: &[u8]| {
        let encoded = digest::encode(&checksum(kind, bytes));
        encoded.split_once('=').unwrap().1.to_owned()
    };
    let fields = |bytes: &[u8]| {
        let (md5, sha256) = (base64(ChecksumKind::Md5, bytes), base64(ChecksumKind::Sha256, bytes));
        [
            format!("Content-MD5: {md5}"),
            format!("Digest: md5={md5}"),
            format!("Digest: sha-256={sha256}"),
            format!("Repr-Digest: sha-256=:{sha256}:"),
            format!("Content-Digest: sha-256=:{sha256}:"),
        ]
    };
    for (right, wrong) in fields(&bytes).iter().zip(fields(&other)) {
        for into_stream in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("f");
            let target = || match into_stream {
                true => TargetSpec::pipe(std::fs::File::create(&path).unwrap()),
                false => to_file(&path),
            };
            let silent = Replica::new(&bytes).silent();
            let replica = [silent.clone().stating(&wrong)];
            let outcome = copied(&replica, &Gate::default(), target(), Options::default()).await;
            let error = outcome.result.expect_err(&wrong);
            assert_eq!(error.kind(), ErrorKind::ChecksumMismatch, "{wrong}: {error}");
            assert_eq!(path.exists(), into_stream);
            // Also of one whose adler32 is right.
            let replica = [Replica::new(&bytes).stating(&wrong)];
            let outcome = copied(&replica, &Gate::default(), target(), Options::default()).await;
            assert!(outcome.result.is_err(), "{wrong}");

            let replica = [silent.stating(right)];
            let outcome = copied(&replica, &Gate::default(), target(), Options::default()).await;
            assert!(outcome.result.is_ok(), "{right}: {:?}", outcome.result);
            assert!(outcome.report.verified.is_some(), "{right}");
            assert!(outcome.report.checksum.unwrap().kind().strength() >= ChecksumKind::Md5.strength());
            let _ = std::fs::remove_file(&path);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn bytes_that_must_be_compared_and_cannot_be_never_become_visible() {
    let bytes = noise(1, 50_000);
    let options = || Options { require_verified: true, ..Options::default() };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let silent = [Replica::new(&bytes).silent()];
    let outcome = copied(&silent, &Gate::default(), to_file(&path), options()).await;
    assert_eq!(outcome.result.unwrap_err().kind(), ErrorKind::ChecksumMismatch);
    assert!(!path.exists());
    let of_kind = Options { checksum: Some((ChecksumKind::Sha256, None)), ..options() };
    let outcome = copied(&silent, &Gate::default(), to_file(&path), of_kind).await;
    assert!(outcome.result.unwrap_err().message().contains("sha256") && !path.exists());
    let stream = TargetSpec::pipe(std::fs::File::create(dir.path().join("stream")).unwrap());
    let error = copied(&silent, &Gate::default(), stream, options()).await.result.unwrap_err();
    assert!(error.advice().unwrap().to_string().contains("do not use"), "{error}");
    let outcome = copied(&[Replica::new(&bytes)], &Gate::default(), to_file(&path), options()).await;
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    assert!(std::fs::read(&path).unwrap() == bytes);
}

/// What a server did not say in time once, the next files of a command need not wait for: neither of one that never
/// answers, nor of one that sends bytes and owes its checksum.
#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_server_that_does_not_say_its_checksum_is_waited_for_once() {
    let bytes = noise(1, 1000);
    let good = Replica::new(&bytes).start().await;
    let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mute_url = Url::parse_absolute(&format!("http://{}/f", mute.local_addr().unwrap())).unwrap();
    let gate = Gate::default();
    let owing = Replica { owes: Some((gate.clone(), false)), ..Replica::new(&bytes).silent() }.start().await;
    for other in [mute_url, owing.url("/f")] {
        let client = client();
        let dir = tempfile::tempdir().unwrap();
        // The second time it would be waited for longer than the test lasts.
        for (name, patience) in [("one", Duration::from_secs(2)), ("two", 20 * DEADLINE)] {
            let sources = vec![good.url("/f"), other.clone()];
            let options = Options { patience, ..Options::default() };
            let spec = CopySpec { sources, target: to_file(&dir.path().join(name)), options };
            let mut quiet = Gate::default();
            let copying = copy(spec, client.clone(), &mut quiet, std::future::pending());
            let outcome = tokio::time::timeout(DEADLINE, copying).await.expect("it is waited for again");
            assert!(outcome.result.is_ok(), "{:?}", outcome.result);
            assert_eq!(outcome.report.verified, Some(Basis::Sources { agreeing: 1, said: 1, named: 2 }));
            let is_late = outcome.report.seconds >= 2.0;
            assert!(is_late || name == "two", "{other} was not waited for: {}", outcome.report.seconds);
        }
    }
    gate.0.store(true, SeqCst);
}

/// A server that answered nothing while one file was copied may send bytes of the next one: its checksum is not waited for again.
#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_server_that_was_silent_and_sends_bytes_is_not_waited_for_again() {
    let bytes = noise(1, 1000);
    let (shut, is_second, has_sent) = (Gate::default(), Gate::default(), Gate::default());
    let (sends, second, sent) = (Replica::new(&bytes).silent(), is_second.clone(), has_sent.clone());
    let never = shut.clone();
    let other = Scripted::start(move |seen| {
        if !second.0.load(SeqCst) || seen.method() == "HEAD" {
            never.wait();
        }
        sent.0.store(true, SeqCst);
        sends.answer(seen)
    })
    .await;
    let (has_it, second, sent) = (Replica::new(&bytes), is_second.clone(), has_sent.clone());
    let good = Scripted::start(move |seen| {
        if second.0.load(SeqCst) {
            // The other one is to be asked for what does not come.
            sent.wait();
        }
        has_it.answer(seen)
    })
    .await;
    let (client, dir) = (client(), tempfile::tempdir().unwrap());
    for (name, patience) in [("one", Duration::from_secs(2)), ("two", 20 * DEADLINE)] {
        let options = Options { patience, ..Options::default() };
        let sources = vec![good.url("/f"), other.url("/f")];
        let spec = CopySpec { sources, target: to_file(&dir.path().join(name)), options };
        let mut quiet = Gate::default();
        let copying = copy(spec, client.clone(), &mut quiet, std::future::pending());
        let outcome = tokio::time::timeout(DEADLINE, copying).await.expect("it is waited for again");
        assert!(outcome.result.is_ok(), "{:?}", outcome.result);
        assert_eq!((name == "two", has_sent.0.load(SeqCst)), (is_second.0.load(SeqCst), name == "two"));
        is_second.0.store(true, SeqCst);
    }
    shut.0.store(true, SeqCst);
}

/// The lane that was to ask it is closed when the copy starts over with another size.
#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_replica_that_was_being_asked_when_the_copy_started_over_is_asked_again() {
    #[derive(Clone, Default)]
    struct Restarted(Gate, Gate);
    impl Observer for Restarted {
        fn event(&mut self, event: &Event<'_>) {
            self.0.event(event);
            if matches!(event, Event::Started { size_bytes: 3000 }) {
                self.1.0.store(true, SeqCst);
            }
        }
    }
    let (truth, lie) = (noise(1, 3000), noise(2, 1500));
    let mut observer = Restarted::default();
    let (gate, restarted) = (observer.0.clone(), observer.1.clone());
    let replicas = [
        Replica::new(&lie),
        Replica::new(&truth).behind(&gate),
        Replica::new(&truth).silent().behind(&gate),
        Replica::new(&truth).behind(&restarted),
    ];
    let mut servers = Vec::new();
    for replica in replicas {
        servers.push(replica.start().await);
    }
    let dir = tempfile::tempdir().unwrap();
    let sources: Vec<Url> = servers.iter().map(|server| server.url("/f")).collect();
    let spec = CopySpec { sources, target: to_file(&dir.path().join("f")), options: Options::default() };
    let outcome = copy(spec, client(), &mut observer, std::future::pending()).await;
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    assert_eq!(outcome.report.verified, Some(Basis::Sources { agreeing: 2, said: 2, named: 4 }));
    assert!(std::fs::read(dir.path().join("f")).unwrap() == truth);
}

/// Stops a copy when some of it is there.
#[derive(Clone, Default)]
struct Some300Kb(Arc<tokio::sync::Notify>);

impl Observer for Some300Kb {
    fn event(&mut self, event: &Event<'_>) {
        if matches!(event, Event::Progress(snapshot) if snapshot.done_bytes >= 300_000) {
            self.0.notify_one();
        }
    }
}

/// The key of journals beside a path.
fn keys_at(path: &Path) -> JournalKeys {
    JournalKeys::at(path.with_file_name("journal.key"))
}

/// A copy of 3 MB of which an earlier run has left a part, from the same place.
async fn begun(from: &Url, path: &Path) -> Options {
    let options = Options { patience: Duration::from_secs(20), ..Options::default() };
    let limit = Some(gridlane_share::RateLimit::new(1_000_000));
    let spec = CopySpec {
        sources: vec![from.clone()],
        target: to_file_by(path, keys_at(path)),
        options: Options { limit, ..options.clone() },
    };
    let mut observer = Some300Kb::default();
    let stop = observer.0.clone();
    let outcome = copy(spec, client(), &mut observer, async move { stop.notified().await }).await;
    assert_eq!(outcome.result.unwrap_err().kind(), ErrorKind::Interrupted);
    options
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_that_makes_up_a_strong_checksum_does_not_beat_a_majority_in_a_copy_that_is_resumed() {
    let bytes = noise(1, 3_000_000);
    let right = checksum(ChecksumKind::Sha256, &bytes);
    let made_up = checksum(ChecksumKind::Sha256, b"something else");
    let honest = Replica::new(&bytes).stating("ETag: \"x\"").start().await;
    let strong = Replica { strong: Some(right), ..Replica::new(&bytes) }.start().await;
    let liar = Replica { strong: Some(made_up), ..Replica::new(&bytes) }.start().await;
    let adler32 = Checksum::adler32(adler32(&bytes));
    for (is_told, others, expected) in [
        (false, vec![&liar, &strong], Some(ChecksumKind::Sha256)),
        (true, vec![&liar], Some(ChecksumKind::Adler32)),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut options = begun(&honest.url("/f"), &path).await;
        options.checksum = is_told.then(|| (ChecksumKind::Adler32, Some(adler32.clone())));
        let sources: Vec<Url> = std::iter::once(&honest).chain(others).map(|one| one.url("/f")).collect();
        let spec = CopySpec { sources, target: to_file_by(&path, keys_at(&path)), options };
        let outcome = copy(spec, client(), &mut Gate::default(), std::future::pending()).await;
        assert!(outcome.result.is_ok(), "{:?}", outcome.result);
        assert!(outcome.report.resumed_bytes > 0);
        let two_of_three = Basis::Sources { agreeing: 2, said: 3, named: 3 };
        assert_eq!(outcome.report.verified, Some(if is_told { Basis::User } else { two_of_three }));
        assert_eq!(outcome.report.verified_with, expected);
        assert!(std::fs::read(&path).unwrap() == bytes);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn what_an_earlier_run_has_left_is_kept_while_no_source_has_said_its_version() {
    let bytes = noise(1, 3_000_000);
    for (is_any, is_kept) in [(true, true), (false, false)] {
        let shut = Gate::default();
        let listening = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let replica = Replica::new(&bytes).stating("ETag: \"x\"");
        let holds = Arc::new(AtomicBool::new(false));
        let (owing, is_held) =
            (Replica { owes: Some((shut.clone(), is_any)), ..replica.clone() }, holds.clone());
        let server = Scripted::on(listening, move |seen| match is_held.load(SeqCst) {
            true => owing.answer(seen),
            false => replica.answer(seen),
        });
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut options = begun(&server.url("/f"), &path).await;
        holds.store(true, SeqCst);
        options.patience = Duration::from_secs(3);
        let spec =
            CopySpec { sources: vec![server.url("/f")], target: to_file_by(&path, keys_at(&path)), options };
        let outcome = copy(spec, client(), &mut Gate::default(), std::future::pending()).await;
        shut.0.store(true, SeqCst);
        let part = std::fs::metadata(dir.path().join(".f.gridlane-part"));
        match outcome.result {
            Err(error) => {
                assert!(is_kept && error.kind() == ErrorKind::Timeout && error.is_retryable(), "{error}");
                assert!(part.unwrap().len() > 0);
            }
            // Its version is asked for without a checksum.
            Ok(()) => assert!(!is_kept && outcome.report.resumed_bytes > 0),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_an_earlier_run_has_left_is_kept_where_its_key_cannot_be_read() {
    let bytes = noise(1, 3_000_000);
    let server = Replica::new(&bytes).stating("ETag: \"x\"").start().await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let options = begun(&server.url("/f"), &path).await;
    for is_locked in [true, false] {
        let keys = if is_locked { JournalKeys::default() } else { keys_at(&path) };
        let target = to_file_by(&path, keys);
        let spec = CopySpec { sources: vec![server.url("/f")], target, options: options.clone() };
        let outcome = copy(spec, client(), &mut Gate::default(), std::future::pending()).await;
        match outcome.result {
            Err(error) => {
                assert!(is_locked && error.kind() == ErrorKind::LocalIo, "{error}");
                assert!(error.advice().unwrap().to_string().contains("XDG_STATE_HOME"), "{error}");
            }
            Ok(()) => assert!(!is_locked && outcome.report.resumed_bytes > 0),
        }
    }
}

//! Credentials that end while copies run: renewed on the way, and not.
//!
//! Tokens are good for [`LIFE_S`], a server bears no difference of clocks, and a thread writes a new one every
//! [`RENEWED_EVERY`], as `oidc-token` or `htgettoken` in a loop do. Files are sent so slowly that one outlives several tokens.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use gridlane_auth::make;
use gridlane_gsi::generate_rsa_pkcs8;
use ring::rand::SystemRandom;
use serde_json::json;

use crate::support::client::{Outcome, Running, cp, cp_r, text};
use crate::support::issuer::{Issuer, Signer, now_s, wlcg};
use crate::support::pki::{self, Pki};
use crate::support::secrets;
use crate::support::serve::Server;
use crate::support::tree::assert_same_trees;
use crate::support::{Scratch, assert_same, content, part_of};

const AUDIENCE: &str = "https://storage.example:1094";
/// Seconds for which a token is good.
const LIFE_S: i64 = 20;
const RENEWED_EVERY: Duration = Duration::from_secs(12);
/// What the tokens open.
const SCOPE: &str = "storage.read:/ storage.modify:/";
/// Bytes per second of what is slow.
const RATE: usize = 400_000;
/// A copy with renewals may be later than its twin without any by this, for each minute that it takes. What an interrupted request
/// has brought beyond the last verified piece is fetched again, and all is slow here.
const LATE_MAX: Duration = Duration::from_secs(2);

/// Writes credentials to a file.
struct Desk {
    file: PathBuf,
    /// A credential that is good from now on.
    make: Box<dyn Fn() -> String + Send + Sync>,
}

impl Desk {
    /// One that gives tokens.
    fn of_tokens(file: PathBuf, signer: Arc<Signer>, issuer: String) -> Arc<Desk> {
        let make = move || {
            let claims = json!({"exp": now_s() + LIFE_S, "scope": SCOPE, "jti": now_s().to_string()});
            signer.token(&wlcg(&issuer, AUDIENCE, &claims))
        };
        Arc::new(Desk { file, make: Box::new(make) })
    }

    /// One that gives proxies of a user, with a key of RSA: XRootD's gsi knows no other.
    fn of_proxies(file: PathBuf, user: &pki::Credential) -> Arc<Desk> {
        let random = SystemRandom::new();
        let key = generate_rsa_pkcs8(2048).unwrap();
        let user = [&user.cert, &user.key].map(|file| fs::read(file).unwrap());
        let user = make::Credential::from_pem(&user[0], &user[1], &random).unwrap();
        let make = move || {
            let key = make::Key::from_pkcs8(&key, &random).unwrap();
            let terms = make::ProxyTerms::new(make::Validity::from_now(now_s(), LIFE_S));
            let proxy = make::proxy(&user, key, &terms, &random).unwrap().to_pem().expose().to_owned();
            secrets::remember_key(&proxy);
            proxy
        };
        Arc::new(Desk { file, make: Box::new(make) })
    }

    /// The file has another one from now on.
    fn renew(&self) {
        let new = self.file.with_extension("new");
        fs::write(&new, (self.make)()).unwrap();
        fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        fs::rename(new, &self.file).unwrap();
    }

    /// Goes on with that until it is told to end.
    fn open(self: Arc<Desk>, is_over: Arc<AtomicBool>) -> JoinHandle<()> {
        self.renew();
        spawn(move || {
            let mut renewed = Instant::now();
            while !is_over.load(Relaxed) {
                if renewed.elapsed() >= RENEWED_EVERY {
                    renewed = Instant::now();
                    self.renew();
                }
                sleep(Duration::from_millis(50));
            }
        })
    }
}

/// An issuer, and servers that believe it.
struct World {
    scratch: Scratch,
    issuer: Issuer,
    signer: Arc<Signer>,
}

impl World {
    fn new() -> World {
        let signer = Arc::new(Signer::es256("key"));
        let issuer = Issuer::start(&[&*signer]);
        World { scratch: Scratch::new(), issuer, signer }
    }

    /// A server of a directory, with further lines of `[serve]`, which trusts these other servers.
    fn server(&self, name: &str, lines: &str, trusted: &[&Server]) -> Server {
        let mut ca = vec![self.issuer.ca.clone()];
        ca.extend(trusted.iter().map(|server| server.ca()));
        let config = format!(
            "ca = {ca:?}\n[serve]\nlisten = [\"127.0.0.1:0\"]\nallow-write = true\naccess-log = {:?}\n{lines}\n\
             [[export]]\npath = \"/\"\ndirectory = {:?}\nallow-write = true\n\
             [auth]\naudiences = [{AUDIENCE:?}]\nclock-skew = \"0s\"\n\
             [[auth.issuer]]\nurl = {:?}\npath = \"/\"\n",
            self.scratch.join(format!("{name}.log")),
            self.scratch.dir(name),
            self.issuer.url,
        );
        Server::by_file(&self.scratch.file(&format!("{name}.toml"), config.as_bytes()))
    }

    /// The file of a token that lasts longer than the test.
    fn lasting_token(&self) -> PathBuf {
        let claims = json!({"exp": now_s() + 7200, "scope": SCOPE, "jti": "lasting"});
        let token = self.signer.token(&wlcg(&self.issuer.url, AUDIENCE, &claims));
        let file = self.scratch.file("lasting", token.as_bytes());
        fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        file
    }

    fn desk(&self, name: &str) -> Arc<Desk> {
        Desk::of_tokens(self.scratch.join(name), Arc::clone(&self.signer), self.issuer.url.clone())
    }

    fn put(&self, server: &str, name: &str, bytes: &[u8]) {
        fs::write(self.scratch.join(server).join(name), bytes).unwrap();
    }
}

/// A copy with the token of a file, by a client that trusts these servers.
fn with_token(mut command: std::process::Command, token: &Path, servers: &[&Server]) -> Running {
    command.arg("--token-file").arg(token);
    for server in servers {
        command.arg("--ca").arg(server.ca());
    }
    Running::start(command)
}

fn limited(mut command: std::process::Command) -> std::process::Command {
    command.args(["--limit-rate", &format!("{}kB/s", RATE / 1000)]);
    command
}

/// A copy that goes on, which should take so long.
struct Timed {
    what: String,
    lasts: Duration,
    waits: JoinHandle<Outcome>,
}

/// Waits for a copy on a thread of its own: when it ends is measured. It should take `lasts`.
fn timed(what: &str, running: Running, lasts: Duration) -> Timed {
    let waits = spawn(move || running.wait_within(lasts + Duration::from_secs(60)).ok());
    Timed { what: what.to_owned(), lasts, waits }
}

impl Timed {
    /// The time that it took beyond that, and more about it.
    fn late(self) -> (Duration, String) {
        let outcome = self.waits.join().unwrap();
        let late = outcome.elapsed.saturating_sub(self.lasts);
        println!("renewal: {} ended {:.2} s after its time", self.what, late.as_secs_f64());
        (late, outcome.describe())
    }

    /// It ends in time, compared with a twin that was so late: on the same machine, at the same time, with nothing to renew.
    fn ends_in_time(self, twin: Duration) {
        let lasts = self.lasts;
        let (late, outcome) = self.late();
        let behind = late.saturating_sub(twin);
        let minutes = u32::try_from(lasts.as_secs().div_ceil(60)).unwrap();
        assert!(behind <= minutes * LATE_MAX, "{:.2} s behind its twin\n{outcome}", behind.as_secs_f64());
    }
}

/// Seconds of the long test: a minute, or as many as `make soak` wants.
fn seconds() -> u64 {
    std::env::var("GRIDLANE_SOAK_SECONDS").map_or(55, |text| text.parse().expect("a number of seconds"))
}

/// One minute, or ten: every copy arrives whole and in time, although no token lasts for a third of it.
#[test]
fn copies_outlive_their_credentials() {
    let world = World::new();
    let slow = world.server("slow", &format!("limit-rate = \"{}kB\"", RATE / 1000), &[]);
    let fast = world.server("fast", "", &[&slow]);
    let whole = Duration::from_secs(seconds());
    let slow_s = whole.as_secs() as usize - 10;
    let bytes = content(2001, RATE * slow_s);
    let small = content(2002, 300_000);
    world.put("slow", "big", &bytes);
    world.put("fast", "big", &bytes);
    world.put("fast", "small", &small);
    let of_tree = world.scratch.dir("fast/tree");
    let files = 40;
    for number in 0..files {
        fs::write(of_tree.join(format!("f{number}")), &*content(number, RATE * slow_s / files as usize))
            .unwrap();
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let desk = world.desk("token");
    let renewing = Arc::clone(&desk).open(Arc::clone(&is_over));
    let token = desk.file.as_path();
    let began = Instant::now();
    let lasts = Duration::from_secs(slow_s as u64);
    let out = |name: &str| world.scratch.join(name);
    let https = |server: &Server, name: &str| server.url_over("https", name);
    let here = [&fast];
    let both = [&fast, &slow];
    let one = with_token(limited(cp(https(&fast, "big"), out("by-https"))), token, &here);
    let root = with_token(limited(cp(fast.url_over("roots", "/big"), out("by-roots"))), token, &here);
    let trees = with_token(limited(cp_r(https(&fast, "tree/"), out("tree"))), token, &here);
    let up = with_token(limited(cp(out("slow/big"), https(&fast, "up"))), token, &here);
    let mut pull = cp(https(&slow, "big"), https(&fast, "pulled"));
    pull.args(["--tpc", "only", "--tpc-mode", "pull"]);
    let pull = with_token(pull, token, &both);
    let slow_ones = [
        ("a file by https", one),
        ("a file by roots", root),
        ("a tree", trees),
        ("an upload", up),
        ("a pull", pull),
    ];
    let slow_ones = slow_ones.map(|(what, running)| timed(what, running, lasts));
    let lasting = world.lasting_token();
    let twin = with_token(limited(cp(https(&fast, "big"), out("twin"))), &lasting, &here);
    let twin = timed("a file whose token lasts", twin, lasts);
    // Beside them, small ones one after the other.
    let mut made = [0_u32; 4];
    let mut number = 0;
    while began.elapsed() < whole {
        number += 1;
        let way = number % made.len();
        let (to, at) = (format!("small-{number}"), out(&format!("small-{number}")));
        let (command, result) = match way {
            0 => (cp(https(&fast, "small"), &at), at.clone()),
            1 => (cp(fast.url_over("roots", "/small"), &at), at.clone()),
            2 => {
                let mut push = cp(https(&fast, "small"), https(&slow, &to));
                push.args(["--tpc", "only", "--tpc-mode", "push"]);
                (push, out("slow").join(&to))
            }
            _ => (cp(out("fast/small"), fast.url_over("roots", &format!("/{to}"))), out("fast").join(&to)),
        };
        with_token(command, token, &both).wait().ok();
        assert_same(&fs::read(&result).unwrap(), &small);
        fs::remove_file(&result).unwrap();
        made[way] += 1;
    }
    let (twin, _) = twin.late();
    for slow in slow_ones {
        slow.ends_in_time(twin);
    }
    for result in [out("twin"), out("by-https"), out("by-roots"), out("fast/up"), out("fast/pulled")] {
        assert_same(&fs::read(result).unwrap(), &bytes);
    }
    assert_same_trees(&of_tree, &out("tree"));
    // The pull was asked for again, with other tokens for the passive server.
    let log = fs::read_to_string(out("fast.log")).unwrap();
    let asked = log.lines().filter(|line| line.contains("COPY") && line.contains("/pulled")).count();
    assert!(asked >= slow_s / LIFE_S as usize, "{asked} requests");
    assert!(made.iter().all(|made| *made > 1), "{made:?}");
    println!("renewal: 4 slow files and a tree of {files}, small files {made:?}, in {:?}", began.elapsed());
    is_over.store(true, Relaxed);
    renewing.join().unwrap();
}

/// The token is not renewed: the copy says which one has ended, keeps what it has, and goes on when there is another.
#[test]
fn a_copy_whose_credential_ends_goes_on_with_another() {
    let world = World::new();
    let slow = world.server("slow", &format!("limit-rate = \"{}kB\"", RATE / 1000), &[]);
    let fast = world.server("fast", "", &[&slow]);
    let bytes = content(2003, RATE * (LIFE_S as usize + 10));
    for server in ["slow", "fast"] {
        world.put(server, "big", &bytes);
    }
    let desk = world.desk("token");
    desk.renew();
    let (token, target) = (desk.file.as_path(), world.scratch.join("big"));
    let get = || with_token(limited(cp(fast.url_over("https", "big"), &target)), token, &[&fast]);
    let third = || {
        let mut pull = cp(slow.url_over("https", "big"), fast.url_over("https", "pulled"));
        pull.args(["--tpc", "only", "--tpc-mode", "pull"]);
        with_token(pull, token, &[&fast, &slow])
    };
    let (failing, failing_third) = (get(), third());
    let words = ["expired", text(token)];
    let first = failing.wait().fails(4, "caller", false, &words);
    assert!(first.event("warning")["message"].as_str().unwrap().contains("perhaps before the end"));
    assert!(part_of(&target).exists());
    failing_third.wait().exits(4).says(&words);
    assert!(!world.scratch.join("fast/pulled").exists());
    desk.renew();
    let again_third = third();
    let again = get().wait().ok();
    let resumed = again.number("resumed_bytes");
    let fetched = again.number("fetched_bytes");
    assert!(resumed > bytes.len() as u64 / 4, "{}", again.describe());
    assert!(resumed + fetched <= bytes.len() as u64, "{}", again.describe());
    assert_same(&fs::read(&target).unwrap(), &bytes);
    // What the active server has verified it does not fetch again: there was no time for it.
    let began = Instant::now();
    again_third.wait().ok();
    assert!(began.elapsed() < Duration::from_secs(LIFE_S as u64), "{:?}", began.elapsed());
    assert_same(&fs::read(world.scratch.join("fast/pulled")).unwrap(), &bytes);
}

/// The same with proxies, over https and by gsi: connections that have shown the old one make way for others.
#[test]
fn a_copy_outlives_its_proxy() {
    let (scratch, pki) = (Scratch::new(), Pki::new());
    let bytes = content(2004, RATE * (2 * LIFE_S as usize - 5));
    scratch.file("served/big", &bytes);
    let of_tree = scratch.dir("served/tree");
    for number in 0..30 {
        fs::write(of_tree.join(format!("f{number}")), &*content(number, bytes.len() / 30)).unwrap();
    }
    let host = pki.credential("host-rsa");
    let config = format!(
        "[serve]\nlisten = [\"127.0.0.1:0\"]\ncert = {:?}\nkey = {:?}\naccess-log = {:?}\n\
         [[export]]\npath = \"/\"\ndirectory = {:?}\n[auth]\nclient-ca-dir = {:?}\n\
         [[rule]]\nwho = \"authenticated\"\nmay = [\"read\", \"list\"]\nunder = \"/\"\n",
        host.cert,
        host.key,
        scratch.join("log"),
        scratch.join("served"),
        pki.certificates(),
    );
    let server = Server::by_file(&scratch.file("serve.toml", config.as_bytes()));
    let url = server.url_over("https", "big").replace("127.0.0.1", "localhost");
    let user = pki.credential("ada");
    let (renewed, left) =
        (Desk::of_proxies(scratch.join("renewed"), &user), Desk::of_proxies(scratch.join("left"), &user));
    left.renew();
    let is_over = Arc::new(AtomicBool::new(false));
    let renewing = Arc::clone(&renewed).open(Arc::clone(&is_over));
    let get = |proxy: &Path, to: &Path| {
        let mut command = limited(cp(&url, to));
        command.arg("--cert").arg(proxy).arg("--ca").arg(pki.join("ca/cert.pem"));
        Running::start(command)
    };
    let (one, other) = (scratch.join("one"), scratch.join("other"));
    let lasts = Duration::from_secs((bytes.len() / RATE) as u64);
    let going = timed("a file by proxies", get(&renewed.file, &one), lasts);
    // Every file of a tree is opened by itself, in sessions of gsi: those of an old proxy open nothing any more.
    let of_tree = |proxy: &Path, to: &Path| {
        let mut command =
            limited(cp_r(server.url_over("root", "/tree/").replace("127.0.0.1", "localhost"), to));
        command
            .args(["--parallel", "2", "--update"])
            .arg("--cert")
            .arg(proxy)
            .arg("--ca")
            .arg(pki.join("ca/cert.pem"));
        Running::start(command)
    };
    let (tree, other_tree) = (scratch.join("tree"), scratch.join("other-tree"));
    let tree_going = timed("a tree by gsi", of_tree(&renewed.file, &tree), lasts);
    let tree_failing = of_tree(&left.file, &other_tree);
    let twin = {
        let mut command = limited(cp(&url, scratch.join("twin")));
        command
            .arg("--cert")
            .arg(&user.cert)
            .arg("--key")
            .arg(&user.key)
            .arg("--ca")
            .arg(pki.join("ca/cert.pem"));
        timed("a file by certificate", Running::start(command), lasts)
    };
    let failing = get(&left.file, &other);
    let words = ["expired", "the proxy of", text(&left.file)];
    failing.wait().fails(4, "caller", false, &words);
    assert!(part_of(&other).exists());
    let failed = tree_failing.wait_within(lasts + Duration::from_secs(60));
    assert_eq!(failed.code, Some(4), "{}", failed.describe());
    assert!(failed.describe().contains("expired"), "{}", failed.describe());
    let (twin, _) = twin.late();
    going.ends_in_time(twin);
    tree_going.ends_in_time(twin);
    assert_same(&fs::read(&one).unwrap(), &bytes);
    assert_same_trees(&scratch.join("served/tree"), &tree);
    let again = get(&renewed.file, &other).wait().ok();
    // And what had failed of the tree comes now.
    of_tree(&renewed.file, &other_tree).wait_within(lasts + Duration::from_secs(60)).ok();
    assert_same_trees(&scratch.join("served/tree"), &other_tree);
    is_over.store(true, Relaxed);
    renewing.join().unwrap();
    assert!(again.number("resumed_bytes") > bytes.len() as u64 / 4, "{}", again.describe());
    assert_same(&fs::read(&other).unwrap(), &bytes);
}

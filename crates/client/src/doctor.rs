//! What works here, and what does not: of this machine, and of endpoints.
//!
//! Every question is asked on its own, so that one that fails hides no other.

mod root;

use std::fmt;
use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use gridlane_core::limits::CLOCK_SKEW_MAX;
use gridlane_core::units::{format_bytes, format_seconds};
use gridlane_core::{Error, ErrorKind, Hint, Result, Url};
use gridlane_net::tls::Trust;
use gridlane_peer::Client;
use gridlane_peer::http::{Exchange, Purpose, Request};
use rustix::process::{Resource, getrlimit};
use serde::Serialize;

use crate::credentials::{Claims, Machine, Origin, TokenKind, Wanted, discover};

/// The quality of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It works and needs no attention.
    Ok,
    /// It works, and could be better or is worth knowing.
    Note,
    /// It does not work.
    Bad,
}

/// An answer of the diagnosis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Words that are the same for every front end.
    Text(String),
    /// Authorities of certificates: so many that this machine has for everything, and so many that were named.
    Authorities {
        /// Those of the machine.
        system: usize,
        /// Those that were named.
        named: usize,
    },
    /// Credentials are not shown, as was asked for.
    NothingShown,
}

impl From<&str> for Answer {
    fn from(words: &str) -> Answer {
        Answer::Text(words.to_owned())
    }
}

impl From<String> for Answer {
    fn from(words: String) -> Answer {
        Answer::Text(words)
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Text(words) => f.write_str(words),
            Answer::Authorities { system, named } => write!(f, "{system} of the system, {named} named"),
            Answer::NothingShown => f.write_str("none is sent, as was asked for"),
        }
    }
}

impl Verdict {
    /// The name used in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Note => "note",
            Verdict::Bad => "bad",
        }
    }
}

/// The failure that all of these are together: the first that does not work.
pub fn failure(findings: &[Finding]) -> Option<&Error> {
    findings.iter().filter(|finding| finding.verdict == Verdict::Bad).find_map(|bad| bad.error.as_ref())
}

/// One question with its answer.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The subject of the question, in a word or two.
    pub subject: &'static str,
    /// The quality of the answer.
    pub verdict: Verdict,
    /// The answer.
    pub answer: Answer,
    /// Advice, if there is something to do.
    pub advice: Option<Hint>,
    /// The failure behind it, if it is one.
    pub error: Option<Error>,
}

impl Finding {
    fn ok(subject: &'static str, answer: impl Into<Answer>) -> Finding {
        Finding { subject, verdict: Verdict::Ok, answer: answer.into(), advice: None, error: None }
    }

    fn note(subject: &'static str, answer: impl Into<Answer>, advice: impl Into<Hint>) -> Finding {
        let advice = Some(advice.into());
        Finding { subject, verdict: Verdict::Note, answer: answer.into(), advice, error: None }
    }

    fn bad(subject: &'static str, error: Error) -> Finding {
        let (answer, advice) = (error.message().into(), error.advice().cloned());
        Finding { subject, verdict: Verdict::Bad, answer, advice, error: Some(error) }
    }
}

/// The path for whose speed buffers are judged: 10 Gb/s at 100 ms are 125 MB in flight.
const FAR_PATH_BYTES: u64 = 125_000_000;

/// Descriptors that a copy of a large tree from several replicas may need.
const DESCRIPTORS_MIN: u64 = 1024;

/// The difference of clocks from which on it is worth a note.
const SKEW_NOTED: Duration = Duration::from_secs(5);

/// Examines what works on this machine.
pub fn examine_machine(trust: &Trust, wanted: &Wanted, machine: &dyn Machine) -> Vec<Finding> {
    let mut findings = vec![descriptors(), congestion_control()];
    findings.extend(buffers());
    findings.extend([routes(), beneath(), authorities(trust), records(trust)]);
    findings.extend(proxies());
    findings.extend(credentials(wanted, machine));
    findings
}

fn descriptors() -> Finding {
    let limit = getrlimit(Resource::Nofile);
    let word = |count: Option<u64>| count.map_or("unlimited".to_owned(), |count| count.to_string());
    let text = format!("{} at the same time, can be raised to {}", word(limit.current), word(limit.maximum));
    match limit.maximum {
        Some(most) if most < DESCRIPTORS_MIN => {
            Finding::note("open files", text, "raise the hard limit (ulimit -Hn, LimitNOFILE=)")
        }
        _ => Finding::ok("open files", text),
    }
}

fn kernel(name: &str) -> Option<String> {
    fs::read_to_string(Path::new("/proc/sys").join(name)).ok().map(|text| text.trim().to_owned())
}

fn congestion_control() -> Finding {
    const SUBJECT: &str = "congestion control";
    match kernel("net/ipv4/tcp_congestion_control") {
        Some(name) if name == "bbr" || name == "cubic" => Finding::ok(SUBJECT, name),
        Some(name) => Finding::note(SUBJECT, name, "bbr or cubic reach more on long paths"),
        None => Finding::note(SUBJECT, "the kernel does not tell", "is /proc mounted?"),
    }
}

/// The bytes that one TCP connection may have in flight in each direction.
fn buffers() -> Vec<Finding> {
    [("receive buffers", "net/ipv4/tcp_rmem"), ("send buffers", "net/ipv4/tcp_wmem")]
        .into_iter()
        .map(|(subject, name)| {
            let most = kernel(name).and_then(|text| text.split_whitespace().nth(2)?.parse::<u64>().ok());
            let Some(most) = most else {
                return Finding::note(subject, "the kernel does not tell", "is /proc mounted?");
            };
            // Half of the buffer is the kernel's own; what is left passes once in a round trip.
            let per_s = |round_trip_s: f64| format_bytes((most as f64 / 2.0 / round_trip_s) as u64);
            let text = format!(
                "at most {} a connection: about {}/s at 26 ms, {}/s at 100 ms",
                format_bytes(most),
                per_s(0.026),
                per_s(0.1)
            );
            match most < FAR_PATH_BYTES {
                true => Finding::note(
                    subject,
                    text,
                    format!(
                        "several connections make up for it; one alone needs a larger {}",
                        name.replace('/', ".")
                    ),
                ),
                false => Finding::ok(subject, text),
            }
        })
        .collect()
}

/// Looks for routes to the world. Connecting a datagram socket sends nothing.
fn routes() -> Finding {
    // Addresses of documentation (RFC 5737, RFC 3849) have the route of everything that is far away.
    let has = |from: &str, to: &str| {
        UdpSocket::bind(from).and_then(|socket| socket.connect(to).map(|()| socket)).is_ok()
    };
    let (four, six) = (has("0.0.0.0:0", "192.0.2.1:443"), has("[::]:0", "[2001:db8::1]:443"));
    match (four, six) {
        (true, true) => Finding::ok("routes", "IPv4 and IPv6"),
        (true, false) => Finding::note("routes", "IPv4 only", "sites that have IPv6 only cannot be reached"),
        (false, true) => Finding::note("routes", "IPv6 only", "sites that have IPv4 only cannot be reached"),
        (false, false) => {
            Finding::note("routes", "none beyond this machine", "check the network's configuration")
        }
    }
}

/// Examines if directories can be served: the kernel has to keep clients inside of them.
fn beneath() -> Finding {
    use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
    const SUBJECT: &str = "serving";
    match openat2(rustix::fs::CWD, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::BENEATH)
    {
        Ok(_) => Finding::ok(SUBJECT, "the kernel keeps clients inside of an export (openat2)"),
        Err(cause) => Finding::note(
            SUBJECT,
            format!("directories cannot be served: openat2: {cause}"),
            "it takes Linux 5.6 or later, and a sandbox that allows the call",
        ),
    }
}

fn authorities(trust: &Trust) -> Finding {
    const SUBJECT: &str = "authorities";
    if trust.insecure {
        return Finding::note(SUBJECT, "no certificate is checked", Hint::CheckServers);
    }
    match gridlane_net::tls::count_authorities(trust) {
        Ok((0, 0)) => {
            Finding::note(SUBJECT, "none: no server's certificate will be trusted", Hint::InstallAuthorities)
        }
        Ok((named, system)) => Finding::ok(SUBJECT, Answer::Authorities { system, named }),
        Err(error) => Finding::bad(SUBJECT, error),
    }
}

/// The code of TLS' records, which is a choice.
fn records(trust: &Trust) -> Finding {
    Finding::ok("records of TLS 1.3", trust.records.to_string())
}

/// The proxies that the environment names, without their passwords.
fn proxies() -> Vec<Finding> {
    let names =
        ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"];
    let set = names.iter().filter_map(|name| {
        let value = std::env::var(name).ok().filter(|value| !value.is_empty())?;
        let shown = Url::parse_absolute(&value).map_or(value.clone(), |url| url.to_string());
        let shown = if shown.contains('@') { "(with a password)".to_owned() } else { shown };
        Some(Finding::ok("proxy", format!("{name} is {shown}")))
    });
    set.collect()
}

/// Which credentials would be shown, without what is secret in them.
fn credentials(wanted: &Wanted, machine: &dyn Machine) -> Vec<Finding> {
    const SUBJECT: &str = "credentials";
    let found = match discover(wanted, machine) {
        Ok(found) => found,
        Err(error) => return vec![Finding::bad(SUBJECT, error)],
    };
    let now_s = machine.now_s();
    let is_valid = found.refuse_invalid(now_s);
    let judged = |subject, text: String| match &is_valid {
        Ok(()) => Finding::ok(subject, text),
        Err(error) => {
            let answer = format!("{text}: {}", error.message()).into();
            Finding { answer, ..Finding::bad(subject, error.clone()) }
        }
    };
    let mut findings = Vec::new();
    if let Some(token) = &found.token {
        let mut claims = token.claims.clone();
        let renewed = match &token.origin {
            Origin::Login(_) => {
                claims.ends_s = None;
                ", renewed when it is used"
            }
            _ => "",
        };
        let text = format!("{}: {}{renewed}", token.origin, token_text(&claims, now_s));
        findings.push(judged("token", text));
    }
    if let Some(certificate) = &found.certificate {
        let facts = certificate.identity.facts();
        let kind = match facts.proxies {
            0 => "certificate".to_owned(),
            1 => "proxy".to_owned(),
            levels => format!("proxy of {levels} levels"),
        };
        let issuer = if facts.issuer.is_empty() { String::new() } else { format!(" by {}", facts.issuer) };
        let text = format!(
            "{}: {kind} of {}{issuer}, {}",
            certificate.file.display(),
            facts.dn,
            ends(facts.ends_s, now_s)
        );
        findings.push(judged("certificate", text));
    }
    if let Some(keys) = &found.shared_keys {
        findings.push(match keys.count(machine) {
            Ok(count) => {
                let text =
                    format!("{}: {count}, for servers of root:// that ask for one", keys.file.display());
                Finding::ok("shared keys", text)
            }
            Err(wrong) => Finding::note(
                "shared keys",
                wrong,
                "servers that ask for one will not let this user in by it",
            ),
        });
    }
    findings.extend(
        found
            .passed_over
            .iter()
            .map(|text| Finding::note("passed over", text.as_str(), "make a proxy of it: voms-proxy-init")),
    );
    findings.extend(
        found
            .warnings
            .iter()
            .map(|warning| Finding::note(SUBJECT, warning.message.as_str(), warning.advice.clone())),
    );
    if found.token.is_none() && found.certificate.is_none() {
        let text = match wanted.nothing {
            true => Answer::NothingShown,
            false => "none: what anyone may read can be read".into(),
        };
        findings.push(Finding::ok(SUBJECT, text));
    }
    findings
}

fn token_text(claims: &Claims, now_s: i64) -> String {
    let kind = match claims.kind {
        TokenKind::Jwt => "JSON Web Token",
        TokenKind::Macaroon => "macaroon",
        TokenKind::Opaque => "a token that only its issuer can read",
    };
    let mut text = kind.to_owned();
    let parts = [
        ("of", &claims.issuer),
        ("for", &claims.subject),
        ("at", &claims.audience),
        ("scopes", &claims.scopes),
    ];
    for (word, claim) in parts {
        if let Some(claim) = claim {
            text.push_str(&format!(", {word} {claim}"));
        }
    }
    if let Some(ends_s) = claims.ends_s {
        text.push_str(&format!(", {}", ends(ends_s, now_s)));
    }
    text
}

fn ends(ends_s: i64, now_s: i64) -> String {
    let apart = format_seconds(ends_s.abs_diff(now_s) as f64);
    if ends_s > now_s { format!("expires in {apart}") } else { format!("expired {apart} ago") }
}

/// Examines what works with the server of a URL.
pub async fn examine_endpoint(client: &Client, url: &Url) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(path) = url.to_path() {
        findings.push(match fs::metadata(&path) {
            Ok(_) => Finding::ok("here", format!("{} is there", path.display())),
            Err(cause) => Finding::bad("here", Error::local_io("cannot look at it", &cause).endpoint(url)),
        });
        return findings;
    }
    let found = addresses(url).await;
    let is_known = found.verdict == Verdict::Ok;
    findings.push(found);
    if !is_known {
        return findings;
    }
    if url.scheme().is_root() {
        findings.extend(root::examine(&client.root, url).await);
        return findings;
    }
    let began = Instant::now();
    match client.http.connect(url, url, Purpose::Request, true).await {
        Ok(connected) => {
            let text = format!("{}, after {}", connected.connection.describe(), in_words(began.elapsed()));
            findings.push(Finding::ok("connection", text));
        }
        Err(error) => {
            findings.push(Finding::bad("connection", error));
            return findings;
        }
    }
    let want = [("Want-Digest", "adler32".to_owned())];
    let asked = SystemTime::now();
    let began = Instant::now();
    match ask(client, url, "HEAD", &want).await {
        Ok(exchange) => findings.extend(of_answer(exchange, asked, began.elapsed()).await),
        Err(error) => findings.push(Finding::bad("answer", error)),
    }
    if let Ok(exchange) = ask(client, url, "OPTIONS", &[]).await {
        findings.push(webdav(&exchange));
        exchange.finish().await;
    }
    findings
}

async fn ask(
    client: &Client,
    url: &Url,
    method: &'static str,
    headers: &[(&'static str, String)],
) -> Result<Exchange> {
    let request = Request { headers: headers.to_vec(), ..Request::new(method, url) };
    client.http.exchange(&request).await
}

async fn addresses(url: &Url) -> Finding {
    let began = Instant::now();
    match tokio::net::lookup_host((url.host(), url.port())).await {
        Ok(found) => {
            let list: Vec<String> = found.map(|address| address.ip().to_string()).collect();
            let took = match url.host().parse::<IpAddr>() {
                Ok(_) => String::new(),
                Err(_) => format!(" in {}", in_words(began.elapsed())),
            };
            Finding::ok("addresses", format!("{}{took}", list.join(", ")))
        }
        Err(cause) => {
            let message = format!("the name {:?} has none: {cause}", url.host());
            let error = Error::new(ErrorKind::Network, message);
            Finding::bad("addresses", error.hint("check the spelling and this machine's name service"))
        }
    }
}

async fn of_answer(exchange: Exchange, asked: SystemTime, took: Duration) -> Vec<Finding> {
    let head = &exchange.response.head;
    let server =
        head.headers.get("server").map_or(String::new(), |name| format!(" from {}", printable(name)));
    let text = format!("{}{server} in {}", exchange.status(), in_words(took));
    let mut findings = Vec::new();
    if exchange.status().is_success() {
        findings.push(Finding::ok("answer", text));
        let ranges = head.headers.list("accept-ranges").any(|unit| unit.eq_ignore_ascii_case("bytes"));
        if !exchange.url.is_directory_form() {
            findings.push(match ranges {
                true => Finding::ok("ranges", "yes: several connections, and copies that go on"),
                false => Finding::note("ranges", "not announced", "an interrupted copy may begin again"),
            });
            findings.push(match head.digests().is_empty() {
                false => Finding::ok("checksums", "the server tells adler32"),
                true => Finding::note("checksums", "the server tells none", Hint::CompareOtherwise),
            });
        }
    }
    findings.extend(clock(head.headers.get("date"), asked, took));
    if !exchange.status().is_success() {
        findings.insert(0, Finding::bad("answer", exchange.into_error().await));
    } else {
        exchange.finish().await;
    }
    findings
}

/// A time that a server took.
fn in_words(took: Duration) -> String {
    match took.as_secs() {
        0 => format!("{:.1} ms", took.as_secs_f64() * 1e3),
        _ => format_seconds(took.as_secs_f64()),
    }
}

/// The difference between the server's clock and ours. Its time is cut to seconds and some of it passed on the way.
fn clock(date: Option<&str>, asked: SystemTime, took: Duration) -> Option<Finding> {
    let theirs = gridlane_dav::date::parse(date?)?;
    let early = asked.duration_since(theirs).unwrap_or_default();
    let late = theirs.duration_since(asked + took).unwrap_or_default();
    let skew = early.max(late).saturating_sub(Duration::from_secs(1));
    let text = match (skew.is_zero(), late > early) {
        (true, _) => "agrees with the server's".to_owned(),
        (false, true) => format!("the server's is {} ahead", format_seconds(skew.as_secs_f64())),
        (false, false) => format!("the server's is {} behind", format_seconds(skew.as_secs_f64())),
    };
    let advice = "set the clock (timedatectl, chrony): certificates and tokens have times in them";
    Some(match skew {
        skew if skew > CLOCK_SKEW_MAX => {
            Finding::bad("clock", Error::new(ErrorKind::Other, text).hint(advice))
        }
        skew if skew > SKEW_NOTED => Finding::note("clock", text, advice),
        _ => Finding::ok("clock", text),
    })
}

fn webdav(exchange: &Exchange) -> Finding {
    let headers = &exchange.response.head.headers;
    let allowed: Vec<String> = headers.list("allow").map(str::to_ascii_uppercase).collect();
    let can = |method: &str| allowed.iter().any(|allowed| allowed == method);
    match headers.contains("dav") {
        true => {
            let mut words = vec!["lists"];
            words.extend(can("PUT").then_some("stores"));
            words.extend(can("DELETE").then_some("removes"));
            words.extend(can("MOVE").then_some("moves"));
            Finding::ok("WebDAV", words.join(", "))
        }
        false => Finding::note("WebDAV", "no", "directories are read from pages, if there are any"),
    }
}

/// A peer's text in the form in which it may be shown.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::ThisMachine;

    #[test]
    fn a_wrong_clock_is_seen_and_a_round_trip_is_none() {
        let asked = gridlane_dav::date::parse("Sun, 22 Nov 2026 10:00:00 GMT").unwrap();
        let took = Duration::from_secs(2);
        for (date, verdict, word) in [
            ("Sun, 22 Nov 2026 10:00:01 GMT", Verdict::Ok, "agrees"),
            ("Sun, 22 Nov 2026 09:59:59 GMT", Verdict::Ok, "agrees"),
            ("Sun, 22 Nov 2026 10:00:30 GMT", Verdict::Note, "ahead"),
            ("Sun, 22 Nov 2026 09:00:00 GMT", Verdict::Bad, "behind"),
        ] {
            let found = clock(Some(date), asked, took).unwrap();
            assert_eq!(found.verdict, verdict, "{date}: {found:?}");
            assert!(found.answer.to_string().contains(word), "{found:?}");
        }
        assert!(clock(None, asked, took).is_none() && clock(Some("soon"), asked, took).is_none());
    }

    #[test]
    fn this_machine_can_be_looked_at() {
        let findings = examine_machine(&Trust::default(), &Wanted::default(), &ThisMachine);
        for subject in ["open files", "routes", "serving", "authorities"] {
            assert!(findings.iter().any(|finding| finding.subject == subject), "{subject}");
        }
        let insecure = Trust { insecure: true, ..Trust::default() };
        let findings = examine_machine(&insecure, &Wanted::default(), &ThisMachine);
        assert!(
            findings
                .iter()
                .any(|finding| finding.subject == "authorities" && finding.verdict == Verdict::Note)
        );
    }
}

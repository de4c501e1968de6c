//! curl as the client of `gridlane serve`.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::support::client::{Running, text};
use crate::support::serve::Server;
use crate::support::tools::{curl, run_curl};
use crate::support::{MIB, Scratch, assert_ipv6_is_refused, assert_same, content, has_ipv6};

const SIZE: usize = 8 * MIB;

struct Site {
    scratch: Scratch,
    bytes: Arc<Vec<u8>>,
    server: Server,
}

impl Site {
    fn new(seed: u64) -> Site {
        let scratch = Scratch::new();
        let bytes = content(seed, SIZE);
        fs::write(scratch.dir("export").join("f"), &*bytes).unwrap();
        let mut command = Server::command(&scratch.join("export"));
        command.args(["--listen", "127.0.0.1:0", "--allow-write"]);
        if has_ipv6() {
            command.args(["--listen", "[::1]:0"]);
        }
        Site { scratch, bytes, server: Server::spawn(command) }
    }

    fn uploaded(&self, name: &str) -> Vec<u8> {
        fs::read(self.scratch.join("export").join(name)).unwrap()
    }
}

/// Head and body of an answer.
fn with_head(arguments: &[&str]) -> (String, Vec<u8>) {
    let mut all = vec!["--include"];
    all.extend(arguments);
    let outcome = run_curl(&all).ok();
    let end = outcome.stdout.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    (String::from_utf8_lossy(&outcome.stdout[..end]).to_lowercase(), outcome.stdout[end..].to_vec())
}

#[test]
fn get_head_and_ranges() {
    let site = Site::new(1301);
    let url = site.server.url("f");
    let (head, body) = with_head(&[&url]);
    assert!(head.starts_with("http/1.1 200") && head.contains("accept-ranges: bytes"), "{head}");
    assert!(head.contains(&format!("content-length: {SIZE}")) && head.contains("etag: \""), "{head}");
    assert!(head.contains("last-modified: ") && head.contains("date: "), "{head}");
    assert_same(&body, &site.bytes);

    let outcome = run_curl(&["--head", &url]).ok();
    assert!(outcome.text().to_lowercase().contains(&format!("content-length: {SIZE}")), "{}", outcome.text());

    for (range, first, end) in [
        ("0-0", 0, 1),
        ("100-199", 100, 200),
        ("8388600-", SIZE - 8, SIZE),
        ("-5", SIZE - 5, SIZE),
        ("8388600-99999999", SIZE - 8, SIZE),
    ] {
        let (head, body) = with_head(&["--range", range, &url]);
        assert!(head.starts_with("http/1.1 206"), "{range}: {head}");
        assert!(
            head.contains(&format!("content-range: bytes {first}-{}/{SIZE}", end - 1)),
            "{range}: {head}"
        );
        assert_same(&body, &site.bytes[first..end]);
    }
    let (head, _) = with_head(&["--range", "99999999-", &url]);
    assert!(
        head.starts_with("http/1.1 416") && head.contains(&format!("content-range: bytes */{SIZE}")),
        "{head}"
    );
}

#[test]
fn conditions() {
    let site = Site::new(1302);
    let url = site.server.url("f");
    let (head, _) = with_head(&["--range", "0-0", &url]);
    let etag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().trim().to_owned();
    let status = |header: &str| {
        let outcome = run_curl(&["-o", "/dev/null", "-w", "%{http_code}", "-H", header, &url]).ok();
        outcome.text()
    };
    assert_eq!(status(&format!("If-None-Match: {etag}")), "304");
    assert_eq!(status("If-None-Match: \"other\""), "200");
    assert_eq!(status(&format!("If-Match: {etag}")), "200");
    assert_eq!(status("If-Match: \"other\""), "412");
    let (head, body) = with_head(&["--range", "0-9", "-H", "If-Range: \"other\"", &url]);
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert_eq!(body.len(), SIZE);
    let outcome = run_curl(&[
        "-T",
        "/dev/null",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        "-H",
        "If-None-Match: *",
        &url,
    ]);
    assert_eq!(outcome.text(), "412", "{}", outcome.describe());
    assert_same(&site.uploaded("f"), &site.bytes);
}

#[test]
fn a_digest_when_it_is_wanted() {
    let site = Site::new(1303);
    let value = crate::support::checksum(gridlane_core::ChecksumKind::Adler32, &site.bytes).hex();
    let outcome = run_curl(&["--head", "-H", "Want-Digest: adler32", &site.server.url("f")]).ok();
    assert!(
        outcome.text().to_lowercase().contains(&format!("digest: adler32={value}")),
        "{}",
        outcome.text()
    );
    let outcome = run_curl(&["--head", &site.server.url("f")]).ok();
    assert!(!outcome.text().to_lowercase().contains("digest:"), "{}", outcome.text());
}

#[test]
fn uploads_of_known_and_unknown_length() {
    let site = Site::new(1304);
    let source = site.scratch.file("source", &site.bytes);
    run_curl(&["--fail", "-T", text(&source), &site.server.url("known")]).ok();
    assert_same(&site.uploaded("known"), &site.bytes);

    // Asking first, and not asking: both ways.
    for (name, expect) in [("expecting", "Expect: 100-continue"), ("not-expecting", "Expect:")] {
        run_curl(&["--fail", "-H", expect, "-T", text(&source), &site.server.url(name)]).ok();
        assert_same(&site.uploaded(name), &site.bytes);
    }

    let mut chunked = curl();
    chunked.args(["--fail", "-T", "-", &site.server.url("chunked")]).stdin(Stdio::piped());
    let mut child = chunked.spawn().unwrap();
    child.stdin.take().unwrap().write_all(&site.bytes).unwrap();
    assert!(child.wait().unwrap().success());
    assert_same(&site.uploaded("chunked"), &site.bytes);

    let outcome =
        run_curl(&["-T", "/dev/null", "-o", "/dev/null", "-w", "%{http_code}", &site.server.url("empty")])
            .ok();
    assert_eq!(outcome.text(), "201");
    assert_same(&site.uploaded("empty"), b"");
    let outcome =
        run_curl(&["-T", text(&source), "-o", "/dev/null", "-w", "%{http_code}", &site.server.url("empty")])
            .ok();
    assert!(matches!(outcome.text().as_str(), "200" | "204"), "{}", outcome.text());
}

#[test]
fn an_upload_with_a_wrong_digest_is_refused() {
    let site = Site::new(1305);
    let source = site.scratch.file("source", &site.bytes);
    let outcome = run_curl(&[
        "-T",
        text(&source),
        "-H",
        "Digest: adler32=00000001",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        &site.server.url("wrong"),
    ]);
    assert!(outcome.text().starts_with('4'), "{}", outcome.describe());
    assert!(!site.scratch.join("export/wrong").exists());
}

#[test]
fn an_upload_that_breaks_is_not_to_be_seen() {
    let site = Site::new(1306);
    let source = site.scratch.file("source", &site.bytes);
    let mut slow = curl();
    slow.args(["--limit-rate", "1M", "-T", text(&source), &site.server.url("broken")]);
    let mut upload = Running::start(slow);
    crate::support::until("it has begun", || {
        assert!(upload.is_running());
        site.scratch.join("export/.gridlane").exists()
    });
    upload.kill();
    assert!(!site.scratch.join("export/broken").exists());
    let outcome = run_curl(&[&site.server.url("")]).ok();
    assert!(
        !outcome.text().contains("broken") && !outcome.text().contains(".gridlane"),
        "{}",
        outcome.text()
    );
}

#[test]
fn a_download_is_continued() {
    let site = Site::new(1307);
    let partial = site.scratch.file("partial", &site.bytes[..SIZE / 3]);
    run_curl(&["--fail", "-C", "-", "-o", text(&partial), &site.server.url("f")]).ok();
    assert_same(&fs::read(&partial).unwrap(), &site.bytes);
}

#[test]
fn an_offer_to_decompress_and_old_http_do_no_harm() {
    let site = Site::new(1308);
    for option in ["--compressed", "--http1.0"] {
        let outcome = run_curl(&["--fail", option, &site.server.url("f")]).ok();
        assert_same(&outcome.stdout, &site.bytes);
    }
}

#[test]
fn one_connection_serves_many_requests() {
    let site = Site::new(1309);
    let url = site.server.url("f");
    let mut arguments = vec!["-w", "%{num_connects}\n"];
    let ranges: Vec<String> = (0..20).map(|number| format!("{url}?{number}")).collect();
    for url in &ranges {
        arguments.extend(["-o", "/dev/null", url]);
    }
    let outcome = run_curl(&arguments).ok();
    let connects: u32 = outcome.text().lines().map(|line| line.parse::<u32>().unwrap()).sum();
    assert_eq!(connects, 1, "{}", outcome.text());
}

#[test]
fn ipv6_and_tls_on_the_same_port() {
    let site = Site::new(1310);
    match has_ipv6() {
        true => {
            let url = site.server.url_where("f", "http://[::1]:");
            assert_same(&run_curl(&["--fail", "--globoff", &url]).ok().stdout, &site.bytes);
        }
        false => assert_ipv6_is_refused(&site.scratch.join("export")),
    }
    let (http, https) = (site.server.url("f"), site.server.url_over("https", "f"));
    assert_eq!(http.split("://").nth(1), https.split("://").nth(1), "not the same port");
    let ca = site.server.ca();
    for version in [&["--tlsv1.3"][..], &["--tlsv1.2", "--tls-max", "1.2"]] {
        let outcome = run_curl(&[version, &["--fail", "--cacert", text(&ca), &https][..]].concat()).ok();
        assert_same(&outcome.stdout, &site.bytes);
    }
    run_curl(&["--fail", &https]).exits(60);
    let source = site.scratch.file("source", &site.bytes);
    run_curl(&["--fail", "--cacert", text(&ca), "-T", text(&source), &site.server.url_over("https", "up")])
        .ok();
    assert_same(&site.uploaded("up"), &site.bytes);
}

#[test]
fn options_and_a_listing_for_people() {
    let site = Site::new(1311);
    fs::write(site.scratch.join("export/<b>&amp;"), b"").unwrap();
    let outcome = run_curl(&["-X", "OPTIONS", "-D", "-", "-o", "/dev/null", &site.server.url("")]).ok();
    let head = outcome.text().to_lowercase();
    for method in ["get", "head", "put", "options"] {
        let allow = head.lines().find(|line| line.starts_with("allow:")).unwrap_or_default();
        assert!(allow.contains(method), "{head}");
    }
    let (head, body) = with_head(&[&site.server.url("")]);
    let page = String::from_utf8(body).unwrap();
    assert!(head.contains("content-type: text/html"), "{head}");
    assert!(page.contains("href=\"f\"") || page.contains("href=\"./f\""), "{page}");
    assert!(
        !page.contains("<b>&amp;") && page.contains("&lt;b&gt;&amp;amp;"),
        "names are not escaped: {page}"
    );
}

#[test]
fn openssl_agrees_about_the_certificate() {
    let site = Site::new(1312);
    let mut command = Command::new("openssl");
    command.args(["x509", "-noout", "-text", "-in"]).arg(site.server.ca()).stdin(Stdio::null());
    let said = Running::start(command).wait().ok().text();
    assert!(said.contains("prime256v1") && said.contains("DNS:localhost"), "{said}");
    assert!(said.contains("IP Address:127.0.0.1"), "{said}");
}

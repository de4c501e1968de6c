//! curl in every odd form that clients of grid storage use.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, UNIX_EPOCH};

use gridlane_core::ChecksumKind;

use super::Site;
use crate::support::client::{Running, text};
use crate::support::tools::{curl, run_curl};
use crate::support::{assert_same, checksum, content};

const SIZE: usize = 100_000;

/// An answer: its status, its fields in lower case, its body.
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    /// Asserts a field, given as `name: value` in lower case.
    #[track_caller]
    fn has(self, field: &str) -> Answer {
        assert!(self.head.lines().any(|line| line == field), "no {field:?} in\n{}", self.head);
        self
    }

    /// Asserts that there is no such field.
    #[track_caller]
    fn lacks(self, name: &str) -> Answer {
        let start = format!("{name}:");
        assert!(!self.head.lines().any(|line| line.starts_with(&start)), "{name} in\n{}", self.head);
        self
    }

    #[track_caller]
    fn field(&self, name: &str) -> &str {
        let start = format!("{name}: ");
        let found = self.head.lines().find_map(|line| line.strip_prefix(start.as_str()));
        found.unwrap_or_else(|| panic!("no {name} in\n{}", self.head))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Asks with these arguments; the last head counts (after `100 Continue`).
#[track_caller]
fn ask(status: u16, arguments: &[&str]) -> Answer {
    let mut all = vec!["--include"];
    all.extend(arguments);
    let outcome = run_curl(&all);
    let mut rest = outcome.stdout.as_slice();
    loop {
        let end = rest.windows(4).position(|window| window == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no head: {}", outcome.describe()));
        let head = String::from_utf8_lossy(&rest[..end]).to_lowercase();
        rest = &rest[end + 4..];
        if head.starts_with("http/1.1 100") {
            continue;
        }
        let got = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        assert_eq!(got, status, "{arguments:?}\n{head}\n{}", String::from_utf8_lossy(rest));
        return Answer { status, head, body: rest.to_vec() };
    }
}

fn site_with_file(seed: u64) -> (Site, std::sync::Arc<Vec<u8>>, String) {
    let site = Site::new();
    let bytes = content(seed, SIZE);
    site.put("f", &bytes);
    let url = site.url("f");
    (site, bytes, url)
}

#[test]
fn single_ranges() {
    let (site, bytes, url) = site_with_file(2601);
    for (range, first, end) in [
        ("0-0", 0, 1),
        ("99999-", 99_999, SIZE),
        ("-1", 99_999, SIZE),
        ("5-2000000", 5, SIZE),
        ("-2000000", 0, SIZE),
    ] {
        let answer =
            ask(206, &["-r", range, &url]).has(&format!("content-range: bytes {first}-{}/{SIZE}", end - 1));
        assert_same(&answer.body, &bytes[first..end]);
    }
    ask(416, &["-r", "100000-", &url]).has("content-range: bytes */100000");
    ask(416, &["-r", "100000-100001,200000-", &url]);
    for odd in ["bytes=5-2", "bytes=a-b", "bytes=", "lines=0-1", "bytes 0-1", "bytes=0-1-2"] {
        let answer = ask(200, &["-H", &format!("Range: {odd}"), &url]);
        assert_same(&answer.body, &bytes);
    }
    site.put("empty", b"");
    ask(416, &["-r", "0-", &site.url("empty")]).has("content-range: bytes */0");
    assert!(ask(200, &[&site.url("empty")]).has("content-length: 0").body.is_empty());
    // A range means something to GET only.
    ask(200, &["--head", "-r", "0-1", &url]).has(&format!("content-length: {SIZE}"));
}

#[test]
fn several_ranges() {
    let (_site, bytes, url) = site_with_file(2602);
    let answer = ask(206, &["-r", "5-9,0-1,99998-", &url]);
    let media_type = answer.field("content-type").to_owned();
    let boundary = media_type.strip_prefix("multipart/byteranges; boundary=").unwrap().to_owned();
    assert_eq!(answer.field("content-length"), answer.body.len().to_string());
    let mut rest = answer.body.as_slice();
    for (first, end) in [(5, 10), (0, 2), (99_998, SIZE)] {
        let head_end = rest.windows(4).skip(2).position(|window| window == b"\r\n\r\n").unwrap() + 2;
        let head = String::from_utf8_lossy(&rest[..head_end]).into_owned();
        let lines: Vec<&str> = head.trim_start().lines().collect();
        assert_eq!(lines[0].to_lowercase(), format!("--{boundary}"));
        // davix reads no further than it.
        assert_eq!(*lines.last().unwrap(), format!("Content-Range: bytes {first}-{}/{SIZE}", end - 1));
        rest = &rest[head_end + 4..];
        assert_same(&rest[..end - first], &bytes[first..end]);
        rest = &rest[end - first..];
    }
    assert_eq!(String::from_utf8_lossy(rest).to_lowercase(), format!("\r\n--{boundary}--\r\n"));
    // One that can be satisfied is answered as if it had been the only one.
    let answer = ask(206, &["-r", "200000-,3-4", &url]).has(&format!("content-range: bytes 3-4/{SIZE}"));
    assert_same(&answer.body, &bytes[3..5]);
    // The same bytes again and again are not worth a multiple of the file.
    let greedy = ["0-"; 300].join(",");
    let answer = ask(200, &["-r", &greedy, &url]);
    assert_same(&answer.body, &bytes);
}

#[test]
fn digests_of_either_dialect() {
    let (site, bytes, url) = site_with_file(2603);
    let hex = |kind| checksum(kind, &bytes).hex();
    ask(200, &["--head", &url]).lacks("digest").lacks("repr-digest");
    let adler32 = format!("digest: adler32={}", hex(ChecksumKind::Adler32));
    for wish in ["ADLER32", "adler32", "md5;q=0.1,adler32", "unixcksum,adler32;q=0.5", "sha-512;q=0, adler32"]
    {
        ask(200, &["--head", "-H", &format!("Want-Digest: {wish}"), &url]).has(&adler32);
        ask(206, &["-r", "0-9", "-H", &format!("Want-Digest: {wish}"), &url]).has(&adler32);
    }
    ask(200, &["--head", "-H", "Want-Digest: crc32c", &url])
        .has(&format!("digest: crc32c={}", hex(ChecksumKind::Crc32c)));
    let md5 = ask(200, &["--head", "-H", "Want-Digest: md5", &url]);
    assert_eq!(md5.field("digest").len(), "md5=".len() + 24, "base64 of 16 bytes");
    for unknown in ["unixsum", "x-unknown", "", ";;", "sha-256;q=0"] {
        ask(200, &["--head", "-H", &format!("Want-Digest: {unknown}"), &url]).lacks("digest");
    }
    let repr = ask(200, &["--head", "-H", "Want-Repr-Digest: sha-256=10, md5=1", &url]);
    let value = repr.field("repr-digest");
    assert!(value.starts_with("sha-256=:") && value.ends_with(':'), "{value}");
    ask(200, &["--head", "-H", "Want-Repr-Digest: sha-256=10", "-H", "Want-Digest: adler32", &url])
        .has(&adler32)
        .field("repr-digest");
    ask(200, &["--head", "-H", "Want-Repr-Digest: =;=", &url]).lacks("repr-digest");
    // A changed file has another one.
    site.put("f", b"123456789");
    ask(200, &["--head", "-H", "Want-Digest: adler32", &url]).has("digest: adler32=091e01de");
}

#[test]
fn uploads() {
    let site = Site::new();
    let bytes = content(2604, SIZE);
    let source = site.scratch.file("source", &bytes);
    let source = text(&source);
    let stored = |name: &str| fs::read(site.exported(name)).unwrap();
    ask(201, &["-T", source, &site.url("f")]);
    ask(204, &["-T", source, "-H", "Expect: 100-continue", &site.url("f")]);
    ask(204, &["-T", source, "-H", "Expect:", &site.url("f")]);
    assert_same(&stored("f"), &bytes);
    // Of unknown length.
    let mut command = curl();
    command
        .args(["--fail", "-T", "-", &site.url("chunked")])
        .stdin(Stdio::from(fs::File::open(source).unwrap()));
    Running::start(command).wait().ok();
    assert_same(&stored("chunked"), &bytes);
    ask(201, &["-T", "/dev/null", "-H", "Transfer-Encoding:", "-H", "Content-Length: 0", &site.url("empty")]);
    assert!(stored("empty").is_empty());
    // What is refused leaves what was there.
    ask(400, &["-T", source, "-H", "Content-Range: bytes 0-99999/200000", &site.url("f")]);
    ask(409, &["-T", source, &site.url("no/such/directory")]);
    ask(409, &["-X", "PUT", "--data-binary", "x", &site.url("f/")]);
    ask(412, &["-T", source, "-H", "If-None-Match: *", &site.url("f")]);
    ask(412, &["-T", source, "-H", "If-Match: \"other\"", &site.url("f")]);
    ask(415, &["-T", source, "-H", "Content-Encoding: gzip", &site.url("f")]);
    assert_same(&stored("f"), &bytes);
    // Times, as rclone sends them.
    ask(201, &["-T", source, "-H", "X-OC-Mtime: 1000000000", &site.url("old")]).has("x-oc-mtime: accepted");
    let modified = fs::metadata(site.exported("old")).unwrap().modified().unwrap();
    assert_eq!(modified, UNIX_EPOCH + Duration::from_secs(1_000_000_000));
}

#[test]
fn uploads_are_compared_with_what_is_said_of_them() {
    let site = Site::new();
    let source = site.scratch.file("source", b"123456789");
    let source = text(&source);
    let md5_hex = checksum(ChecksumKind::Md5, b"123456789").hex();
    let right = [
        "Digest: adler32=091E01DE".to_owned(),
        "Digest: adler32=91e01de".to_owned(),
        "Digest: md5=JfnnlDI7RTiF9RgfG2JNCw==".to_owned(),
        "Content-MD5: JfnnlDI7RTiF9RgfG2JNCw==".to_owned(),
        format!("Content-MD5: {md5_hex}"),
        format!("OC-Checksum: MD5:{md5_hex}"),
        "OC-Checksum: ADLER32:091e01de".to_owned(),
        "Repr-Digest: adler=:CR4B3g==:".to_owned(),
        "Digest: crc32c=e3069283".to_owned(),
        "Digest: x-unknown=5".to_owned(),
    ];
    for (number, header) in right.iter().enumerate() {
        ask(201, &["-T", source, "-H", header, &site.url(&format!("right{number}"))]);
    }
    for (number, header) in [
        "Digest: adler32=00000001",
        "Digest: md5=AAAAAAAAAAAAAAAAAAAAAA==",
        "Content-MD5: AAAAAAAAAAAAAAAAAAAAAA==",
        "OC-Checksum: ADLER32:00000001",
        "Repr-Digest: adler=:AAAAAQ==:",
        "Digest: crc32c=00000000",
    ]
    .iter()
    .enumerate()
    {
        let answer = ask(400, &["-T", source, "-H", header, &site.url(&format!("wrong{number}"))]);
        assert!(answer.text().contains("damaged"), "{header}: {}", answer.text());
        assert!(!site.exported(&format!("wrong{number}")).exists(), "{header}");
    }
}

#[test]
fn trailing_status() {
    let (_site, bytes, url) = site_with_file(2605);
    // neon says so in every request; it means nothing by it.
    ask(200, &["-H", "TE: trailers", &url])
        .lacks("transfer-encoding")
        .has(&format!("content-length: {SIZE}"));
    let mut command = curl();
    command.args(["--include", "--raw", "-H", "TE: trailers", "-H", "X-Transfer-Status: true", &url]);
    let outcome = Running::start(command).wait().ok();
    let end = outcome.stdout.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    let head = String::from_utf8_lossy(&outcome.stdout[..end]).to_lowercase();
    assert!(
        head.contains("transfer-encoding: chunked") && head.contains("trailer: x-transfer-status"),
        "{head}"
    );
    let tail = String::from_utf8_lossy(&outcome.stdout[outcome.stdout.len() - 40..]).into_owned();
    assert!(tail.ends_with("0\r\nX-Transfer-Status: 200: OK\r\n\r\n"), "{tail:?}");
    let answer = ask(200, &["-H", "TE: trailers", "-H", "X-Transfer-Status: true", &url]);
    // curl shows the trailer behind the body.
    assert_same(&answer.body[..SIZE], &bytes);
}

#[test]
fn webdav_statuses() {
    let (site, _, url) = site_with_file(2606);
    let answer = ask(200, &["-X", "OPTIONS", &url]);
    assert!(answer.field("dav").starts_with('1'));
    for method in ["get", "put", "delete", "propfind", "mkcol", "move", "copy"] {
        assert!(answer.field("allow").split(',').any(|allowed| allowed == method), "{}", answer.head);
    }
    ask(201, &["-X", "MKCOL", &site.url("d")]);
    ask(405, &["-X", "MKCOL", &site.url("d/")]);
    ask(409, &["-X", "MKCOL", &site.url("no/such")]);
    ask(415, &["-X", "MKCOL", "-d", "<x/>", "-H", "Content-Type: application/xml", &site.url("e")]);
    let answer = ask(207, &["-X", "PROPFIND", "-H", "Depth: 1", &site.url("")]);
    let said = answer.text();
    assert!(said.find(&format!("<D:href>{}</D:href>", site.url(""))) < said.find("/f</D:href>"), "{said}");
    assert!(said.contains(":mode>01006") && said.contains(":mode>0407"), "{said}");
    ask(207, &["-X", "PROPFIND", "-H", "Depth: 0", &url]);
    let infinite = ask(403, &["-X", "PROPFIND", "-H", "Depth: infinity", &site.url("")]);
    assert!(infinite.text().contains("propfind-finite-depth"), "{}", infinite.text());
    ask(400, &["-X", "PROPFIND", "-H", "Depth: 0", "-d", "<not xml", &url]);
    ask(404, &["-X", "PROPFIND", "-H", "Depth: 0", &site.url("missing")]);
    let to = |name: &str| format!("Destination: {}", site.url(name));
    ask(201, &["-X", "COPY", "-H", &to("g"), &url]);
    ask(204, &["-X", "COPY", "-H", &to("g"), "-H", "Overwrite: T", &url]);
    ask(412, &["-X", "COPY", "-H", &to("g"), "-H", "Overwrite: F", &url]);
    ask(400, &["-X", "COPY", "-H", &to("g"), "-H", "Overwrite: maybe", &url]);
    ask(409, &["-X", "MOVE", "-H", &to("no/such"), &url]);
    ask(403, &["-X", "MOVE", "-H", &to("f"), &url]);
    ask(201, &["-X", "MOVE", "-H", "Destination: /d/moved", &url]);
    ask(502, &["-X", "MOVE", "-H", "Destination: http://elsewhere.example/x", &site.url("g")]);
    ask(400, &["-X", "MOVE", &site.url("g")]);
    ask(404, &["-X", "DELETE", &site.url("missing")]);
    ask(204, &["-X", "DELETE", &site.url("d/")]);
    assert!(!site.exported("d").exists());
    ask(405, &["-X", "LOCK", &site.url("g")]).field("allow");
    ask(501, &["-X", "BREW", &site.url("g")]);
    // gfal2 tries to get a macaroon; it must not get the file.
    let answer = ask(405, &["-d", "{}", "-H", "Content-Type: application/macaroon-request", &site.url("g")]);
    assert!(answer.body.len() < 500 && answer.status == 405);
    ask(
        207,
        &[
            "-X",
            "PROPPATCH",
            "-d",
            "<D:propertyupdate xmlns:D=\"DAV:\"><D:set><D:prop><x xmlns=\"y\">1</x></D:prop></D:set></D:propertyupdate>",
            &site.url("g"),
        ],
    );
}

#[test]
fn paths_and_targets() {
    let (site, bytes, _) = site_with_file(2607);
    site.put("a+b c%", b"plus");
    let root = site.url("");
    let get = |status: u16, target: &str| ask(status, &["--path-as-is", "--request-target", target, &root]);
    assert_same(&get(200, "//f").body, &bytes);
    assert_same(&get(200, "/./f").body, &bytes);
    assert_same(&get(200, "/%66").body, &bytes);
    assert_eq!(get(200, "/a+b%20c%25").body, b"plus");
    get(404, "/a%2Bb");
    for refused in ["/../f", "/%2e%2e/f", "/d/..%2ff", "/f%00", "/%zz", "f"] {
        let answer = get(400, refused);
        assert!(answer.field("content-type").starts_with("text/plain"), "{refused}");
        assert!(answer.text().lines().count() <= 2 && answer.text().len() < 500, "{}", answer.text());
    }
    // As a proxy would be asked.
    assert_same(&get(200, &format!("{root}f")).body, &bytes);
    assert_same(&ask(200, &[&format!("{root}f?authz=x&y#z")]).body, &bytes);
    get(404, "/.gridlane/x");
    assert_same(&ask(200, &["--http1.0", &format!("{root}f")]).body, &bytes);
    assert_same(
        &ask(200, &["-H", "connection: Close", &format!("{root}f")]).has("connection: close").body,
        &bytes,
    );
    ask(
        301,
        &["-H", "Accept: text/html", &{
            fs::create_dir(site.exported("dir")).unwrap();
            site.url("dir")
        }],
    )
    .has("location: /dir/");
}

/// A body shorter than it was said to be leaves the old file.
#[test]
fn uploads_that_break_off() {
    let (site, bytes, url) = site_with_file(2608);
    let mut command = curl();
    command
        .args(["-T", "-", "-H", "Content-Length: 1000", "-H", "Transfer-Encoding:", "--max-time", "1", &url])
        .stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"only this").unwrap();
    // curl gives up after a second, the pipe still open.
    child.wait().unwrap();
    drop(stdin);
    assert_same(&fs::read(site.exported("f")).unwrap(), &bytes);
    assert_same(&ask(200, &[&url]).body, &bytes);
}

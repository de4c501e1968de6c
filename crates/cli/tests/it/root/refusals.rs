//! Requests that are not allowed stay so over root://, and are refused in words.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::{Site, assert_refused};
use crate::support::client::{Outcome, text};
use crate::support::{SOON, Scratch, assert_same, content, until};

/// Asserts a denial: "not authorized" or "read-only", in words.
#[track_caller]
fn assert_denied(outcome: Outcome) {
    let said = outcome.stderr.to_lowercase();
    let in_words = said.contains("permission denied") || said.contains("read-only");
    assert!(in_words, "{}", outcome.describe());
    assert_refused(outcome, &[3010, 3025], &[]);
}

#[test]
fn a_read_only_server() {
    let site = Site::ours(&[]);
    let bytes = content(3301, 10_000);
    site.put("d/f", &bytes);
    let source = site.scratch.file("source", b"new");
    let writes: [&[&str]; 8] = [
        &["mkdir", "/new"],
        &["mkdir", "-p", "/new/and/more"],
        &["rm", "/d/f"],
        &["rmdir", "/d"],
        &["mv", "/d/f", "/d/g"],
        &["truncate", "/d/f", "0"],
        &["chmod", "/d/f", "rwx------"],
        &["xattr", "/d/f", "set", "k=v"],
    ];
    for write in writes {
        assert_denied(site.xrdfs(write));
    }
    for options in [&["-f"][..], &["-f", "--posc"], &[]] {
        let mut arguments = options.to_vec();
        let url = site.url("d/new");
        arguments.extend([text(&source), &url]);
        assert_denied(site.xrdcp(&arguments));
    }
    assert_denied(site.xrdcp(&["-f", text(&source), &site.url("d/f")]));
    // What is read is read, and stat says that it cannot be written.
    assert_same(&site.xrdfs(&["cat", "/d/f"]).ok().stdout, &bytes);
    site.xrdfs(&["query", "checksum", "/d/f"]).ok();
    site.xrdfs(&["stat", "-q", "IsReadable", "/d/f"]).ok();
    site.xrdfs(&["stat", "-q", "IsWritable", "/d/f"]).exits(55);
    let located = site.xrdfs(&["locate", "/d/f"]).ok().text();
    assert!(located.contains("Server Read") && !located.contains("ReadWrite"), "{located}");
    assert_same(&site.read("d/f"), &bytes);
    assert_eq!(crate::support::names(&site.exported("d")), ["f"]);
}

#[test]
fn paths_that_lead_out() {
    let site = Site::new();
    site.put("d/f", b"x");
    for path in ["/../etc/passwd", "/d/../f", "/d/.."] {
        // A real xrootd looks for it in the middle only.
        if path.ends_with("..") && !site.is_ours() {
            continue;
        }
        assert_refused(site.xrdfs(&["stat", path]), &[3000, 3010], &[]);
        assert_refused(site.xrdfs(&["rm", path]), &[3000, 3010], &[]);
        assert_refused(site.xrdfs(&["mkdir", "-p", path]), &[3000, 3010], &[]);
    }
    let target = site.scratch.join("target");
    assert_refused(site.xrdcp(&[&site.url("../etc/passwd"), text(&target)]), &[3000, 3010], &[]);
    if site.is_ours() {
        // Nor by a link.
        std::os::unix::fs::symlink("/etc", site.exported("out")).unwrap();
        assert_refused(site.xrdfs(&["stat", "/out/passwd"]), &[3010, 3011], &[]);
        assert_refused(site.xrdcp(&[&site.url("out/passwd"), text(&target)]), &[3010, 3011], &[]);
    }
}

/// The server's own directory does not exist for clients.
#[test]
fn what_is_hidden() {
    let site = Site::ours(&["--allow-write"]);
    site.put("d/f", b"x");
    site.put(".gridlane/secret", b"secret");
    let listed = site.xrdfs(&["ls", "/"]).ok().text();
    assert_eq!(listed.lines().collect::<Vec<_>>(), ["/d"]);
    let listed = site.xrdfs(&["ls", "-R", "/"]).ok().text();
    assert!(!listed.contains(".gridlane"), "{listed}");
    let source = site.scratch.file("source", b"new");
    let target = site.scratch.join("target");
    for path in ["/.gridlane", "/.gridlane/secret", "//./.gridlane/secret"] {
        for verb in ["stat", "ls", "rm", "rmdir", "locate"] {
            let outcome = site.xrdfs(&[verb, path]);
            assert_ne!(outcome.code, Some(0), "{}", outcome.describe());
        }
    }
    for outcome in [
        site.xrdfs(&["cat", "/.gridlane/secret"]),
        site.xrdfs(&["mv", "/.gridlane/secret", "/d/seen"]),
        site.xrdfs(&["mv", "/d/f", "/.gridlane/f"]),
        site.xrdfs(&["query", "checksum", "/.gridlane/secret"]),
        site.xrdfs(&["xattr", "/.gridlane/secret", "list"]),
        site.xrdcp(&["-f", &site.url(".gridlane/secret"), text(&target)]),
        site.xrdcp(&["-f", text(&source), &site.url(".gridlane/new")]),
    ] {
        assert_ne!(outcome.code, Some(0), "{}", outcome.describe());
        assert!(!outcome.text().contains("secret\n"), "{}", outcome.describe());
    }
    assert_eq!(fs::read(site.exported(".gridlane/secret")).unwrap(), b"secret");
    assert!(site.exported("d/f").is_file() && !site.exported("d/seen").exists());
}

/// Two exports and what their rules grant.
#[test]
fn exports_and_rules() {
    let scratch = Scratch::new();
    let (public, incoming) = (scratch.dir("public"), scratch.dir("incoming"));
    let bytes = content(3302, 50_000);
    scratch.file("public/f", &bytes);
    scratch.dir("incoming/box");
    scratch.file("incoming/kept", b"kept");
    let configuration = format!(
        "[[export]]
path = \"/public\"
directory = {public:?}
read-only = true
[[export]]
path = \"/scratch/incoming\"
directory = {incoming:?}
rules = [
    {{ addresses = \"any\", may = [\"read\", \"list\"] }},
    {{ addresses = \"loopback\", may = [\"write\"], under = \"/box\" }},
]
"
    );
    let site = Site::by_file(scratch, &configuration);
    let listed = site.xrdfs(&["ls", "/"]).ok().text();
    assert_eq!(listed.lines().collect::<Vec<_>>(), ["/public", "/scratch"]);
    let listed = site.xrdfs(&["ls", "-R", "/scratch"]).ok().text();
    assert!(listed.contains("/scratch/incoming/kept"), "{listed}");
    assert_same(&site.xrdfs(&["cat", "/public/f"]).ok().stdout, &bytes);
    assert_denied(site.xrdfs(&["rm", "/public/f"]));

    let source = site.scratch.file("source", &bytes);
    site.xrdcp(&[text(&source), &site.url("scratch/incoming/box/f")]).ok();
    assert_same(&fs::read(incoming.join("box/f")).unwrap(), &bytes);
    assert_denied(site.xrdcp(&[text(&source), &site.url("scratch/incoming/f")]));
    // To write is not to delete.
    assert_denied(site.xrdfs(&["rm", "/scratch/incoming/box/f"]));
    assert_denied(site.xrdfs(&["rm", "/scratch/incoming/kept"]));
    assert_refused(site.xrdcp(&[text(&source), &site.url("elsewhere/f")]), &[3010, 3011, 3025], &[]);
    assert_denied(site.xrdfs(&["mv", "/public/f", "/scratch/incoming/box/g"]));
    assert!(public.join("f").is_file());
}

/// Requests that change something, or tried to, are in the audit log; those that only read are not.
#[test]
fn changes_are_written_down() {
    let log = Scratch::new();
    let audit = log.join("audit.log");
    let site = Site::ours(&["--allow-write", "--audit-log", text(&audit)]);
    site.put("d/read", b"x");
    let source = site.scratch.file("source", b"new");
    site.xrdcp(&[text(&source), &site.url("d/written")]).ok();
    site.xrdcp(&["--posc", text(&source), &site.url("d/persisted")]).ok();
    site.xrdfs(&["mkdir", "/made"]).ok();
    site.xrdfs(&["mv", "/d/written", "/made/moved"]).ok();
    site.xrdfs(&["chmod", "/made/moved", "rw-------"]).ok();
    site.xrdfs(&["truncate", "/d/persisted", "1"]).ok();
    site.xrdfs(&["rm", "/d/persisted"]).ok();
    assert_refused(site.xrdfs(&["rm", "/d/wanted"]), &[3011], &[]);
    site.xrdfs(&["cat", "/d/read"]).ok();
    site.xrdfs(&["rm", "/made/moved"]).ok();
    site.xrdfs(&["rmdir", "/made"]).ok();
    let records_of = |path: &str| {
        let text = fs::read_to_string(&audit).unwrap_or_default();
        let records = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        records.filter(|record| record["path"] == path).count()
    };
    // Records are written after the answers, one after the other.
    until("the last change is there", || records_of("/made") >= 2);
    for path in ["/d/written", "/d/persisted", "/made/moved", "/d/wanted"] {
        assert!(records_of(path) >= 1, "{path}: {}", fs::read_to_string(&audit).unwrap());
    }
    assert_eq!(records_of("/d/read"), 0);
}

/// A connection that begins as root:// does and goes on as nonsense costs itself and no other.
#[test]
fn nonsense() {
    let site = Site::new();
    site.put("f", b"words");
    let mut hello = [0; 20];
    hello[15] = 4;
    hello[18..].copy_from_slice(&2012_u16.to_be_bytes());
    for rest in [&[0xff_u8; 200][..], &[0; 200], b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"] {
        let mut stream = TcpStream::connect(site.authority()).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.write_all(&hello).unwrap();
        let _ = stream.write_all(rest);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        // It ends, whatever is said first.
        let mut said = Vec::new();
        if let Err(cause) = stream.read_to_end(&mut said) {
            assert_eq!(cause.kind(), std::io::ErrorKind::ConnectionReset, "{cause}");
        }
    }
    assert_same(&site.xrdfs(&["cat", "/f"]).ok().stdout, b"words");
}

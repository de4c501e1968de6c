//! The server as the passive one: what the active servers send that the tests have no packages of, as they write it. XRootD, and
//! the field's clients, are in `peers`.

use gridlane_core::ChecksumKind;

use super::Site;
use crate::support::client::text;
use crate::support::tools::run_curl;
use crate::support::{MIB, Scratch, assert_same, checksum, content};

/// What dCache wants to hear of a source.
const WANTS_OF_DCACHE: [&str; 4] = [
    "Want-Digest: sha-512,sha-256;q=0.8,sha;q=0.6,md5;q=0.4,adler32;q=0.2",
    "Want-Repr-Digest: sha-512=10, sha-256=8, sha=6, md5=4, adler=2",
    "TE: trailers, X-Transfer-Status",
    "Accept: */*",
];

/// A request with these fields, and the head of its answer, in lower case.
fn ask(url: &str, fields: &[&str], more: &[&str]) -> String {
    let mut arguments = vec!["--silent", "--dump-header", "-"];
    fields.iter().for_each(|field| arguments.extend(["--header", field]));
    arguments.extend(more);
    arguments.push(url);
    run_curl(&arguments).ok().text().to_lowercase()
}

fn assert_has(head: &str, lines: &[&str]) {
    for line in lines {
        assert!(head.contains(line), "no {line:?} in {head}");
    }
}

#[test]
fn a_source_for_dcache_and_storm() {
    let (passive, scratch) = (Site::new(), Scratch::new());
    let bytes = content(9831, 3 * MIB + 1);
    passive.put("f", &bytes);
    let adler32 = format!("\r\ndigest: adler32={}\r\n", checksum(ChecksumKind::Adler32, &bytes).hex());
    let body = scratch.join("body");
    let to_file = ["--output", text(&body)];
    // dCache takes 200 alone; StoRM says nothing beside its agent.
    for fields in [&WANTS_OF_DCACHE[..], &["User-Agent: Apache-HttpClient/5.4 (Java/17)"]] {
        let head = ask(&passive.url("f"), fields, &to_file);
        assert_has(&head, &["http/1.1 200 ", &format!("\r\ncontent-length: {}\r\n", bytes.len())]);
        assert_same(&std::fs::read(&body).unwrap(), &bytes);
    }
    // Where the answer told none of those that it keeps, it asks once more.
    let head = ask(&passive.url("f"), &["Want-Digest: ADLER32"], &["--head"]);
    assert_has(&head, &["http/1.1 200 ", &adler32]);
    assert_has(&ask(&passive.url("none"), &WANTS_OF_DCACHE, &[]), &["http/1.1 404 "]);
}

#[test]
fn a_target_for_dcache_and_storm() {
    let (passive, scratch) = (Site::new(), Scratch::new());
    let bytes = content(9832, 2 * MIB + 7);
    let file = scratch.file("body", &bytes);
    let adler32 = checksum(ChecksumKind::Adler32, &bytes).hex();
    for (number, fields) in [
        // dCache, with the checksum that it has; StoRM, which has looked before.
        vec!["Expect: 100-continue".to_owned(), format!("Digest: adler32={adler32}")],
        vec!["Expect: 100-continue".to_owned()],
        vec!["Transfer-Encoding: chunked".to_owned(), "Expect:".to_owned()],
    ]
    .into_iter()
    .enumerate()
    {
        let url = passive.url(&format!("d{number}"));
        assert_has(&ask(&url, &["Want-Digest: adler32"], &["--head"]), &["http/1.1 404 "]);
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        let head = ask(&url, &fields, &["--upload-file", text(&file)]);
        assert_has(&head, &["http/1.1 201 "]);
        assert_eq!(head.contains("100 continue"), fields[0].starts_with("Expect"), "{head}");
        // What both compare then.
        let head = ask(&url, &["Want-Digest: adler32"], &["--head"]);
        let length = format!("\r\ncontent-length: {}\r\n", bytes.len());
        assert_has(&head, &["http/1.1 200 ", &length, &format!("\r\ndigest: adler32={adler32}\r\n")]);
        assert_same(&std::fs::read(passive.exported(&format!("d{number}"))).unwrap(), &bytes);
    }
    // A checksum that the bytes do not have; and what dCache removes when they do not compare.
    let wrong = ["Expect: 100-continue", "Digest: adler32=00000001"];
    let head = ask(&passive.url("wrong"), &wrong, &["--upload-file", text(&file)]);
    assert_has(&head, &["http/1.1 400 "]);
    assert!(!passive.exported("wrong").exists());
    assert_has(&ask(&passive.url("d0"), &[], &["--request", "DELETE"]), &["http/1.1 204 "]);
}

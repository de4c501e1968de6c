//! Copies that cannot be: told at once, in words, and without a connection where none may be made.

use std::fs;
use std::net::TcpListener;
use std::sync::Arc;

use gridlane_core::ChecksumKind;

use super::{Site, copy};
use crate::support::object::{Answer, Object};
use crate::support::rogue::{Rogue, closed_port_url};
use crate::support::serve::Server;
use crate::support::tools::run_curl;
use crate::support::{MIB, Scratch, checksum, content, secrets};

#[test]
fn what_is_wrong_is_told_at_once() {
    let active = Site::new();
    let object = Object::new(&content(9201, 1000));
    let remote = Rogue::start(move |request| object.answer(request));
    let source = format!("Source: {}", remote.url("f"));
    let destination = format!("Destination: {}", remote.url("f"));
    active.put("here", b"here");
    for (path, fields, status, words) in [
        (
            "f",
            &[source.as_str(), "Credential: gridsite"][..],
            400,
            &["Credential: none", "TransferHeaderAuthorization"][..],
        ),
        ("f", &[&source, "Credential: oidc"], 400, &["Credential: none"]),
        ("f", &[&source, &destination], 400, &["Source", "Destination"]),
        ("f", &[&source, "X-Number-Of-Streams: 101"], 400, &["X-Number-Of-Streams"]),
        ("f", &[&source, "X-Number-Of-Streams: many"], 400, &["X-Number-Of-Streams"]),
        ("f", &[&source, "RequireChecksumVerification: maybe"], 400, &["RequireChecksumVerification"]),
        ("f", &[&source, "Overwrite: maybe"], 400, &["Overwrite"]),
        ("f", &[&source, "TransferHeaderHost: elsewhere"], 400, &["Host"]),
        ("f", &[&source, "TransferHeaderTransfer-Encoding: chunked"], 400, &["Transfer-Encoding"]),
        ("f", &[&source, "SourceHeader2Authorization: x"], 400, &["SourceHeader"]),
        ("f", &["Source: ftp://127.0.0.1/f"], 501, &["scheme"]),
        ("f", &["Source: file:///etc/passwd"], 501, &["scheme"]),
        ("f", &["Source: /f"], 400, &["Source"]),
        ("f", &["Credential: none"], 400, &["Source", "Destination"]),
        ("no/such/directory/f", &[&source], 409, &[]),
        ("missing", &[&destination], 404, &[]),
        ("here/below-a-file", &[&source], 409, &[]),
    ] {
        copy(&active.url(path), fields).refused(status, words);
    }
    assert_eq!(remote.requests().len(), 0, "nothing was asked of the remote");
    assert_eq!(active.all_names().0, ["here"]);
}

#[test]
fn rights_are_those_of_get_and_put() {
    let scratch = Scratch::new();
    scratch.file("export/f", b"f");
    let reader = Server::start(&scratch.join("export"));
    let remote = Site::new();
    remote.put("f", b"theirs");
    copy(&reader.url("g"), &[&format!("Source: {}", remote.url("f"))]).refused(403, &[]);
    assert!(!scratch.join("export/g").exists());
    // It may be read, so it may be pushed.
    copy(&reader.url("f"), &[&format!("Destination: {}", remote.url("g"))]).succeeds();
    assert_eq!(fs::read(remote.exported("g")).unwrap(), b"f");
    // And the remote's refusal is told: it does not let itself be written to.
    let other = Site::new();
    other.put("f", b"f");
    copy(&other.url("f"), &[&format!("Destination: {}", reader.url("h"))]).fails(&["403"]);
}

#[test]
fn refusals_of_the_remote_are_told() {
    let active = Site::new();
    secrets::remember("expired-token-of-the-test");
    for status in [401, 403, 404, 410] {
        let remote = Rogue::start(move |_| Answer::status(status));
        let code = status.to_string();
        let fields = [
            &format!("Source: {}", remote.url("f")),
            "TransferHeaderAuthorization: Bearer expired-token-of-the-test",
        ];
        copy(&active.url("f"), &fields).fails(&[&code]);
        active.put("here", b"here");
        let fields = [&format!("Destination: {}", remote.url("f")), fields[1]];
        copy(&active.url("here"), &fields).fails(&[&code]);
    }
    copy(&active.url("f"), &[&format!("Source: {}", closed_port_url("f"))]).fails(&["refused"]);
    assert_eq!(active.all_names().0, ["here"]);
}

/// The client lacks no right where the servers do not know each other.
#[test]
fn a_remote_that_is_not_trusted_is_named() {
    let (active, passive) = (Site::new(), Site::new());
    passive.put("f", b"f");
    active.put("here", b"here");
    let url = passive.server.url_over("https", "f");
    copy(&active.url("f"), &[&format!("Source: {url}")]).refused(502, &["certificate is not trusted"]);
    // Bytes of a push may have been read by then, which makes it a copy that has begun.
    copy(&active.url("here"), &[&format!("Destination: {url}")]).fails(&["certificate is not trusted"]);
    assert_eq!(active.all_names().0, ["here"]);
}

/// A server that others reach does not fetch for them what only it can reach.
#[test]
fn own_and_private_addresses_are_refused() {
    let object = Object::new(&content(9202, 1000));
    let remote = Rogue::start(move |request| object.answer(request));
    let scratch = Scratch::new();
    let start = |options: &[&str]| {
        let mut command = Server::command(&scratch.dir("export"));
        command.args(["--listen", "0.0.0.0:0", "--allow-write", "--insecure-allow-anonymous"]).args(options);
        Server::spawn(command)
    };
    let port_of = |url: &str| url.rsplit(':').next().unwrap().trim_end_matches('/').to_owned();
    let server = start(&[]);
    let url = format!("http://127.0.0.1:{}", port_of(&server.url("")));
    let port = port_of(remote.url("").as_str());
    let before = remote.requests().len();
    for source in [
        format!("http://127.0.0.1:{port}/f"),
        format!("http://127.1:{port}/f"),
        format!("http://2130706433:{port}/f"),
        format!("http://localhost:{port}/f"),
        format!("http://0.0.0.0:{port}/f"),
        format!("http://[::1]:{port}/f"),
        format!("http://[::ffff:127.0.0.1]:{port}/f"),
        format!("http://[::ffff:10.0.0.1]:{port}/f"),
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "http://10.0.0.1/f".to_owned(),
        "http://192.168.0.1/f".to_owned(),
        "http://100.64.0.1/f".to_owned(),
        "http://[fe80::1]/f".to_owned(),
        "http://[fd00::1]/f".to_owned(),
    ] {
        copy(&format!("{url}/f"), &[&format!("Source: {source}")]).fails(&["does not let it connect"]);
        scratch.file("export/here", b"here");
        copy(&format!("{url}/here"), &[&format!("Destination: {source}")])
            .fails(&["does not let it connect"]);
    }
    assert_eq!(remote.requests().len(), before, "no connection was made");
    assert!(!scratch.join("export/f").exists());
    drop(server);

    let server = start(&["--tpc-allow", "127.0.0.0/8"]);
    let url = format!("http://127.0.0.1:{}", port_of(&server.url("")));
    copy(&format!("{url}/f"), &[&format!("Source: http://127.0.0.1:{port}/f")]).succeeds();
    copy(&format!("{url}/g"), &["Source: http://10.0.0.1/f"]).fails(&["does not let it connect"]);
}

/// A server that listens on loopback fetches from there, and from nowhere else that is private; a redirect does not help.
#[test]
fn a_redirect_does_not_lead_to_private_addresses() {
    let active = Site::new();
    for to in ["http://169.254.169.254/latest", "http://10.1.2.3/f", "http://[fd00::1]/f"] {
        let remote = Rogue::start(move |_| Answer::redirect(302, to));
        copy(&active.url("f"), &[&format!("Source: {}", remote.url("f"))])
            .fails(&["does not let it connect"]);
        active.put("here", b"here");
        copy(&active.url("here"), &[&format!("Destination: {}", remote.url("f"))])
            .fails(&["does not let it connect"]);
    }
    assert_eq!(active.all_names().0, ["here"]);
}

/// Neither a metalink nor a `Link` leads where a client's own URL does not.
#[test]
fn what_servers_name_does_not_lead_to_private_addresses() {
    let active = Site::new();
    let bytes = content(9203, 1000);
    let adler32 = checksum(ChecksumKind::Adler32, &bytes).hex();
    for to in ["http://10.1.2.3/f", "http://[::ffff:169.254.169.254]/f", "root://10.1.2.3//f"] {
        let metalink = format!(
            "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"f\"><size>1000</size>\
             <hash type=\"adler32\">{adler32}</hash><url>{to}</url></file></metalink>"
        );
        let metalink = Arc::new(metalink.into_bytes());
        let named = Rogue::start(move |_| {
            let answer = Answer::status(200).header("Content-Type", "application/metalink4+xml");
            answer.body(&metalink, 0..metalink.len())
        });
        // By its name, and by its type.
        for path in ["f.meta4", "f"] {
            let source = format!("Source: {}", named.url(path));
            copy(&active.url("f"), &[&source]).fails(&["does not let it connect"]);
        }
    }
    assert_eq!(active.all_names().0, [""; 0]);

    // This address is allowed, and the next one is not.
    let listener = TcpListener::bind("127.0.0.2:0").unwrap();
    let there = listener.local_addr().unwrap();
    let object = Object::new(&content(9204, 24 * MIB));
    let naming = Rogue::with_rate(12 * MIB as u64, move |request| {
        let answer = object.answer(request).header("Link", format!("<http://{there}/f>; rel=duplicate"));
        answer.header(
            "Link",
            format!("<http://{there}/m>; rel=describedby; type=\"application/metalink4+xml\""),
        )
    });
    let scratch = Scratch::new();
    let mut command = Server::command(&scratch.dir("export"));
    command.args(["--listen", "0.0.0.0:0", "--allow-write", "--insecure-allow-anonymous"]);
    command.args(["--tpc-allow", "127.0.0.1/32"]);
    let server = Server::spawn(command);
    let port = server.url("").rsplit(':').next().unwrap().trim_end_matches('/').to_owned();
    let source = format!("Source: {}", naming.url("f"));
    copy(&format!("http://127.0.0.1:{port}/f"), &[&source]).succeeds();
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn options_tells_what_can_be_asked() {
    let active = Site::new();
    let outcome = run_curl(&["--include", "--request", "OPTIONS", &active.url("")]).ok();
    let head = outcome.text().to_lowercase();
    assert!(head.contains("\r\ncopy-sources: 64\r\n"), "{head}");
}

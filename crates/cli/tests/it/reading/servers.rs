//! Servers that do as they should: the bytes are right over every protocol, by every policy, whatever is asked for.

use gridlane_core::ByteRange;
use gridlane_engine::reading::{Policy, Proof, ReadOptions, Settings};

use super::{Opened, large, open, open_with, options, scattered};
use crate::support::apache::Apache;
use crate::support::nginx::Nginx;
use crate::support::object::{Answer, Object};
use crate::support::rogue::Rogue;
use crate::support::serve::Server;
use crate::support::xrootd::Xrootd;
use crate::support::{Scratch, content};

/// Reads that have to be right: one by one, many at once, a large one, behind the end.
fn read_all_over(opened: &Opened, bytes: &[u8]) {
    let size = bytes.len();
    assert_eq!(opened.file.size_bytes(), size as u64);
    for range in scattered(5001, size, 20, 3000) {
        opened.check(&[range], bytes);
    }
    opened.check(&scattered(5002, size, 3000, 1500), bytes);
    opened.check(&[ByteRange::at(1_000_001, 3_000_000), ByteRange::at(size as u64 - 70_000, 1 << 40)], bytes);
    opened.check(&[ByteRange::at(size as u64, 10), ByteRange::at(1 << 40, 10)], bytes);
    opened.check(&[], bytes);
}

#[test]
fn our_own_server_by_each_protocol_and_policy() {
    let (scratch, bytes) = (Scratch::new(), large(5003));
    let export = scratch.dir("export");
    std::fs::write(export.join("f"), bytes.as_slice()).unwrap();
    let server = Server::start(&export);
    for scheme in ["http", "https", "root", "roots"] {
        for policy in Policy::ALL {
            let url = server.url_over(scheme, "f");
            let opened = open_with(&[url], Some(server.ca()), options(policy)).unwrap();
            read_all_over(&opened, &bytes);
            let explain = opened.explain();
            assert_eq!(explain.failures, 0, "{scheme} {}\n{explain}", policy.name());
            if policy == Policy::Direct {
                assert_eq!(explain.elements, explain.requests, "{scheme}\n{explain}");
            }
        }
    }
}

#[test]
fn xrootd_by_each_protocol() {
    let (server, bytes) = (Xrootd::with("xrd.protocol http libXrdHttp.so"), large(5004));
    server.put("f", &bytes);
    for (scheme, ca) in [("root", None), ("http", None), ("https", Some(server.ca()))] {
        let url = server.url_over(scheme, "f");
        let opened = open_with(&[url], ca, options(Policy::Adaptive)).unwrap();
        read_all_over(&opened, &bytes);
        assert_eq!(opened.explain().failures, 0, "{scheme}\n{}", opened.explain());
    }
    // Each page with its checksum: no vectors then.
    let options = ReadOptions { checks_every_page: true, ..options(Policy::Vector) };
    let opened = open_with(&[server.url_over("root", "f")], None, options).unwrap();
    read_all_over(&opened, &bytes);
}

#[test]
fn nginx_and_apache() {
    let (scratch, bytes) = (Scratch::new(), large(5005));
    let docs = scratch.dir("docs");
    std::fs::write(docs.join("f"), bytes.as_slice()).unwrap();
    let (nginx, apache) = (Nginx::start(&docs), Apache::start(&docs));
    let limited = Nginx::with(&docs, "max_ranges 3;");
    let single = Nginx::with(&docs, "max_ranges 1;");
    for url in [nginx.url("f"), apache.url("f"), limited.url("f"), single.url("f")] {
        let opened = open(&url);
        read_all_over(&opened, &bytes);
        assert_eq!(opened.explain().failures, 0, "{url}\n{}", opened.explain());
    }
}

#[test]
fn a_file_of_this_machine() {
    let (scratch, bytes) = (Scratch::new(), large(5006));
    let path = scratch.file("f", &bytes);
    read_all_over(&open(&format!("file://{}", path.display())), &bytes);
}

#[test]
fn files_without_bytes_or_with_few() {
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    let server = Server::start(&export);
    for size in [0, 1, 1000, 70_000] {
        let bytes = content(5007, size);
        std::fs::write(export.join(format!("f{size}")), bytes.as_slice()).unwrap();
        for scheme in ["http", "root"] {
            let opened = open(&server.url_over(scheme, &format!("f{size}")));
            assert_eq!(opened.file.size_bytes(), size as u64);
            opened.check(&[ByteRange::at(0, 1 << 40), ByteRange::at(5, 5)], &bytes);
            opened.check(&[ByteRange::at(0, 1 << 40), ByteRange::at(5, 5)], &bytes);
            let explain = opened.explain();
            assert!(explain.moved_in_all() <= size as u64, "{scheme} {size}\n{explain}");
            // All of it is there: it is compared with what the server says.
            let proof = opened.proof();
            assert!(matches!(proof, Proof::Verified(_)), "{scheme} {size}: {proof:?}");
        }
    }
}

#[test]
fn what_is_not_there_or_no_file_says_so() {
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    std::fs::create_dir(export.join("d")).unwrap();
    let server = Server::start(&export);
    let code = |url: String| match open_with(&[url], None, options(Policy::Adaptive)) {
        Ok(_) => panic!("it opens"),
        Err(error) => (error.kind(), error.message().to_owned()),
    };
    for scheme in ["http", "root"] {
        let (kind, _) = code(server.url_over(scheme, "none"));
        assert_eq!(kind, gridlane_core::ErrorKind::NotFound, "{scheme}");
        let (kind, message) = code(server.url_over(scheme, "d/"));
        assert_ne!(kind, gridlane_core::ErrorKind::NotFound, "{scheme}: {message}");
    }
}

#[test]
fn a_redirect_is_followed_once() {
    let bytes = large(5008);
    let object = Object::new(&bytes);
    let server = Rogue::start(move |request| match request.path.as_str() {
        "/f" => Answer::redirect(302, "/g"),
        _ => object.answer(request),
    });
    let settings = Settings { lanes: 1, ..options(Policy::Vector).settings };
    let options = ReadOptions { settings, ..options(Policy::Vector) };
    let opened = open_with(&[server.url("f")], None, options).unwrap();
    read_all_over(&opened, &bytes);
    let asked = server.requests().iter().filter(|request| request.path == "/f").count();
    assert!((1..4).contains(&asked), "{asked} requests were led elsewhere");
}

#[test]
fn two_replicas_share_the_work_and_the_death_of_one_is_not_missed() {
    let (scratch, bytes) = (Scratch::new(), large(5009));
    let export = scratch.dir("export");
    std::fs::write(export.join("f"), bytes.as_slice()).unwrap();
    let mut servers = [Server::start(&export), Server::start(&export)];
    let urls = [servers[0].url_over("root", "f"), servers[1].url_over("http", "f")];
    let opened = open_with(&urls, None, options(Policy::Vector)).unwrap();
    opened.check(&scattered(5010, bytes.len(), 5000, 1500), &bytes);
    servers[0].kill();
    opened.check(&scattered(5011, bytes.len(), 5000, 1500), &bytes);
    drop(opened);
    let urls = [urls[0].clone(), urls[1].clone()];
    let opened = open_with(&urls, None, options(Policy::Adaptive)).unwrap();
    opened.check(&scattered(5012, bytes.len(), 500, 1500), &bytes);
    servers[1].kill();
    let error = opened.read(&scattered(5013, bytes.len(), 500, 1500)).unwrap_err();
    assert_eq!(error.kind(), gridlane_core::ErrorKind::Network, "{error:?}");
}

#[test]
fn connections_end_with_the_file() {
    let (scratch, bytes) = (Scratch::new(), large(5014));
    let export = scratch.dir("export");
    std::fs::write(export.join("f"), bytes.as_slice()).unwrap();
    let object = Object::new(&bytes);
    let server = Rogue::start(move |request| object.answer(request));
    let opened = open(&server.url("f"));
    opened.check(&scattered(5015, bytes.len(), 50, 1500), &bytes);
    let Opened { runtime, file } = opened;
    let reading = file.read(&[ByteRange::at(0, 1)], None);
    file.close();
    let refused = runtime.block_on(file.read(&[ByteRange::at(0, 1)], None).all());
    assert!(refused.is_err());
    drop((file, reading, runtime));
    crate::support::until("all connections are closed", || server.open_connections() == 0);
}

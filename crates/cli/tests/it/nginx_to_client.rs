//! nginx as the server of gridlane's client: as it comes, and set up so that it is hard to read from.

use std::fs;
use std::sync::Arc;

use gridlane_core::ChecksumKind;

use crate::support::client::{Outcome, cp, cp_from, gridlane, run};
use crate::support::nginx::Nginx;
use crate::support::serve::Server;
use crate::support::{MIB, Scratch, assert_copied, checksum_text, content};

const SIZE: usize = 16 * MIB;

struct Site {
    scratch: Scratch,
    bytes: Arc<Vec<u8>>,
}

impl Site {
    fn new(seed: u64) -> Site {
        let scratch = Scratch::new();
        let bytes = content(seed, SIZE);
        fs::write(scratch.dir("export").join("f.bin"), &*bytes).unwrap();
        Site { scratch, bytes }
    }

    fn nginx(&self, directives: &str) -> Nginx {
        Nginx::with(&self.scratch.join("export"), directives)
    }

    /// Copies from these and compares.
    fn copies(&self, name: &str, sources: &[String]) -> Outcome {
        let target = self.scratch.join(name);
        let outcome = run(cp_from(sources, &target)).ok();
        assert_copied(&target, &self.bytes);
        outcome
    }
}

fn ask(arguments: &[&str]) -> Outcome {
    let mut command = gridlane();
    command.args(arguments);
    run(command)
}

#[test]
fn http_and_https() {
    let site = Site::new(1401);
    let nginx = Nginx::start(&site.scratch.join("export"));
    // nginx knows no digest: nothing to compare with.
    site.copies("http", &[nginx.url("f.bin")]).verified(false);
    let target = site.scratch.join("https");
    let mut command = cp(nginx.tls_url("f.bin"), &target);
    command.arg("--ca").arg(nginx.ca());
    command.args(["--checksum", &checksum_text(ChecksumKind::Sha256, &site.bytes)]);
    run(command).ok().verified(true);
    assert_copied(&target, &site.bytes);
    run(cp(nginx.tls_url("f.bin"), site.scratch.join("untrusted"))).says(&["certificate"]);
    assert!(!site.scratch.join("untrusted").exists());
    run(cp(nginx.url("missing"), site.scratch.join("missing"))).exits(3);
}

#[test]
fn connections_that_end_after_a_few_requests() {
    let site = Site::new(1402);
    let nginx = site.nginx("keepalive_requests 3;");
    site.copies("f", &[nginx.url("f.bin")]);
    let closing = site.nginx("keepalive_timeout 0;");
    site.copies("g", &[closing.url("f.bin")]);
}

#[test]
fn no_ranges() {
    let site = Site::new(1403);
    let nginx = site.nginx("max_ranges 0;");
    site.copies("f", &[nginx.url("f.bin")]);
    let good = Server::start(&site.scratch.join("export"));
    site.copies("g", &[nginx.url("f.bin"), good.url("f.bin")]).verified(true);
}

#[test]
fn compressed_answers_are_not_asked_for() {
    let site = Site::new(1404);
    let nginx = site.nginx("gzip on; gzip_types *; gzip_min_length 1; gzip_proxied any;");
    site.copies("f", &[nginx.url("f.bin")]);
}

#[test]
fn a_limit_per_connection() {
    let site = Site::new(1405);
    let nginx = site.nginx("limit_rate 4m;");
    site.copies("f", &[nginx.url("f.bin"), nginx.url("f.bin")]);
}

#[test]
fn three_of_nginx_and_one_of_ours() {
    let site = Site::new(1406);
    let nginx: Vec<Nginx> = (0..3).map(|_| site.nginx("limit_rate 6m;")).collect();
    let ours = Server::with(&site.scratch.join("export"), &["--limit-rate", "6MB/s"]);
    let mut sources: Vec<String> = nginx.iter().map(|nginx| nginx.url("f.bin")).collect();
    sources.push(ours.url("f.bin"));
    let outcome = site.copies("f", &sources).verified(true);
    for source in &sources {
        assert!(outcome.source(source)["bytes"].as_u64().unwrap() > 0, "{}", outcome.describe());
    }
}

#[test]
fn a_directory_redirect_and_a_moved_file() {
    let site = Site::new(1407);
    let nginx = site.nginx("location /old/ { rewrite ^/old/(.*)$ /$1 permanent; }");
    site.copies("f", &[nginx.url("old/f.bin")]);
}

#[test]
fn listings_for_people_and_for_programs() {
    let site = Site::new(1408);
    let dir = site.scratch.join("export");
    fs::create_dir(dir.join("sub")).unwrap();
    fs::write(dir.join("with space & more"), b"12345").unwrap();
    for directives in ["autoindex on;", "autoindex on; autoindex_format json;"] {
        let nginx = site.nginx(directives);
        let text = ask(&["ls", &nginx.url("")]).exits(0).text();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.contains(&"f.bin") && lines.contains(&"with space & more"), "{directives}: {text}");
        assert!(lines.iter().any(|line| line.trim_end_matches('/') == "sub"), "{directives}: {text}");
        assert!(!text.contains(".."), "{directives}: {text}");
        if directives.contains("json") {
            // Only this one says sizes in a form that is made for programs.
            let text = ask(&["ls", "-l", &nginx.url("")]).exits(0).text();
            assert!(text.contains("16.8 MB") || text.contains("16777216"), "{directives}: {text}");
        }
    }
    // Without a listing there is none to show.
    let closed = site.nginx("");
    ask(&["ls", &closed.url("")]).exits(4);
}

#[test]
fn the_small_commands() {
    let site = Site::new(1409);
    let nginx = Nginx::start(&site.scratch.join("export"));
    let url = nginx.url("f.bin");
    assert!(ask(&["stat", &url]).exits(0).text().contains("16777216"));
    crate::support::assert_same(&ask(&["cat", &url]).exits(0).stdout, &site.bytes);
    // Without a digest of the server's the bytes are read and hashed here.
    let text = ask(&["checksum", &url]).exits(0).text();
    assert_eq!(text, format!("{}  {url}\n", checksum_text(ChecksumKind::Adler32, &site.bytes)));
    ask(&["rm", &url]).exits(12);
}

#[test]
fn uploads_to_its_dav_module() {
    let site = Site::new(1410);
    let nginx = site
        .nginx("client_max_body_size 0; location /up/ { dav_methods PUT DELETE; create_full_put_path on; }");
    let source = site.scratch.file("source", &site.bytes);
    run(cp(&source, nginx.url("up/f"))).ok();
    assert_copied(&site.scratch.join("export/up/f"), &site.bytes);
    ask(&["rm", &nginx.url("up/f")]).exits(0);
    assert!(!site.scratch.join("export/up/f").exists());
    run(cp(&source, nginx.url("f.new"))).exits(12);
}

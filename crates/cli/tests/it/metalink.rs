//! Metalinks as sources: what they describe is copied from where they say, and compared piece by piece.

use std::fmt::Write as _;
use std::fs;
use std::sync::Arc;

use gridlane_core::ChecksumKind::{self, Adler32, Md5, Sha1, Sha256};

use crate::support::client::{Outcome, Running, cp, cp_impatient, run};
use crate::support::object::Object;
use crate::support::rogue::Rogue;
use crate::support::{
    MIB, SOON, Scratch, assert_copied, assert_same, checksum, content, journal_of, names, occupied_bytes,
    part_of, until,
};

const SIZE: usize = 16 * MIB;
const PIECE: usize = 512 * 1024;
/// Slow enough that every replica is asked for bytes before the others are done.
const RATE: u64 = 10_000_000;

/// The description of one file in a metalink.
struct Described {
    name: String,
    size: Option<usize>,
    hashes: Vec<(ChecksumKind, String)>,
    pieces: Option<(ChecksumKind, usize, Vec<String>)>,
    urls: Vec<String>,
}

impl Described {
    fn new(name: &str, bytes: &[u8], urls: &[String]) -> Described {
        Described {
            name: name.into(),
            size: Some(bytes.len()),
            hashes: Vec::new(),
            pieces: None,
            urls: urls.to_vec(),
        }
    }

    fn hash(mut self, kind: ChecksumKind, of: &[u8]) -> Described {
        self.hashes.push((kind, checksum(kind, of).hex()));
        self
    }

    fn pieces(mut self, kind: ChecksumKind, piece: usize, of: &[u8]) -> Described {
        let hashes = of.chunks(piece).map(|piece| checksum(kind, piece).hex()).collect();
        self.pieces = Some((kind, piece, hashes));
        self
    }

    fn v4(&self) -> String {
        let mut text = format!("<file name=\"{}\">", self.name);
        self.size.iter().for_each(|size| write!(text, "<size>{size}</size>").unwrap());
        for (kind, hash) in &self.hashes {
            write!(text, "<hash type=\"{}\">{hash}</hash>", v4_name(*kind)).unwrap();
        }
        if let Some((kind, piece, hashes)) = &self.pieces {
            write!(text, "<pieces length=\"{piece}\" type=\"{}\">", v4_name(*kind)).unwrap();
            hashes.iter().for_each(|hash| write!(text, "<hash>{hash}</hash>").unwrap());
            text.push_str("</pieces>");
        }
        for (number, url) in self.urls.iter().enumerate() {
            write!(text, "<url priority=\"{}\">{url}</url>", number + 1).unwrap();
        }
        text + "</file>"
    }

    fn v3(&self) -> String {
        let mut text = format!("<file name=\"{}\">", self.name);
        self.size.iter().for_each(|size| write!(text, "<size>{size}</size>").unwrap());
        text.push_str("<verification>");
        for (kind, hash) in &self.hashes {
            write!(text, "<hash type=\"{}\">{hash}</hash>", kind.name()).unwrap();
        }
        if let Some((kind, piece, hashes)) = &self.pieces {
            write!(text, "<pieces length=\"{piece}\" type=\"{}\">", kind.name()).unwrap();
            for (number, hash) in hashes.iter().enumerate() {
                write!(text, "<hash piece=\"{number}\">{hash}</hash>").unwrap();
            }
            text.push_str("</pieces>");
        }
        text.push_str("</verification><resources>");
        for (number, url) in self.urls.iter().enumerate() {
            write!(text, "<url type=\"http\" preference=\"{}\">{url}</url>", 100 - number).unwrap();
        }
        text + "</resources></file>"
    }
}

fn v4_name(kind: ChecksumKind) -> String {
    kind.name().replacen("sha", "sha-", 1)
}

fn meta4(files: &[Described]) -> String {
    let files: String = files.iter().map(Described::v4).collect();
    format!("<?xml version=\"1.0\"?>\n<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">{files}</metalink>")
}

fn metalink3(files: &[Described]) -> String {
    let files: String = files.iter().map(Described::v3).collect();
    format!(
        "<metalink version=\"3.0\" xmlns=\"http://www.metalinker.org/\"><files>{files}</files></metalink>"
    )
}

/// A server that says nothing of its files but their size.
fn bare(bytes: &Arc<Vec<u8>>, rate: u64) -> Rogue {
    let object = Object::bare(bytes);
    Rogue::with_rate(rate, move |request| object.answer(request))
}

/// The same with wrong bytes in some of the pieces; irregular ones, so that an adler32 cannot miss them.
fn damaged(bytes: &Arc<Vec<u8>>, pieces: impl IntoIterator<Item = usize>) -> Arc<Vec<u8>> {
    let mut wrong = bytes.to_vec();
    for piece in pieces {
        for byte in 0..5 {
            wrong[piece * PIECE + (piece * 7919 + byte * 104_729) % PIECE] ^=
                (1 + (piece * 31 + byte * 17) % 255) as u8;
        }
    }
    Arc::new(wrong)
}

/// A server with one document.
fn document(text: String, media_type: Option<&'static str>) -> Rogue {
    let bytes = Arc::new(text.into_bytes());
    Rogue::start(move |request| {
        let answer = Object::bare(&bytes).answer(request);
        match media_type {
            Some(media_type) => answer.header("Content-Type", media_type),
            None => answer,
        }
    })
}

/// The summary's number about one source.
fn of_source(outcome: &Outcome, server: &Rogue, field: &str) -> u64 {
    outcome.source(&server.url("f"))[field].as_u64().unwrap()
}

#[test]
fn one_of_three_lies_and_only_its_pieces_are_fetched_again() {
    let bytes = content(2001, SIZE);
    let wrong = damaged(&bytes, 0..SIZE / PIECE);
    let scratch = Scratch::new();
    for (number, kind) in [Sha1, Md5, Sha256].into_iter().enumerate() {
        let (one, two, lying) = (bare(&bytes, RATE), bare(&bytes, RATE), bare(&wrong, RATE));
        let mut urls = [one.url("f"), two.url("f"), lying.url("f")];
        urls.rotate_left(number);
        let file = Described::new("f", &bytes, &urls).pieces(kind, PIECE, &bytes);
        let link = scratch.file(&format!("{number}.meta4"), meta4(&[file]).as_bytes());
        let target = scratch.join(number.to_string());
        let outcome = run(cp(&link, &target)).ok().verified(true).blames(&lying.url("f"), "wrong piece");
        assert_copied(&target, &bytes);
        assert_eq!(outcome.source(&lying.url("f"))["state"], "wrong");
        // Wrong pieces, and what it had sent of others when it was dropped. The end of a request may be asked for twice, more
        // of it on a busy machine, where all come late.
        let sent = of_source(&outcome, &lying, "received_bytes");
        let is_shared =
            |event: &serde_json::Value| event["sources"].as_array().is_some_and(|from| from.len() > 1);
        let shared =
            outcome.events().iter().filter(|event| event["type"] == "verify" && is_shared(event)).count();
        let extra = outcome.number("extra_bytes");
        let allowed = sent + (shared * PIECE + SIZE / 4) as u64;
        assert!(extra <= allowed, "{extra} bytes extra, {sent} were wrong\n{}", outcome.describe());
        assert!(of_source(&outcome, &lying, "wrong_pieces") >= 1);
        for honest in [&one, &two] {
            assert_eq!(of_source(&outcome, honest, "wrong_pieces"), 0, "{}", outcome.describe());
        }
        assert_eq!(outcome.summary()["verified_by"], "as its metalink says");
    }
}

#[test]
fn a_damaged_piece_costs_one_piece_and_is_told_of() {
    let bytes = content(2002, SIZE);
    // The first megabytes are asked of both, whichever is faster then.
    let (good, bad) = (bare(&bytes, RATE), bare(&damaged(&bytes, 0..4), RATE));
    let scratch = Scratch::new();
    let file = Described::new("f", &bytes, &[bad.url("f"), good.url("f")]).pieces(Sha1, PIECE, &bytes);
    let link = scratch.file("f.meta4", meta4(&[file.hash(Sha256, &bytes)]).as_bytes());
    let target = scratch.join("f");
    let outcome = run(cp(&link, &target)).ok().verified(true).blames(&bad.url("f"), "wrong piece");
    assert_copied(&target, &bytes);
    let extra = outcome.number("extra_bytes");
    assert!(extra <= (4 * PIECE + MIB.max(SIZE / 50)) as u64, "{extra} bytes extra\n{}", outcome.describe());
    let told =
        outcome.events().into_iter().find(|event| event["type"] == "verify" && event["matches"] == false);
    let told = told.unwrap_or_else(|| panic!("nothing of the piece\n{}", outcome.describe()));
    assert!(told["offset"].as_u64().unwrap() < 4 * PIECE as u64 && told["len"] == PIECE, "{told}");
    assert_eq!(told["sources"][0], bad.url("f"));
    assert_eq!(outcome.summary()["checksum"], crate::support::checksum_text(Sha256, &bytes));
}

#[test]
fn a_pipe_gets_no_wrong_byte() {
    let bytes = content(2103, SIZE);
    let (good, bad) = (bare(&bytes, RATE), bare(&damaged(&bytes, 0..SIZE / PIECE), RATE));
    let scratch = Scratch::new();
    let file = Described::new("f", &bytes, &[bad.url("f"), good.url("f")]).pieces(Sha1, PIECE, &bytes);
    let link = scratch.file("f.meta4", meta4(&[file]).as_bytes());
    let outcome = run(cp(&link, "-")).ok();
    assert!(outcome.stderr.contains("wrong piece"), "{}", outcome.stderr);
    assert_same(&outcome.stdout, &bytes);

    // No replica has the third piece: what is in front of it was passed on, and nothing else.
    let bad = bare(&damaged(&bytes, [3]), 0);
    let file = Described::new("f", &bytes, &[bad.url("f")]).pieces(Sha1, PIECE, &bytes);
    let link = scratch.file("g.meta4", meta4(&[file]).as_bytes());
    let outcome = run(cp(&link, "-")).exits(8);
    assert!(outcome.stdout.len() <= 3 * PIECE);
    assert_same(&outcome.stdout, &bytes[..outcome.stdout.len()]);
}

#[test]
fn what_was_killed_continues_and_what_is_wrong_on_the_disk_is_found() {
    let bytes = content(2004, 2 * SIZE);
    let slow = bare(&bytes, RATE);
    let scratch = Scratch::new();
    let describe = |server: &Rogue| {
        meta4(&[Described::new("f", &bytes, &[server.url("f")]).pieces(Sha1, PIECE, &bytes)])
    };
    for keeps_journal in [true, false] {
        let target = scratch.join(format!("f-{keeps_journal}"));
        let link = scratch.file("f.meta4", describe(&slow).as_bytes());
        let mut copy = Running::start(cp(&link, &target));
        until("half of it has arrived", || {
            assert!(copy.is_running(), "it ended before it could be killed");
            occupied_bytes(&part_of(&target)) >= SIZE as u64
                && fs::metadata(journal_of(&target)).unwrap().len() > 300
        });
        copy.kill();
        let mut part = fs::read(part_of(&target)).unwrap();
        part[PIECE + 5] ^= 1;
        fs::write(part_of(&target), &part).unwrap();
        if !keeps_journal {
            fs::write(journal_of(&target), b"torn").unwrap();
        }
        let fast = bare(&bytes, 0);
        let link = scratch.file("f.meta4", describe(&fast).as_bytes());
        let outcome = run(cp(&link, &target)).ok().verified(true);
        assert_copied(&target, &bytes);
        let kept = outcome.number("resumed_bytes");
        assert!(kept >= 4 * MIB as u64, "only {kept} bytes were kept\n{}", outcome.describe());
        let fetched = fast.sent_bytes();
        assert!(fetched <= (2 * SIZE) as u64 - kept + MIB as u64, "{fetched} bytes and {kept} kept");
    }
}

#[test]
fn both_versions_from_files_and_urls() {
    let bytes = content(2005, MIB);
    let server = bare(&bytes, 0);
    let scratch = Scratch::new();
    let file = || {
        let urls = ["ftp://old.example/f".to_owned(), server.url("f")];
        Described::new("named by it", &bytes, &urls).hash(Md5, &bytes).hash(Adler32, &bytes)
    };
    let v4 = document(meta4(&[file()]), Some("application/metalink4+xml; charset=utf-8"));
    let v3 = document(metalink3(&[file()]), Some("application/metalink+xml"));
    let untyped = document(meta4(&[file()]), None);
    let sources = [
        scratch.file("a.meta4", meta4(&[file()]).as_bytes()).display().to_string(),
        scratch.file("b.METALINK", metalink3(&[file()]).as_bytes()).display().to_string(),
        v4.url("c.meta4"),
        v3.url("d.metalink"),
        untyped.url("e.meta4?x=1"),
    ];
    for (number, source) in sources.iter().enumerate() {
        let dir = scratch.dir(&format!("into-{number}"));
        let outcome = run(cp(source, &dir)).ok().verified(true);
        assert_copied(&dir.join("named by it"), &bytes);
        assert_eq!(outcome.summary()["checksum"], crate::support::checksum_text(Md5, &bytes), "{source}");
    }
    let accepted = v4.requests()[0].header("accept").unwrap_or_default().to_owned();
    assert!(accepted.contains("application/metalink4+xml") && accepted.contains("*/*"), "{accepted}");
}

#[test]
fn a_metalink_is_a_file_too() {
    let bytes = content(2006, 1000);
    let text = meta4(&[Described::new("f", &bytes, &["http://127.0.0.1:1/f".into()])]);
    let scratch = Scratch::new();
    let link = scratch.file("f.meta4", text.as_bytes());
    let into = scratch.dir("into");
    let mut command = cp(&link, &into);
    command.arg("--no-metalink");
    run(command).ok();
    assert_same(&fs::read(into.join("f.meta4")).unwrap(), text.as_bytes());
    // A file that only has such a name is copied as what it is.
    let other = scratch.file("picture.metalink", b"<svg/>");
    run(cp(&other, &into)).ok();
    assert_eq!(fs::read(into.join("picture.metalink")).unwrap(), b"<svg/>");
    let server = document("no xml at all".into(), Some("application/octet-stream"));
    run(cp(server.url("g.meta4"), &into)).ok();
    assert_eq!(fs::read(into.join("g.meta4")).unwrap(), b"no xml at all");
}

#[test]
fn several_files_go_into_a_directory() {
    let (one, two) = (content(2007, MIB), content(2008, 2 * MIB));
    let (first, second) = (bare(&one, 0), bare(&two, 0));
    let scratch = Scratch::new();
    let files = [
        Described::new("a", &one, &[first.url("x")]).hash(Sha256, &one),
        Described::new("sub/dir/b", &two, &[second.url("y")]).hash(Sha256, &two),
    ];
    let link = scratch.file("set.meta4", meta4(&files).as_bytes());
    let into = scratch.dir("into");
    let outcome = run(cp(&link, &into)).ok();
    assert_copied(&into.join("a"), &one);
    assert_copied(&into.join("sub/dir/b"), &two);
    assert_eq!(outcome.events().iter().filter(|event| event["type"] == "file.done").count(), 2);
    let told = run(cp(&link, scratch.join("name"))).says(&["2 files", "directory"]);
    assert_eq!(told.code, Some(2));
    // The first one is there already.
    fs::remove_file(into.join("sub/dir/b")).unwrap();
    run(cp(&link, &into)).exits(10);
    assert_copied(&into.join("sub/dir/b"), &two);
}

#[test]
fn names_that_lead_out_of_the_directory_are_refused() {
    let bytes = content(2009, 1000);
    let server = bare(&bytes, 0);
    let scratch = Scratch::new();
    for name in ["../evil", "a/../../evil", "..", "", "a//b"] {
        let file = Described::new(name, &bytes, &[server.url("f")]).hash(Md5, &bytes);
        let link = scratch.file("x.meta4", meta4(&[file]).as_bytes());
        let into = scratch.dir("into/deep");
        let outcome = run(cp(&link, &into)).says(&["metalink", "name"]);
        assert_eq!(outcome.code, Some(1), "{name:?}: {}", outcome.describe());
        assert!(names(&into).is_empty() && scratch.names() == ["into", "x.meta4"], "{name:?}");
    }
    let file = Described::new("/cms/store/f", &bytes, &[server.url("last")]).hash(Md5, &bytes);
    let link = scratch.file("x.meta4", meta4(&[file]).as_bytes());
    run(cp(&link, scratch.dir("into"))).ok();
    assert_copied(&scratch.join("into/last"), &bytes);
}

#[test]
fn what_is_malformed_or_of_no_use_is_a_clear_error() {
    let scratch = Scratch::new();
    let begin = "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">";
    let huge = format!("{begin}{}</metalink>", " ".repeat(40 * MIB));
    let cases = [
        (format!("{begin}<file name=\"f\">"), 1, "metalink"),
        (format!("{begin}</metalink>"), 1, "no file"),
        (format!("{begin}<file name=\"f\"><url>ftp://a/f</url></file></metalink>"), 12, "ftp"),
        (
            format!("{begin}<file name=\"f\"><url>file:///etc/passwd</url></file></metalink>"),
            12,
            "this machine",
        ),
        (huge, 1, "longer than"),
    ];
    for (text, code, word) in cases {
        let link = scratch.file("x.meta4", text.as_bytes());
        let outcome = run(cp(&link, scratch.join("f"))).says(&[word]);
        assert_eq!(outcome.code, Some(code), "{}", outcome.describe());
        let server = document(text, Some("application/metalink4+xml"));
        let outcome = run(cp(server.url("x.meta4"), scratch.join("f"))).says(&[word]);
        assert_eq!(outcome.code, Some(code), "{}", outcome.describe());
    }
    assert_eq!(scratch.names(), ["x.meta4"]);
}

#[test]
fn a_metalink_with_wrong_checksums_leaves_nothing() {
    let bytes = content(2010, 4 * MIB);
    let servers = [bare(&bytes, 0), bare(&bytes, 0)];
    let urls = [servers[0].url("f"), servers[1].url("f")];
    let other = content(2011, 4 * MIB);
    let scratch = Scratch::new();
    let of = || Described::new("f", &bytes, &urls);
    let mut sized = of().hash(Md5, &bytes);
    sized.size = Some(bytes.len() - 1);
    for file in [
        of().hash(Sha256, &other),
        of().hash(Sha256, &bytes).hash(Adler32, &other),
        of().pieces(Sha1, PIECE, &other),
        of().pieces(Sha1, PIECE, &bytes).hash(Sha256, &other),
        sized,
    ] {
        let link = scratch.file("f.meta4", meta4(&[file]).as_bytes());
        let outcome = run(cp_impatient(&link, scratch.join("f"))).fails(8, "peer", false, &[]);
        assert!(outcome.elapsed < SOON, "{:?}", outcome.elapsed);
        assert_eq!(scratch.names(), ["f.meta4"], "{}", outcome.describe());
    }
}

/// Of some copies, a piece is being written at the moment when its source turns out to be wrong.
#[test]
fn copies_from_sources_of_another_size_leave_nothing() {
    let bytes = content(2018, 4 * MIB);
    let servers = [bare(&bytes, 0), bare(&bytes, 0)];
    let mut file = Described::new("f", &bytes, &[servers[0].url("f"), servers[1].url("f")]);
    file.size = Some(bytes.len() - 1);
    let scratch = Scratch::new();
    let link = scratch.file("f.meta4", meta4(&[file]).as_bytes());
    let copies: Vec<_> =
        (0..96).map(|number| cp_impatient(&link, scratch.join(number.to_string()))).collect();
    let copies: Vec<_> = copies.into_iter().map(Running::start).collect();
    for copy in copies {
        copy.wait().fails(8, "peer", false, &[]);
    }
    assert_eq!(scratch.names(), ["f.meta4"]);
}

#[test]
fn what_the_caller_says_counts_before_the_metalink() {
    let bytes = content(2012, MIB);
    let server = bare(&bytes, 0);
    let scratch = Scratch::new();
    let file = Described::new("f", &bytes, &[server.url("f")]).hash(Sha256, b"another");
    let link = scratch.file("f.meta4", meta4(&[file]).as_bytes());
    let mut command = cp(&link, scratch.join("f"));
    command.args(["--checksum", &crate::support::checksum_text(Md5, &bytes)]);
    let outcome = run(command).ok().verified(true);
    assert_eq!(outcome.summary()["verified_by"], "as --checksum says");
}

#[test]
fn a_source_of_another_size_is_left_out() {
    let bytes = content(2013, 4 * MIB);
    let short = Arc::new(bytes[..3 * MIB].to_vec());
    let (wrong, also_wrong, good) = (bare(&short, 0), bare(&short, 0), bare(&bytes, 0));
    let scratch = Scratch::new();
    let urls = [wrong.url("f"), also_wrong.url("f"), good.url("f")];
    let link = Described::new("f", &bytes, &urls).hash(Sha256, &bytes);
    let link = scratch.file("f.meta4", meta4(&[link]).as_bytes());
    let target = scratch.join("f");
    run(cp(&link, &target)).ok().verified(true);
    assert_copied(&target, &bytes);
}

#[test]
fn the_end_of_a_piece_may_be_anywhere() {
    let bytes = content(2014, 3 * MIB + 12_345);
    let scratch = Scratch::new();
    for piece in [1000, 70_001, 2 * MIB, 64 * MIB] {
        let servers = [bare(&bytes, 0), bare(&bytes, 0)];
        let urls = [servers[0].url("f"), servers[1].url("f")];
        let file = Described::new("f", &bytes, &urls).pieces(Sha1, piece, &bytes);
        let link = scratch.file("f.meta4", meta4(&[file]).as_bytes());
        let target = scratch.join(format!("f-{piece}"));
        run(cp(&link, &target)).ok().verified(true);
        assert_copied(&target, &bytes);
        let outcome = run(cp(&link, "-")).ok();
        assert_same(&outcome.stdout, &bytes);
    }
}

#[test]
fn a_server_that_ignores_ranges_is_compared_too() {
    let bytes = content(2015, 4 * MIB);
    let object = Object::bare(&bytes);
    let server = Rogue::start(move |request| object.answer_whole(request));
    let scratch = Scratch::new();
    let file = Described::new("f", &bytes, &[server.url("f")]).pieces(Sha1, PIECE, &bytes);
    let link = scratch.file("f.meta4", meta4(&[file]).as_bytes());
    let target = scratch.join("f");
    run(cp(&link, &target)).ok().verified(true);
    assert_copied(&target, &bytes);
    let outcome = run(cp(&link, "-")).ok();
    assert_same(&outcome.stdout, &bytes);
}

/// A server whose answers for `f` have these `Link` lines, and that may have other documents.
fn linking(bytes: &Arc<Vec<u8>>, rate: u64, links: &[String], others: &[(&'static str, String)]) -> Rogue {
    let object = Object::new(bytes);
    let links = links.to_vec();
    let others: Vec<(&'static str, Arc<Vec<u8>>)> =
        others.iter().map(|(path, text)| (*path, Arc::new(text.clone().into_bytes()))).collect();
    Rogue::with_rate(rate, move |request| {
        if let Some((_, bytes)) = others.iter().find(|(path, _)| *path == request.path) {
            let answer = Object::bare(bytes).answer(request);
            return answer.header("Content-Type", "application/metalink4+xml");
        }
        links.iter().fold(object.answer(request), |answer, link| answer.header("Link", link))
    })
}

fn duplicate(url: &str) -> String {
    format!("<{url}>; rel=duplicate; pri=1; geo=ch")
}

#[test]
fn replicas_that_a_server_names_are_used_and_have_no_vote() {
    let bytes = content(2021, SIZE);
    let lies = damaged(&bytes, 0..SIZE / PIECE);
    let scratch = Scratch::new();
    let (good, lying) = (bare(&bytes, 0), Object::new(&lies));
    let liars: Vec<Rogue> = (0..2)
        .map(|_| {
            let object = lying.clone();
            Rogue::with_rate(RATE, move |request| object.answer(request))
        })
        .collect();
    let other_size = bare(&Arc::new(bytes[..MIB].to_vec()), RATE);
    let links = [&good, &other_size, &liars[0], &liars[1]].map(|server| duplicate(&server.url("f")));
    let server = linking(&bytes, 1_000_000, &links, &[]);
    let target = scratch.join("f");
    run(cp(server.url("f"), &target)).ok().verified(true);
    assert_copied(&target, &bytes);
    assert!(good.sent_bytes() > 0);

    let server = linking(&bytes, 0, &links[..1], &[]);
    let asked = good.requests().len();
    let mut command = cp(server.url("f"), scratch.join("alone"));
    command.arg("--no-links");
    run(command).ok();
    assert_eq!(good.requests().len(), asked, "--no-links is not obeyed");
}

#[test]
fn without_a_checksum_no_other_replica_is_believed() {
    let bytes = content(2022, 4 * MIB);
    let other = bare(&content(2023, 4 * MIB), 0);
    let link = duplicate(&other.url("f"));
    let object = Object::bare(&bytes);
    let server = Rogue::with_rate(RATE, move |request| object.answer(request).header("Link", &link));
    let scratch = Scratch::new();
    run(cp(server.url("f"), scratch.join("f"))).ok().verified(false);
    assert_copied(&scratch.join("f"), &bytes);
    assert!(other.requests().is_empty());
}

#[test]
fn links_of_a_redirect_count() {
    let bytes = content(2024, SIZE);
    let (slow, good) = (linking(&bytes, 1_000_000, &[], &[]), bare(&bytes, 0));
    let (to, link) = (slow.url("f"), duplicate(&good.url("f")));
    let server =
        Rogue::start(move |_| crate::support::object::Answer::redirect(302, &to).header("Link", &link));
    let scratch = Scratch::new();
    let outcome = run(cp(server.url("f"), scratch.join("f"))).ok().verified(true);
    assert_copied(&scratch.join("f"), &bytes);
    assert!(of_source(&outcome, &good, "bytes") > 0, "{}", outcome.describe());
}

#[test]
fn a_metalink_that_a_server_names_finds_the_liar() {
    let bytes = content(2025, 3 * SIZE);
    let lying = bare(&damaged(&bytes, 0..3 * SIZE / PIECE), RATE);
    let urls = [lying.url("f"), "f".to_owned()];
    let describe = |of: &[u8]| meta4(&[Described::new("f", &bytes, &urls).pieces(Sha1, PIECE, of)]);
    let link = "<f.meta4>; rel=describedby; type=\"application/metalink4+xml\"".to_owned();
    let scratch = Scratch::new();
    let server = linking(&bytes, RATE, std::slice::from_ref(&link), &[("/f.meta4", describe(&bytes))]);
    let target = scratch.join("f");
    let outcome =
        run(cp(server.url("f"), &target)).ok().verified(true).blames(&lying.url("f"), "wrong piece");
    assert_copied(&target, &bytes);
    assert_eq!(outcome.summary()["verified_by"], "as its metalink says");

    // One of another file, one that is broken, and one that is not there: the copy goes on without.
    let other = Described::new("f", &bytes[1..], &urls).hash(Md5, &bytes);
    for (number, text) in [meta4(&[other]), "<broken".to_owned(), String::new()].into_iter().enumerate() {
        let server = linking(&bytes, 0, std::slice::from_ref(&link), &[("/f.meta4", text)]);
        let target = scratch.join(format!("f-{number}"));
        run(cp(server.url("f"), &target)).ok().verified(true);
        assert_copied(&target, &bytes);
    }
}

#[test]
fn a_url_that_is_answered_as_a_metalink_is_one() {
    let bytes = content(2026, MIB);
    let server = bare(&bytes, 0);
    let file = Described::new("f", &bytes, &[server.url("f")]).hash(Sha256, &bytes);
    let link = document(meta4(&[file]), Some("application/metalink4+xml"));
    let scratch = Scratch::new();
    let into = scratch.dir("into");
    // Under its own name: the user has not called it a metalink.
    run(cp(link.url("redirect/scope/name?metalink"), &into)).ok().verified(true);
    assert_copied(&into.join("name"), &bytes);
    assert_eq!(names(&into), ["name"]);
    let mut command = cp(link.url("redirect/other"), &into);
    command.arg("--no-metalink");
    run(command).ok();
    assert!(fs::read_to_string(into.join("other")).unwrap().starts_with("<?xml"));
}

#[test]
fn a_priority_says_with_whom_to_begin() {
    let bytes = content(2027, MIB);
    let servers: Vec<Rogue> = (0..10).map(|_| bare(&bytes, 0)).collect();
    let mut urls: Vec<String> = servers.iter().map(|server| server.url("f")).collect();
    // More than are used at a time: those that are named first in order of priority.
    urls.reverse();
    let scratch = Scratch::new();
    for (number, text) in [meta4, metalink3].into_iter().enumerate() {
        let file = Described::new("f", &bytes, &urls).hash(Sha256, &bytes);
        let link = scratch.file("f.meta4", text(&[file]).as_bytes());
        let outcome = run(cp(&link, scratch.join(number.to_string()))).ok().verified(true);
        let plan = outcome.event("plan");
        assert_eq!(
            plan["sources"].as_array().unwrap().iter().map(|url| url.as_str().unwrap()).collect::<Vec<_>>(),
            urls
        );
    }
    assert!(servers[..2].iter().all(|server| server.requests().is_empty()), "the last two were not spared");
}

#[test]
fn an_upload_gets_no_wrong_byte() {
    let bytes = content(2028, SIZE);
    let (good, bad) = (bare(&bytes, RATE), bare(&damaged(&bytes, 0..SIZE / PIECE), RATE));
    let scratch = Scratch::new();
    let store = crate::support::serve::Server::with(&scratch.dir("store"), &["--allow-write"]);
    let file = Described::new("f", &bytes, &[bad.url("f"), good.url("f")]).pieces(Sha1, PIECE, &bytes);
    let link = scratch.file("f.meta4", meta4(&[file]).as_bytes());
    run(cp(&link, store.url("up"))).ok().verified(true).blames(&bad.url("f"), "wrong piece");
    assert_same(&fs::read(scratch.join("store/up")).unwrap(), &bytes);
}

//! What many files, or one after the other, are spared: connections, questions and round trips.

use std::time::Duration;

use gridlane_core::{ByteRange, Url};
use gridlane_engine::reading::{Explain, Policy, Purpose, ReadOptions, RemoteFile, Settings};
use gridlane_net::tls::Trust;

use super::{large, open, options, runtime};
use crate::support::object::Object;
use crate::support::rogue::Rogue;
use crate::support::serve::Server;
use crate::support::{SOON, Scratch, until};

/// Connections that wait in the client's pool for whoever wants them next, however many files are open.
const POOL: usize = gridlane_core::limits::IDLE_PER_HOST_MAX;

fn urls(server: &Rogue) -> Vec<Url> {
    vec![Url::parse_absolute(&server.url("f")).unwrap()]
}

#[test]
fn idle_files_have_one_connection_each_and_are_read_all_the_same() {
    const FILES: usize = 48;
    let bytes = large(5060);
    let object = Object::new(&bytes);
    let server = Rogue::start(move |request| object.answer(request));
    let (runtime, client) = (runtime(), gridlane_client::connect(Trust::default()));
    let settings = Settings { idle: Duration::from_millis(300), ..options(Policy::Vector).settings };
    let options = ReadOptions { settings, ..ReadOptions::default() };
    let open = || async { RemoteFile::open(urls(&server), client.clone(), options.clone()).await.unwrap() };
    let files: Vec<RemoteFile> = runtime.block_on(async {
        let mut files = Vec::new();
        for _ in 0..FILES {
            files.push(tokio::time::timeout(SOON, open()).await.expect("it opens"));
        }
        files
    });
    until("idle files give their connections up", || server.open_connections() <= FILES + POOL);
    let check = |start: u64, len: u64| {
        runtime.block_on(async {
            for (nth, file) in (0_u64..).zip(&files) {
                let start = start + nth * 10_007;
                let found = tokio::time::timeout(SOON, file.read_at(start, len, None)).await;
                let found = found.expect("it ends").unwrap();
                assert!(found[..] == bytes[start as usize..(start + len) as usize], "{start}");
                assert_eq!(file.explain().failures, 0, "{}", file.explain());
            }
        });
    };
    check(3_000_000, 1000);
    check(9_000_000, 3_000_000);
    until("they do so again", || server.open_connections() <= FILES + POOL);
    check(5_000_000, 100);
    drop((files, client));
    drop(runtime);
    until("all connections are closed", || server.open_connections() == 0);
}

#[test]
fn a_second_file_knows_the_path_and_the_server() {
    let bytes = large(5061);
    let (scratch, runtime) = (Scratch::new(), runtime());
    let export = scratch.dir("export");
    std::fs::write(export.join("f"), bytes.as_slice()).unwrap();
    let server = Server::start(&export);
    for scheme in ["http", "root"] {
        let client = gridlane_client::connect(Trust::default());
        let url = Url::parse_absolute(&server.url_over(scheme, "f")).unwrap();
        let run = |ranges: &[ByteRange]| -> Explain {
            runtime.block_on(async {
                let options = options(Policy::Vector);
                let file = RemoteFile::open(vec![url.clone()], client.clone(), options).await.unwrap();
                let before = file.explain();
                file.read(ranges, None).all().await.unwrap();
                before
            })
        };
        let scattered: Vec<ByteRange> = (0..400).map(|nth| ByteRange::at(nth * 50_000, 700)).collect();
        assert!(!run(&scattered).path_is_known, "{scheme}");
        assert!(run(&scattered).path_is_known, "{scheme}");
        let known = client.read_paths.of(&client.asked(&url));
        assert!(
            known.round_trip_s.is_some_and(|(round_trip_s, _)| round_trip_s < 1.0),
            "{scheme}: {known:?}"
        );
        assert_eq!(known.vector_limits.is_some(), scheme == "root", "{scheme}: {known:?}");
    }
}

#[test]
fn a_server_that_ignores_ranges_is_asked_by_one_connection_the_second_time() {
    let bytes = large(5062);
    let object = Object::new(&bytes);
    let server = Rogue::start(move |request| {
        let mut whole = request.clone();
        whole.range = None;
        object.answer(&whole)
    });
    let (runtime, client) = (runtime(), gridlane_client::connect(Trust::default()));
    let mut asked = 0;
    for nth in 0..2 {
        runtime.block_on(async {
            let options = ReadOptions { skips_proof: true, ..options(Policy::Vector) };
            let file = RemoteFile::open(urls(&server), client.clone(), options).await.unwrap();
            let found = file.read_at(20_000_000, 1000, None).await.unwrap();
            assert!(found[..] == bytes[20_000_000..20_001_000]);
        });
        let now = server.requests().len();
        assert!(nth == 0 || now - asked == 1, "{} requests", now - asked);
        asked = now;
    }
}

/// The list of keys and the header of the only tree of a file of ROOT, in its middle, come before they are asked for.
#[test]
fn the_metadata_of_a_format_come_just_after_the_opening() {
    let mut bytes = large(5063).to_vec();
    let size = bytes.len() as u32;
    let text = |text: &str| [&[text.len() as u8][..], text.as_bytes()].concat();
    let key = |class: &str, name: &str, at: u32, len: u32| {
        // Its length, the version; length of the object, date, length of the key, cycle.
        let mut key = [&len.to_be_bytes()[..], &4_u16.to_be_bytes(), &[0; 12]].concat();
        key.extend([at, 100].map(u32::to_be_bytes).concat());
        [key, text(class), text(name), text("")].concat()
    };
    let tree = (12_000_000_u32, 400_000_u32);
    let list = [key("TFile", "a", 0, 0), 1_u32.to_be_bytes().to_vec(), key("TTree", "t", tree.0, tree.1)];
    let list = list.concat();
    let mut head = b"root".to_vec();
    head.extend([63_206_u32, 100, size, size - 60, 60, 1, 58].map(u32::to_be_bytes).concat());
    head.push(4);
    head.extend([101_u32, 8_000_000, 7207].map(u32::to_be_bytes).concat());
    head.resize(158, 0);
    head.extend(5_u16.to_be_bytes());
    head.extend([0_u32, 0, list.len() as u32, 58, 100, 0, 9_000_000].map(u32::to_be_bytes).concat());
    bytes[..head.len()].copy_from_slice(&head);
    bytes[9_000_000..9_000_000 + list.len()].copy_from_slice(&list);
    let object = Object::new(&std::sync::Arc::new(bytes));
    let server = Rogue::start(move |request| object.answer(request));
    let opened = open(&server.url("f"));
    until("the tree is there", || opened.explain().moved(Purpose::Format) >= u64::from(tree.1) + 7207);
    let before = opened.explain();
    opened.read(&[ByteRange::at(u64::from(tree.0), u64::from(tree.1))]).unwrap();
    let after = opened.explain();
    assert_eq!((after.requests, after.hits), (before.requests, before.hits + 1), "{after}");
    assert!(after.to_string().contains("format ROOT\n"), "{after}");
}

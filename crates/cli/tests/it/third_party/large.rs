//! A file of 20 GB with holes over eight streams, from disk to disk: XRootD's own streams fail beyond 15 GB.
//!
//! A target has no holes, so that it takes 20 GB there; the source takes what its data do. Neither is ever in memory.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::Site;
use super::asking::Asking;
use crate::support::{DEADLINE, MIB, content, is_long_run, occupied_bytes};

/// No multiple of anything.
const SIZE: u64 = 20_000_000_003;
const GIB: u64 = 1 << 30;
const STREAMS: usize = 8;
/// So much is to be free: the target, and some room for others.
const FREE_BYTES_MIN: u64 = SIZE + 2 * GIB;
/// `TMPFS_MAGIC` (statfs(2)).
const TMPFS: i64 = 0x0102_1994;

/// Where the data are in the middle of which something else begins for who counts wrongly: a place that 32 bits cannot hold, with
/// a sign or without; XRootD's limit; and some in between. All else is holes, but for both ends.
const BORDERS: [u64; 8] =
    [2 * GIB, 4 * GIB, 8 * GIB, 12 * GIB, 15_000_000_000, 16 * GIB, 3_333_333_333, 18_888_888_888];
/// Data about each of them.
const BLOCK_BYTES: usize = 3 * MIB + 7;

/// The data: where they begin, and their bytes.
fn blocks() -> Vec<(u64, Vec<u8>)> {
    let block = |seed| content(seed, BLOCK_BYTES).to_vec();
    let within = (9802..).zip(BORDERS).map(|(seed, at)| (at - BLOCK_BYTES as u64 / 2, block(seed)));
    let ends = [(0, block(9800)), (SIZE - BLOCK_BYTES as u64, block(9801))];
    ends.into_iter().chain(within).collect()
}

/// The bytes that belong to a place.
fn expected(blocks: &[(u64, Vec<u8>)], start: u64, bytes: &mut [u8]) {
    bytes.fill(0);
    let end = start + bytes.len() as u64;
    for (at, block) in blocks {
        let (from, to) = (start.max(*at), end.min(at + block.len() as u64));
        if from < to {
            let part = &block[(from - at) as usize..(to - at) as usize];
            bytes[(from - start) as usize..(to - start) as usize].copy_from_slice(part);
        }
    }
}

#[track_caller]
fn assert_is(path: &Path, blocks: &[(u64, Vec<u8>)]) {
    const PIECE_BYTES: u64 = 8 * MIB as u64;
    let file = File::open(path).unwrap();
    assert_eq!(file.metadata().unwrap().len(), SIZE);
    let (mut found, mut right) = (vec![0; PIECE_BYTES as usize], vec![0; PIECE_BYTES as usize]);
    for start in (0..SIZE).step_by(PIECE_BYTES as usize) {
        let len = PIECE_BYTES.min(SIZE - start) as usize;
        file.read_exact_at(&mut found[..len], start).unwrap();
        expected(blocks, start, &mut right[..len]);
        assert!(found[..len] == right[..len], "the bytes from {start} on, {len} of them, are wrong");
    }
}

/// Connections that a port of this machine has at the moment.
fn connections_to(port: u16) -> usize {
    let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
    let is_one = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // 1 is `TCP_ESTABLISHED` (proc(5)).
        fields[1].ends_with(&format!(":{port:04X}")) && fields[3] == "01"
    };
    sockets.lines().skip(1).filter(is_one).count()
}

#[test]
fn twenty_gigabytes_with_holes_over_eight_streams() {
    if !is_long_run() {
        return;
    }
    let passive = Site::new();
    let active = Site::trusting(&passive.server.ca());
    let is_memory = rustix::fs::statfs(active.scratch.path()).unwrap().f_type as i64 == TMPFS;
    assert!(!is_memory, "{} is no disk: TMPDIR names one", active.scratch.path().display());
    let room = rustix::fs::statvfs(active.scratch.path()).unwrap();
    let free_bytes = room.f_bavail * room.f_frsize;
    assert!(free_bytes > FREE_BYTES_MIN, "{free_bytes} bytes are free, and {FREE_BYTES_MIN} are needed");
    let blocks = blocks();
    let source = File::create(passive.exported("f")).unwrap();
    source.set_len(SIZE).unwrap();
    for (at, bytes) in &blocks {
        source.write_all_at(bytes, *at).unwrap();
    }
    drop(source);
    assert!(occupied_bytes(&passive.exported("f")) < 100 * MIB as u64, "there are no holes here");

    let url = passive.server.url_over("https", "f");
    let port = url.rsplit(':').next().and_then(|rest| rest.split('/').next()).unwrap().parse().unwrap();
    let fields = [
        &format!("Source: {url}"),
        &format!("X-Number-Of-Streams: {STREAMS}"),
        "RequireChecksumVerification: true",
        "Credential: none",
    ];
    let began = std::time::Instant::now();
    let asked = Asking::copy(&active.url("f"), &fields);
    let mut streams = 0;
    while !asked.has_ended() {
        assert!(began.elapsed() < 5 * DEADLINE, "it does not end: {}", asked.so_far());
        let seen = fs::metadata(active.exported("f"));
        assert!(seen.map_or(true, |file| file.len() == SIZE), "it is seen before it is whole");
        streams = streams.max(connections_to(port));
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    println!("{} s, {streams} connections", began.elapsed().as_secs());
    let answered = asked.end();
    answered.succeeds();
    assert!(streams >= STREAMS, "{streams} connections to the source");
    let line = "Stripe Bytes Transferred: ";
    let told = answered.text.lines().filter_map(|text| text.trim().strip_prefix(line));
    let told: Vec<u64> = told.map(|bytes| bytes.parse().unwrap()).collect();
    assert!(told.is_sorted() && told.last() == Some(&SIZE), "{told:?}");
    assert_is(&active.exported("f"), &blocks);
    let (visible, hidden) = active.all_names();
    assert_eq!(visible, ["f"]);
    assert!(hidden.iter().all(|name| !name.contains("part") && !name.contains("journal")), "{hidden:?}");
}

//! Files of which the format says where the metadata are: fewer round trips than without it, at the places of real files; and heads
//! that lie.

mod sim;

use gridlane_core::ByteRange;
use gridlane_core::limits::READ_FORMAT_BYTES;
use gridlane_read::format::Format;
use gridlane_read::{Explain, Policy, Purpose, Settings};
use proptest::prelude::*;
use sim::root_file::{head, key, keys};
use sim::{App, Made, Server, Sim, config};

const ROUND_TRIP_S: f64 = 0.026;

/// Reads one after the other, and returns the time from the first one, in round trips.
fn read(size_bytes: u64, made: &Made, reads: &[(u64, u64)], settings: Settings) -> (f64, Explain) {
    let run = |count: usize| {
        let server = Server::gigabit(ROUND_TRIP_S);
        let mut sim = Sim::<Vec<u8>>::new(size_bytes, settings.clone(), &[server]);
        sim.made.clone_from(made);
        let ranges: Vec<ByteRange> =
            reads[..count].iter().map(|(start, len)| ByteRange::at(*start, *len)).collect();
        let outcome = sim.run(&App::serial(&ranges));
        assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
        (outcome.finish_s, outcome.explain)
    };
    let (finish_s, explain) = run(reads.len());
    ((finish_s - run(1).0) / ROUND_TRIP_S, explain)
}

/// Fewer round trips by so many at least, of a file whose metadata are read as `reads` says.
#[track_caller]
fn saves(format: Format, round_trips: f64, size_bytes: u64, made: &Made, reads: &[(u64, u64)]) {
    let without = Settings { follows_formats: false, ..Settings::default() };
    let (before, plain) = read(size_bytes, made, reads, without);
    let (after, explain) = read(size_bytes, made, reads, Settings::default());
    println!("{}: {before:.2} round trips behind the first read, {after:.2} with its format", format.name());
    assert_eq!((plain.format, explain.format), (None, Some(format)));
    assert_eq!(plain.moved(Purpose::Format), 0);
    assert!(explain.to_string().contains(&format!("format {}\n", format.name())), "{explain}");
    assert!(before - after >= round_trips - 0.2, "{before} without, {after} with\n{explain}");
    let exact = Settings { budget: 1.0, ..Settings::default() };
    let (_, exact) = read(size_bytes, made, reads, exact);
    assert_eq!(exact.moved_in_all(), exact.wanted_bytes, "a budget of one allows nothing");
}

/// Head, directory, and the list of keys with one of them.
fn root(size_bytes: u32, info: (u32, u32), keys_at: u32, key_of_it: &[u8]) -> Made {
    let list = keys(&[key_of_it.to_vec()]);
    vec![(0, head(size_bytes, info, (keys_at, list.len() as u32))), (u64::from(keys_at), list)]
}

/// The merged file of the recorded traces: streamer information and keys early, the header of the tree at the end. Reading ahead
/// of the first of them brings the next as well, and the tail takes as long over cold connections: nothing is lost.
#[test]
fn a_merged_file_of_root() {
    let size = 212_335_314;
    let made =
        root(size, (2_909_515, 7207), 2_916_722, &key("TTree", "Events", (212_082_908, 252_406), 5_000_000));
    let reads = [(0, 300), (2_909_515, 7207), (2_916_722, 120), (212_082_908, 252_406)];
    saves(Format::Root, 0.0, u64::from(size), &made, &reads);
}

/// Written by several updates: keys in the middle, and the tree far in front of them.
#[test]
fn a_file_of_root_with_its_tree_in_the_middle() {
    let size = 900_000_000;
    let made = root(
        size,
        (500_000_000, 17_000),
        600_000_000,
        &key("TTree", "Events", (300_000_000, 600_000), 3_000_000),
    );
    let reads = [(0, 403), (600_000_000, 120), (300_000_000, 600_000), (500_000_000, 17_000)];
    saves(Format::Root, 1.0, u64::from(size), &made, &reads);
}

#[test]
fn an_rntuple() {
    let (size, anchor_at) = (900_000_000, 700_000_000);
    let key_bytes = 29 + 13 + 6;
    let entry = key("ROOT::RNTuple", "Events", (anchor_at, 78 + key_bytes), 78);
    let mut anchor = entry.clone();
    anchor.extend(0x4000_0042_u32.to_be_bytes());
    anchor.extend([2, 1, 0, 0, 0].map(u16::to_be_bytes).concat());
    for field in [100_000_000_u64, 16_155, 181_608, 800_000_000, 3772, 36_637, 1 << 30] {
        anchor.extend(field.to_be_bytes());
    }
    let mut made = root(size, (899_900_000, 10_573), 700_001_000, &entry);
    made.push((u64::from(anchor_at), anchor));
    let reads =
        [(0, 403), (700_001_000, 120), (700_000_000, 126), (100_000_000, 16_155), (800_000_000, 3772)];
    saves(Format::Root, 1.0, u64::from(size), &made, &reads);
}

/// A group of the old kind with eight data sets all over the file.
#[test]
fn an_hdf5_file() {
    let mut head = b"\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08\0".to_vec();
    head.resize(56, 0);
    for field in [0_u64, 96, 1, 80_000_136, 90_000_680] {
        head.extend(field.to_le_bytes());
    }
    let mut node = b"TREE\0\0\x01\0".to_vec();
    for field in [u64::MAX, u64::MAX, 0, 100_000_000, 8] {
        node.extend(field.to_le_bytes());
    }
    let objects: Vec<u64> = (1..9).map(|nth| 110_000_000 + 50_000_000 * nth).collect();
    let mut symbols = b"SNOD\x01\0\x08\0".to_vec();
    for object in &objects {
        symbols.extend([8, *object, 0, 0, 0].map(u64::to_le_bytes).concat());
    }
    let made = vec![(0, head), (80_000_136, node), (100_000_000, symbols)];
    let mut reads = vec![(0, 96), (96, 512), (80_000_136, 544), (90_000_680, 88), (100_000_000, 328)];
    reads.extend(objects.iter().map(|object| (*object, 512)));
    saves(Format::Hdf5, 7.0, 800_000_000, &made, &reads);
}

/// A footer that is larger than the tail: the program learns its length from the last bytes, and then from a part of it.
#[test]
fn a_parquet_file_with_a_long_footer() {
    let (size, footer) = (800_000_000_u64, 900_000_u64);
    let end = [&(footer as u32 - 8).to_le_bytes()[..], b"PAR1"].concat();
    let made = vec![(0, b"PAR1".to_vec()), (size - 8, end)];
    let reads =
        [(size - 8, 8), (size - 300_000, 300_000), (size - 600_000, 600_000), (size - footer, footer)];
    saves(Format::Parquet, 1.0, size, &made, &reads);
}

#[test]
fn an_archive_with_its_directory_before_the_tail() {
    let size = 800_000_000_u64;
    let mut end = b"PK\x05\x06".to_vec();
    end.resize(12, 0);
    end.extend([900_000_u32, 799_099_978].map(u32::to_le_bytes).concat());
    end.resize(22, 0);
    let made = vec![(0, b"PK\x03\x04".to_vec()), (size - 22, end)];
    let reads = [600, 0, 400, 100, 500, 300].map(|kb| (799_099_978 + kb * 1000, 50_000));
    let reads = [&[(size - 22, 22)][..], &reads].concat();
    saves(Format::Zip, 1.0, size, &made, &reads);
}

/// The tail and what a call leaves of it are asked for at once, and not in a request for each lane's little room.
#[test]
fn the_tail_is_one_request_beside_a_call_for_scattered_ranges() {
    let size_bytes = 1_000_000_000;
    for fraction in [0.001, 0.02] {
        let mut ranges = sim::events(size_bytes, 1000, fraction, false, 5);
        ranges.extend((0..60).map(|nth| ByteRange::at(size_bytes - 250_000 + nth * 4000, 1000)));
        let run = |settings: Settings| {
            let sim = Sim::<sim::Place>::new(size_bytes, settings, &[Server::gigabit(ROUND_TRIP_S)]);
            let call = sim::Timed { ranges: ranges.clone(), ..Default::default() };
            let last = sim::Timed { at_s: 3.0, ranges: vec![ByteRange::at(0, 1)], ..Default::default() };
            let outcome = sim.run(&App::Timed(vec![call, last]));
            assert!(outcome.failures.is_empty());
            outcome
        };
        let alone = run(Settings { head_bytes: 0, tail_bytes: 0, ..sim::settings(Policy::Adaptive) });
        let both = run(sim::settings(Policy::Adaptive));
        assert!(both.explain.moved(Purpose::Opening) > 200_000, "{}", both.explain);
        let more = both.explain.requests as i64 - alone.explain.requests as i64;
        println!(
            "{} requests without the opening, {} with it",
            alone.explain.requests, both.explain.requests
        );
        assert!(more <= 4, "{more} more requests\n{}", both.explain);
    }
}

fn heads() -> impl Strategy<Value = Vec<u8>> {
    let mark = prop::sample::select(vec![
        &b"root\0\0\xf6\xe6\0\0\0\x64"[..],
        b"root\0\x0f\x42\x40\0\0\0\x64",
        b"PAR1",
        b"\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08\0",
        b"\x89HDF\r\n\x1a\n\x02\x08\x08\0",
        b"CDF\x01\0\0\0\0\0\0\0\x0a",
        b"PK\x03\x04",
    ]);
    let word = prop_oneof![
        2 => Just(vec![0_u8, 0, 0, 0]),
        2 => (0_u32..60_000_000).prop_map(|number| number.to_be_bytes().to_vec()),
        2 => (0_u64..60_000_000).prop_map(|number| number.to_le_bytes().to_vec()),
        1 => Just(b"TREE\0\0\xff\0".to_vec()),
        1 => prop::collection::vec(any::<u8>(), 1..9),
    ];
    (mark, prop::collection::vec(word, 0..90)).prop_map(|(mark, words)| [mark, &words.concat()].concat())
}

proptest! {
    #![proptest_config(config(60))]

    /// A head that lies costs what it may cost, and no call anything but that.
    #[test]
    fn heads_that_lie(
        head in heads(),
        more in prop::collection::vec((0.0_f64..0.99, heads()), 0..5),
        tail in prop::sample::select(vec![&b"\xff\xff\x0f\0PAR1"[..], b"\xff\xff\xff\x7fPAR1", b"PK\x05\x06\0\0\0\0\0\0\0\0\0\0\x20\0\0\0\0\x01\0\0"]),
        memory_bytes in 400_000_u64..20_000_000,
    ) {
        let size_bytes = 60_000_000_u64;
        let mut made: Made = more.into_iter().map(|(place, bytes)| ((place * 59e6) as u64, bytes)).collect();
        made.push((size_bytes - tail.len() as u64, tail.to_vec()));
        made.push((0, head));
        let settings = Settings { memory_bytes, ..Settings::default() };
        let mut sim = Sim::<Vec<u8>>::new(size_bytes, settings, &[Server::gigabit(0.002)]);
        sim.made = made;
        let outcome = sim.run(&App::serial(&[ByteRange::at(0, 100), ByteRange::at(30_000_000, 1000)]));
        prop_assert!(outcome.failures.is_empty());
        let moved = outcome.explain.moved(Purpose::Format);
        prop_assert!(moved <= READ_FORMAT_BYTES.min(memory_bytes / 4), "{}", moved);
        prop_assert!(outcome.explain.requests < 400, "{}", outcome.explain);
    }
}

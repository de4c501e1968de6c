#[path = "../../tests/sim/root_file.rs"]
mod root_file;

use super::*;
use proptest::prelude::*;
use root_file::{head as root_head, key, keys};

/// A sparse file, made by hand.
#[derive(Clone, Debug)]
struct Made {
    size_bytes: u64,
    parts: Vec<(u64, Vec<u8>)>,
}

impl Made {
    fn new(size_bytes: u64, parts: &[(u64, &[u8])]) -> Made {
        Made { size_bytes, parts: parts.iter().map(|(at, bytes)| (*at, bytes.to_vec())).collect() }
    }

    fn bytes(&self, range: ByteRange) -> Vec<u8> {
        let mut found = vec![0; range.len() as usize];
        for (at, bytes) in &self.parts {
            let part = ByteRange::at(*at, bytes.len() as u64).intersection(range);
            if !part.is_empty() {
                let (to, from) = ((part.start() - range.start()) as usize, (part.start() - at) as usize);
                found[to..to + part.len() as usize].copy_from_slice(&bytes[from..from + part.len() as usize]);
            }
        }
        found
    }

    /// The outline with the whole file known, and the number of steps that it takes when only what it lacks is brought.
    fn outline(&self) -> (Outline, usize) {
        let mut known: Vec<ByteRange> = Vec::new();
        for steps in 0..100 {
            let found = outline(self.size_bytes, |range| {
                known.iter().any(|part| part.contains(range)).then(|| self.bytes(range))
            });
            match found.lacks {
                Some(lacks) => {
                    assert!(!known.iter().any(|part| part.contains(lacks)), "{lacks:?}");
                    known.push(lacks);
                }
                None => {
                    assert_eq!(found, outline(self.size_bytes, |range| Some(self.bytes(range))));
                    return (found, steps);
                }
            }
        }
        panic!("it never ends");
    }

    #[track_caller]
    fn expect(&self, format: Format, wanted: &[(u64, u64)]) {
        let (found, _) = self.outline();
        assert_eq!(found.format, Some(format));
        let pairs: Vec<(u64, u64)> = found.wanted.iter().map(|range| (range.start(), range.len())).collect();
        assert_eq!(pairs, wanted);
    }
}

/// A merged file, as the recorded traces of ROOT and uproot read it: the places are those of that file.
#[test]
fn a_root_file_tells_where_its_keys_and_trees_are() {
    let size = 212_335_314;
    let old = key("TTree", "Events", (5_000_000, 7), 9);
    let events = key("TTree", "Events", (212_082_908, 252_406), 5_000_000);
    let other = key("TObjString", "untagged", (218, 96), 25);
    let list = keys(&[other, events, old]);
    let head = root_head(size, (2_909_515, 7207), (2_916_722, list.len() as u32));
    let file = Made::new(u64::from(size), &[(0, &head), (2_916_722, &list)]);
    let list_bytes = list.len() as u64;
    file.expect(
        Format::Root,
        &[(2_909_515, 7207), (158, 42), (2_916_722, list_bytes), (212_082_908, 252_406)],
    );
    let cut = Made { size_bytes: 1_000_000, ..file };
    cut.expect(Format::Root, &[(158, 42)]);
}

#[test]
fn an_anchor_tells_where_the_header_and_the_footer_of_its_rntuple_are() {
    let anchor_at = 26_820;
    let entry = key("ROOT::RNTuple", "Events", (anchor_at, 78 + 49), 78);
    assert_eq!(entry.len(), 26 + 3 + 13 + 6);
    let mut anchor = entry.clone();
    anchor.push(0);
    anchor.extend(0x4000_0042_u32.to_be_bytes());
    anchor.extend([2, 1, 0, 0, 0].map(u16::to_be_bytes).concat());
    for field in [346_u64, 437, 1514, 20_736, 84, 148, 1 << 30] {
        anchor.extend(field.to_be_bytes());
    }
    let size = 27_605;
    let mut entry = entry;
    entry[14..16].copy_from_slice(&49_u16.to_be_bytes());
    let list = keys(&[entry]);
    let head = root_head(size, (27_110, 397), (26_958, list.len() as u32));
    let parts: [(u64, &[u8]); 3] = [(0, &head), (26_958, &list), (u64::from(anchor_at), &anchor)];
    let file = Made::new(u64::from(size), &parts);
    let list_bytes = list.len() as u64;
    let wanted = [(27_110, 397), (158, 42), (26_958, list_bytes), (26_820, 127), (346, 437), (20_736, 84)];
    file.expect(Format::Root, &wanted);
}

#[test]
fn a_parquet_file_tells_where_its_footer_is() {
    let size = 13_493_022;
    let tail = [&5200_u32.to_le_bytes()[..], b"PAR1"].concat();
    let file = Made::new(size, &[(0, b"PAR1"), (size - 8, &tail)]);
    file.expect(Format::Parquet, &[(size - 8, 8), (size - 5208, 5208)]);
    let encrypted = Made::new(size, &[(0, b"PAR1"), (size - 8, b"\x50\x14\0\0PARE")]);
    encrypted.expect(Format::Parquet, &[(size - 8, 8)]);
    let huge = Made::new(size, &[(0, b"PAR1"), (size - 8, b"\xff\xff\xff\xffPAR1")]);
    huge.expect(Format::Parquet, &[(size - 8, 8)]);
}

#[test]
fn an_archive_tells_where_its_directory_is() {
    let size = 9_000_000;
    let mut end = b"PK\x05\x06".to_vec();
    end.resize(12, 0);
    end.extend([300_000_u32, 8_600_000].map(u32::to_le_bytes).concat());
    end.resize(22, 0);
    let file = Made::new(size, &[(0, b"PK\x03\x04"), (size - 22, &end)]);
    file.expect(Format::Zip, &[(size - 22, 22), (8_600_000, 300_000)]);
}

#[test]
fn an_hdf5_file_of_today_tells_where_its_root_is() {
    let mut head = b"\x89HDF\r\n\x1a\n\x02\x08\x08\x00".to_vec();
    head.resize(36, 0);
    head.extend(5_000_048_u64.to_le_bytes());
    let file = Made::new(100_713_012, &[(0, &head)]);
    file.expect(Format::Hdf5, &[(5_000_048, 4096), (0, 256 * 1024)]);
}

#[test]
fn an_old_hdf5_file_is_followed_to_its_objects() {
    let mut head = b"\x89HDF\r\n\x1a\n".to_vec();
    head.extend([0, 0, 0, 0, 0, 8, 8, 0]);
    head.resize(56, 0);
    // Link name, header, kind of cache; B-tree and heap.
    for field in [0_u64, 96, 1, 800_136, 900_680] {
        head.extend(field.to_le_bytes());
    }
    let mut node = b"TREE\0\0\x01\0".to_vec();
    for field in [u64::MAX, u64::MAX, 0, 1_000_000, 8] {
        node.extend(field.to_le_bytes());
    }
    let mut symbols = b"SNOD\x01\0\x02\0".to_vec();
    for object in [2_000_000_u64, 50_000_000] {
        symbols.extend([8, object, 0, 0, 0].map(u64::to_le_bytes).concat());
    }
    let file = Made::new(2_832_787, &[(0, &head), (800_136, &node), (1_000_000, &symbols)]);
    let expected =
        [(96, 4096), (0, 256 * 1024), (900_680, 4096), (800_136, 544), (1_000_000, 328), (2_000_000, 1024)];
    file.expect(Format::Hdf5, &expected);
}

#[test]
fn the_header_of_a_classic_netcdf_file_is_brought_to_its_end() {
    // One dimension, no attributes, variables with a long attribute each.
    let mut head = b"CDF\x01\0\0\0\0\0\0\0\x0a\0\0\0\x01\0\0\0\x01x\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\0".to_vec();
    head.extend([11_u32, 30].map(u32::to_be_bytes).concat());
    for _ in 0..30 {
        head.extend(b"\0\0\0\x02ab\0\0\0\0\0\x01\0\0\0\0\0\0\0\x0c\0\0\0\x01\0\0\0\x01c\0\0\0");
        head.extend([2_u32, 999].map(u32::to_be_bytes).concat());
        head.resize(head.len() + 1000, b' ');
        head.extend([5_u32, 36, 40_000].map(u32::to_be_bytes).concat());
    }
    let file = Made::new(9_000_000, &[(0, &head)]);
    file.expect(Format::NetCdf, &[(0, 64 * 1024)]);
    let short = Made::new(9_000_000, &[(0, &head[..36])]);
    short.expect(Format::NetCdf, &[(0, 16 * 1024)]);
}

#[test]
fn a_miniseed_file_tells_the_length_of_its_records() {
    let mut head = b"000001D BALST".to_vec();
    head.resize(46, 0);
    head.extend(48_u16.to_be_bytes());
    head.extend([0x03, 0xE8, 0, 0, 11, 1, 9, 0]);
    assert_eq!(miniseed_record_bytes(&head), Some(512));
    Made::new(8192, &[(0, &head)]).expect(Format::MiniSeed, &[]);
}

#[test]
fn other_files_name_nothing() {
    for head in [&b""[..], b"roo", b"\x1f\x8b", b"000001D BALST"] {
        let (found, _) = Made::new(head.len() as u64, &[(0, head)]).outline();
        assert_eq!(found, Outline::default(), "{head:?}");
    }
}

const MARKS: [&[u8]; 9] = [
    b"root",
    b"PAR1",
    b"\x89HDF\r\n\x1a\n\x00\0\0\0\0\x08\x08",
    b"\x89HDF\r\n\x1a\n\x02\x08\x08",
    b"CDF\x01\0\0\0\0",
    b"CDF\x05\0\0\0\0",
    b"PK\x03\x04",
    b"000001D ",
    b"",
];

proptest! {
    /// No bytes make this fail or go on for ever, and no range is outside of the file or large.
    #[test]
    fn any_bytes_are_borne(
        mark in prop::sample::select(MARKS.to_vec()),
        rest in prop::collection::vec(prop_oneof![Just(0_u8), Just(1), any::<u8>()], 0..700),
        end in prop::sample::select(vec![&b"PAR1"[..], b"PK\x05\x06\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0", b""]),
        more in 0_u64..100_000,
    ) {
        let head = [mark, &rest].concat();
        let size_bytes = head.len() as u64 + more + end.len() as u64;
        let file = Made::new(size_bytes, &[(0, &head), (size_bytes - end.len() as u64, end)]);
        let (found, steps) = file.outline();
        prop_assert!(steps <= 2 * PIECES_MAX, "{}", steps);
        prop_assert!(found.wanted.len() <= PIECES_MAX);
        let is_possible = |range: &ByteRange| {
            !range.is_empty() && range.end() <= size_bytes && range.len() <= READ_FORMAT_BYTES
        };
        prop_assert!(found.wanted.iter().all(is_possible), "{:?}", found.wanted);
    }

    /// Nor do bytes of which every number is a place in the file: blocks that name each other in circles.
    #[test]
    fn circles_end(words in prop::collection::vec(0_u64..2000, 40..90), at in 48_usize..200) {
        let mut head = b"\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08\0".to_vec();
        head.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        head[72..80].copy_from_slice(&1_u64.to_le_bytes());
        head[80..88].copy_from_slice(&(at as u64).to_le_bytes());
        head[at..at + 8].copy_from_slice(b"TREE\0\x01\xff\0");
        let (found, _) = Made::new(3000, &[(0, &head)]).outline();
        prop_assert!(found.wanted.len() <= PIECES_MAX);
    }
}

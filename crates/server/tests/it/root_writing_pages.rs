//! Pages at random places, with random damage that is repaired: the file is right in the end, and so is what is known
//! of it.

use crate::support::root::RootClient;
use crate::support::{TestServer, noise, wait};
use gridlane_core::checksum::adler32;
use gridlane_core::{Checksum, ChecksumKind};
use gridlane_store::{ObjectPath, Opened};
use gridlane_xrd::flags::OpenOptions;
use gridlane_xrd::pages::{self, CRC_BYTES};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// One `pgwrite`.
#[derive(Clone, Debug)]
struct Piece {
    begin: usize,
    end: usize,
    /// Which of its pages are damaged on the way, and how often in a row.
    damaged: Vec<(prop::sample::Index, usize)>,
}

fn pieces() -> impl Strategy<Value = (usize, Vec<Piece>)> {
    let cuts = prop::collection::vec(any::<prop::sample::Index>(), 0..8);
    let damaged = prop::collection::vec((any::<prop::sample::Index>(), 1usize..3), 0..4);
    let all_damaged = prop::collection::vec(damaged, 9);
    (0usize..600_000, cuts, all_damaged, prop::collection::vec(any::<u32>(), 9)).prop_map(
        |(len, cuts, damaged, order)| {
            let mut borders: Vec<usize> = cuts.iter().map(|cut| cut.index(len + 1)).collect();
            borders.extend([0, len]);
            borders.sort_unstable();
            borders.dedup();
            let ranges = borders.windows(2).map(|pair| (pair[0], pair[1]));
            let mut pieces: Vec<(u32, Piece)> = ranges
                .zip(damaged)
                .zip(order)
                .map(|(((begin, end), damaged), order)| (order, Piece { begin, end, damaged }))
                .collect();
            pieces.sort_by_key(|(order, _)| *order);
            (len, pieces.into_iter().map(|(_, piece)| piece).collect())
        },
    )
}

/// The bytes of `begin..end` with their checksums, of which those of `wrong` pages are not.
fn sent(bytes: &[u8], begin: usize, end: usize, wrong: &[usize]) -> Vec<u8> {
    let mut framed = Vec::new();
    pages::frame(begin as u64, &bytes[begin..end], &mut framed);
    let mut at = 0;
    for (index, (_, len)) in pages::pages(begin as u64, (end - begin) as u64).enumerate() {
        if wrong.contains(&index) {
            // Sometimes the checksum, sometimes the page.
            framed[at + if index % 2 == 0 { 0 } else { CRC_BYTES }] ^= 0x40;
        }
        at += CRC_BYTES + len;
    }
    framed
}

#[test]
fn damage_is_repaired_page_by_page() {
    let server = TestServer::start();
    let (export, path) = (server.export(), ObjectPath::new([&b"f"[..]]).unwrap());
    let mut runner = TestRunner::new(Config { cases: 40, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&(pieces(), any::<bool>(), any::<u64>()), |((len, pieces), is_posc, seed)| {
        let bytes = noise(len, seed);
        let mut client = RootClient::connect(server.address);
        let mut options = OpenOptions::DELETE | OpenOptions::UPDATE;
        options = if is_posc { options | OpenOptions::POSC } else { options };
        // After the one before.
        let handle = client.open_when_free("/f", options);
        for piece in &pieces {
            let all: Vec<(u64, usize)> =
                pages::pages(piece.begin as u64, (piece.end - piece.begin) as u64).collect();
            let mut times = vec![0; all.len()];
            for (index, count) in &piece.damaged {
                times[index.index(all.len())] = *count;
            }
            let wrong: Vec<usize> = (0..all.len()).filter(|index| times[*index] > 0).collect();
            let told = client
                .pgwrite(handle, piece.begin as u64, &sent(&bytes, piece.begin, piece.end, &wrong), false)
                .unwrap();
            let expected: Vec<(u64, usize)> = wrong.iter().map(|index| all[*index]).collect();
            prop_assert_eq!(&told, &expected);
            for index in wrong {
                let (begin, len) = all[index];
                let (from, to) = (begin as usize, begin as usize + len);
                for _ in 1..times[index] {
                    let again = client.pgwrite(handle, begin, &sent(&bytes, from, to, &[0]), true).unwrap();
                    prop_assert_eq!(again, [(begin, len)]);
                }
                prop_assert_eq!(
                    client.pgwrite(handle, begin, &sent(&bytes, from, to, &[]), true).unwrap(),
                    []
                );
            }
        }
        client.close(handle).unwrap();
        prop_assert!(server.read("f").unwrap() == bytes);
        // Kept with the file: it need not be read again.
        let Ok(Opened::File(kept)) = wait(export.storage.open(&path)) else { panic!("it is not there") };
        let sum = Checksum::adler32(adler32(&bytes));
        prop_assert_eq!(wait(kept.kept_checksums(&[ChecksumKind::Adler32])), [sum]);
        Ok(())
    });
    outcome.unwrap();
}

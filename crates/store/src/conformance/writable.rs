//! Files that are changed in place, and those that are seen when they are closed.

use std::io::IoSlice;
use std::sync::Arc;

use gridlane_core::{Checksum, ChecksumKind};
use tokio::task::JoinSet;

use super::{Check, checks, kept, names, path, posix, read, write};
use crate::error::{StoreError, StoreResult};
use crate::path::ObjectPath;
use crate::storage::{BoxFuture, Expectation, NodeKind, Opened, Overwrite, Storage};
use crate::writable::{Disposition, Visibility, Whole, WritableFile, WriteOptions};

pub(super) const CHECKS: &[Check] = checks![
    dispositions_say_what_has_to_be_there,
    parents_are_made,
    what_is_visible_at_once,
    what_is_visible_when_closed,
    nothing_is_left_of_what_was_not_closed,
    places_are_taken_meanwhile,
    several_write_at_once,
    vectors_of_any_length,
    lengths_change,
    a_closed_file_stays_as_it_is,
    it_outlives_its_name,
    what_cannot_be_opened,
    checksums_are_forgotten_and_kept,
    a_reader_keeps_nothing_of_other_bytes,
    two_change_one_file,
    permissions,
    attributes,
    attributes_have_limits,
];

fn at_once(disposition: Disposition) -> WriteOptions {
    WriteOptions::new(disposition)
}

fn whole(size_bytes: u64, checksums: &[Checksum]) -> Whole {
    Whole { size_bytes, checksums: checksums.to_vec() }
}

fn when_closed(disposition: Disposition) -> WriteOptions {
    WriteOptions { visibility: Visibility::WhenClosed, ..WriteOptions::new(disposition) }
}

async fn open(storage: &dyn Storage, at: &str, options: &WriteOptions) -> StoreResult<Arc<dyn WritableFile>> {
    posix(storage).open_writable(&path(at), options).await
}

async fn contents(file: &dyn WritableFile) -> Vec<u8> {
    let len = usize::try_from(file.metadata().unwrap().size_bytes).unwrap();
    let mut bytes = vec![0xff; len + 1];
    let mut read = 0;
    loop {
        match file.read_at(&mut bytes[read..], read as u64).await.unwrap() {
            0 => break,
            count => read += count,
        }
    }
    assert_eq!(read, len);
    bytes.truncate(read);
    bytes
}

async fn dispositions_say_what_has_to_be_there(storage: &dyn Storage) {
    use Disposition::{Existing, New, Replace};
    assert!(matches!(open(storage, "f", &at_once(Existing)).await, Err(StoreError::NotFound)));
    for options in [at_once(New), when_closed(New)] {
        let file = open(storage, "sub/f", &options).await.unwrap();
        file.write_at(b"first", 0).await.unwrap();
        file.close(None).await.unwrap();
        for again in [at_once(New), when_closed(New)] {
            assert!(matches!(open(storage, "sub/f", &again).await, Err(StoreError::Unexpected)));
        }
        assert_eq!(read(storage, "sub/f").await.unwrap(), b"first");
        let file = open(storage, "sub/f", &at_once(Existing)).await.unwrap();
        assert_eq!(contents(file.as_ref()).await, b"first");
        file.write_at(b"L", 2).await.unwrap();
        file.close(None).await.unwrap();
        assert_eq!(read(storage, "sub/f").await.unwrap(), b"fiLst");
        storage.remove(&path("sub/f"), &Expectation::Anything).await.unwrap();
    }
    for options in [at_once(Replace), when_closed(Replace)] {
        for bytes in [&b"longer than"[..], b"short"] {
            let file = open(storage, "g", &options).await.unwrap();
            assert_eq!(contents(file.as_ref()).await, b"");
            file.write_at(bytes, 0).await.unwrap();
            file.close(None).await.unwrap();
            assert_eq!(read(storage, "g").await.unwrap(), bytes);
        }
        storage.remove(&path("g"), &Expectation::Anything).await.unwrap();
    }
    assert_eq!(names(storage, &ObjectPath::root()).await, ["sub/"]);
}

async fn parents_are_made(storage: &dyn Storage) {
    for (number, options) in
        [at_once(Disposition::New), when_closed(Disposition::Replace)].into_iter().enumerate()
    {
        let at = format!("sub/{number}/b/f");
        assert!(matches!(open(storage, &at, &options).await, Err(StoreError::ParentMissing)));
        let making = WriteOptions { parents: true, ..options };
        open(storage, &at, &making).await.unwrap().close(None).await.unwrap();
        assert_eq!(read(storage, &at).await.unwrap(), b"");
        let through = format!("{at}/g/h");
        assert!(matches!(open(storage, &through, &making).await, Err(StoreError::NotADirectory)));
    }
    let existing = WriteOptions { parents: true, ..at_once(Disposition::Existing) };
    assert!(matches!(open(storage, "none/f", &existing).await, Err(StoreError::NotFound)));
    assert_eq!(names(storage, &ObjectPath::root()).await, ["sub/"]);
}

async fn what_is_visible_at_once(storage: &dyn Storage) {
    let file = open(storage, "f", &at_once(Disposition::New)).await.unwrap();
    assert!(file.has_name());
    assert_eq!(storage.stat(&path("f")).await.unwrap().size_bytes, 0);
    let Opened::File(reader) = storage.open(&path("f")).await.unwrap() else { panic!("a file") };
    file.write_at(b"0123456789", 0).await.unwrap();
    assert_eq!(read(storage, "f").await.unwrap(), b"0123456789");
    assert!(!reader.is_unchanged().await);
    let mut bytes = [0; 4];
    assert_eq!(reader.read_at(&mut bytes, 3).await.unwrap(), 4);
    assert_eq!(&bytes, b"3456");
    assert_eq!(file.metadata().unwrap(), storage.stat(&path("f")).await.unwrap());
    // It is not taken back.
    file.discard().await;
    assert_eq!(read(storage, "f").await.unwrap(), b"0123456789");
    let before = storage.stat(&path("f")).await.unwrap();
    let file = open(storage, "f", &at_once(Disposition::Replace)).await.unwrap();
    assert_eq!(storage.stat(&path("f")).await.unwrap().identity, before.identity, "in place");
    assert_eq!(read(storage, "f").await.unwrap(), b"");
    file.write_at(b"ab", 0).await.unwrap();
    let committed = file.close(None).await.unwrap();
    assert!(!committed.replaced);
    assert_eq!(committed.metadata, storage.stat(&path("f")).await.unwrap());
    assert_ne!(committed.metadata.tag, before.tag);
    // Once for all: without a change, the tag stays.
    let file = open(storage, "f", &at_once(Disposition::Existing)).await.unwrap();
    assert_eq!(file.close(None).await.unwrap().metadata.tag, committed.metadata.tag);
}

async fn what_is_visible_when_closed(storage: &dyn Storage) {
    let file = open(storage, "f", &when_closed(Disposition::New)).await.unwrap();
    assert!(!file.has_name());
    file.write_at(b"new", 0).await.unwrap();
    assert_eq!(contents(file.as_ref()).await, b"new");
    assert_eq!(file.metadata().unwrap().kind, NodeKind::File);
    assert!(matches!(read(storage, "f").await, Err(StoreError::NotFound)));
    assert_eq!(names(storage, &ObjectPath::root()).await, ["sub/"]);
    let committed = file.close(None).await.unwrap();
    assert!(file.has_name() && !committed.replaced);
    assert_eq!(read(storage, "f").await.unwrap(), b"new");
    assert_eq!(committed.metadata, storage.stat(&path("f")).await.unwrap());
    let file = open(storage, "f", &when_closed(Disposition::Replace)).await.unwrap();
    file.write_at(b"newer", 0).await.unwrap();
    file.sync().await.unwrap();
    assert_eq!(read(storage, "f").await.unwrap(), b"new");
    let committed = file.close(None).await.unwrap();
    assert_eq!((committed.replaced, committed.replaced_bytes), (true, 3));
    assert_eq!(read(storage, "f").await.unwrap(), b"newer");
    let senseless = open(storage, "f", &when_closed(Disposition::Existing)).await;
    assert!(matches!(senseless, Err(StoreError::Unsupported)));
}

async fn nothing_is_left_of_what_was_not_closed(storage: &dyn Storage) {
    write(storage, "f", b"old", &Expectation::Anything).await.unwrap();
    for (at, disposition) in [("f", Disposition::Replace), ("g", Disposition::New)] {
        let file = open(storage, at, &when_closed(disposition)).await.unwrap();
        file.write_at(b"new", 0).await.unwrap();
        file.discard().await;
    }
    assert_eq!(read(storage, "f").await.unwrap(), b"old");
    assert_eq!(names(storage, &ObjectPath::root()).await, ["f", "sub/"]);
}

async fn places_are_taken_meanwhile(storage: &dyn Storage) {
    let file = open(storage, "f", &when_closed(Disposition::New)).await.unwrap();
    file.write_at(b"late", 0).await.unwrap();
    write(storage, "f", b"early", &Expectation::Anything).await.unwrap();
    assert!(matches!(file.close(None).await, Err(StoreError::Unexpected)));
    assert!(matches!(file.close(None).await, Err(StoreError::Closed)));
    assert_eq!(read(storage, "f").await.unwrap(), b"early");
    let file = open(storage, "sub/f", &when_closed(Disposition::Replace)).await.unwrap();
    storage.remove_tree(&path("sub")).await.unwrap();
    assert!(matches!(file.close(None).await, Err(StoreError::ParentMissing)));
    assert_eq!(names(storage, &ObjectPath::root()).await, ["f"]);
}

async fn several_write_at_once(storage: &dyn Storage) {
    const WRITERS: usize = 8;
    const PIECE: usize = 1000;
    const PIECES: usize = 20;
    for options in [at_once(Disposition::Replace), when_closed(Disposition::Replace)] {
        let file = open(storage, "f", &options).await.unwrap();
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let file = Arc::clone(&file);
            writers.spawn(async move {
                for piece in 0..PIECES {
                    let at = (piece * WRITERS + writer) * PIECE;
                    file.write_at(&[writer as u8 + 1; PIECE], at as u64).await.unwrap();
                    let mut back = [0; PIECE];
                    assert_eq!(file.read_at(&mut back, at as u64).await.unwrap(), PIECE);
                    assert!(back == [writer as u8 + 1; PIECE]);
                }
            });
        }
        writers.join_all().await;
        file.close(None).await.unwrap();
        let found =
            contents(open(storage, "f", &at_once(Disposition::Existing)).await.unwrap().as_ref()).await;
        assert_eq!(found.len(), WRITERS * PIECES * PIECE);
        let expected = |at: usize| ((at / PIECE) % WRITERS) as u8 + 1;
        assert!(found.iter().enumerate().all(|(at, byte)| *byte == expected(at)));
    }
}

async fn vectors_of_any_length(storage: &dyn Storage) {
    // More parts than a kernel takes at once, empty ones among them.
    let parts: Vec<Vec<u8>> = (0..3000_usize).map(|number| vec![number as u8; number % 7]).collect();
    let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    for options in [at_once(Disposition::Replace), when_closed(Disposition::Replace)] {
        let file = open(storage, "f", &options).await.unwrap();
        file.write_vectored_at(&slices, 5).await.unwrap();
        assert!(contents(file.as_ref()).await == [vec![0; 5], parts.concat()].concat());
        file.write_vectored_at(&[IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"c")], 1)
            .await
            .unwrap();
        file.write_vectored_at(&[], 1 << 40).await.unwrap();
        file.write_vectored_at(&[IoSlice::new(b""); 2000], 1 << 40).await.unwrap();
        file.write_at(b"", 1 << 40).await.unwrap();
        assert_eq!(&contents(file.as_ref()).await[..6], b"\0abc\0\x01");
        assert_eq!(file.close(None).await.unwrap().metadata.size_bytes, 5 + parts.concat().len() as u64);
    }
}

async fn lengths_change(storage: &dyn Storage) {
    for options in [at_once(Disposition::Replace), when_closed(Disposition::Replace)] {
        let file = open(storage, "f", &options).await.unwrap();
        file.write_at(b"abc", 4).await.unwrap();
        assert_eq!(contents(file.as_ref()).await, b"\0\0\0\0abc", "a hole reads as zeros");
        file.truncate(5).await.unwrap();
        assert_eq!(contents(file.as_ref()).await, b"\0\0\0\0a");
        file.truncate(7).await.unwrap();
        assert_eq!(contents(file.as_ref()).await, b"\0\0\0\0a\0\0", "what was cut does not come back");
        file.truncate(7).await.unwrap();
        file.truncate(0).await.unwrap();
        file.truncate(2).await.unwrap();
        let mut byte = [1];
        assert_eq!(file.read_at(&mut byte, 2).await.unwrap(), 0);
        assert!(matches!(file.read_at_nowait(&mut byte, 1), Ok(None | Some(1))));
        file.close(None).await.unwrap();
        assert_eq!(read(storage, "f").await.unwrap(), b"\0\0");
    }
    // Where no file ends.
    let file = open(storage, "f", &at_once(Disposition::Existing)).await.unwrap();
    for offset in [u64::MAX, u64::MAX - 1, i64::MAX as u64] {
        let refused: [StoreResult<()>; 2] = [
            file.write_at(b"ab", offset).await,
            file.write_vectored_at(&[IoSlice::new(b"ab")], offset).await,
        ];
        assert!(refused.iter().all(|refused| matches!(refused, Err(StoreError::TooLarge))), "{refused:?}");
    }
    assert!(matches!(file.truncate(u64::MAX).await, Err(StoreError::TooLarge)));
    assert_eq!(contents(file.as_ref()).await, b"\0\0");
}

async fn a_closed_file_stays_as_it_is(storage: &dyn Storage) {
    for options in [at_once(Disposition::Replace), when_closed(Disposition::Replace)] {
        let file = open(storage, "f", &options).await.unwrap();
        file.write_at(b"one", 0).await.unwrap();
        file.close(None).await.unwrap();
        assert!(matches!(file.write_at(b"two", 0).await, Err(StoreError::Closed)));
        assert!(matches!(file.write_vectored_at(&[IoSlice::new(b"two")], 0).await, Err(StoreError::Closed)));
        assert!(matches!(file.truncate(0).await, Err(StoreError::Closed)));
        assert!(matches!(file.close(None).await, Err(StoreError::Closed)));
        assert_eq!(read(storage, "f").await.unwrap(), b"one");
    }
}

async fn it_outlives_its_name(storage: &dyn Storage) {
    let file = open(storage, "f", &at_once(Disposition::New)).await.unwrap();
    file.write_at(b"one", 0).await.unwrap();
    posix(storage)
        .rename(&path("f"), &path("sub/g"), Overwrite::Nothing, &Expectation::Anything)
        .await
        .unwrap();
    assert!(file.has_name());
    file.write_at(b"more", 3).await.unwrap();
    assert_eq!(read(storage, "sub/g").await.unwrap(), b"onemore");
    storage.remove(&path("sub/g"), &Expectation::Anything).await.unwrap();
    assert!(!file.has_name());
    file.write_at(b"two", 0).await.unwrap();
    assert_eq!(contents(file.as_ref()).await, b"twomore");
    file.close(None).await.unwrap();
    assert!(names(storage, &path("sub")).await.is_empty());
}

async fn what_cannot_be_opened(storage: &dyn Storage) {
    use Disposition::{Existing, New, Replace};
    write(storage, "f", b"one", &Expectation::Anything).await.unwrap();
    for options in [at_once(Existing), at_once(New), at_once(Replace), when_closed(New), when_closed(Replace)]
    {
        for directory in [path("sub"), ObjectPath::root()] {
            let refused = posix(storage).open_writable(&directory, &options).await;
            assert!(matches!(refused, Err(StoreError::NotAFile)), "{directory} {options:?}");
        }
        for nowhere in ["f/g", "none/g"] {
            let refused = open(storage, nowhere, &options).await.err();
            let is_meant = match options.disposition {
                Existing => matches!(refused, Some(StoreError::NotFound)),
                New | Replace => matches!(refused, Some(StoreError::ParentMissing)),
            };
            assert!(is_meant, "{nowhere} {options:?}: {refused:?}");
        }
        // More than any of them has room for.
        let much = WriteOptions { expected_bytes: Some(1 << 62), ..options };
        if storage.space(&ObjectPath::root()).await.unwrap().available_bytes < 1 << 62 {
            let (at, bytes) = if options.disposition == New { ("g", None) } else { ("f", Some(b"one")) };
            assert!(
                matches!(open(storage, at, &much).await, Err(StoreError::NoSpace | StoreError::OverQuota)),
                "{options:?}"
            );
            assert_eq!(read(storage, at).await.ok().as_deref(), bytes.map(|bytes| &bytes[..]));
        }
    }
    assert_eq!(names(storage, &ObjectPath::root()).await, ["f", "sub/"]);
}

const ADLER32: ChecksumKind = ChecksumKind::Adler32;

async fn checksums_are_forgotten_and_kept(storage: &dyn Storage) {
    type Change = fn(&dyn WritableFile) -> BoxFuture<'_, StoreResult<()>>;
    let changes: [Change; 4] = [
        |file| file.write_at(b"one", 0),
        |file| Box::pin(async move { file.write_vectored_at(&[IoSlice::new(b"x")], 1).await }),
        |file| file.truncate(2),
        |file| file.truncate(3),
    ];
    let sum = Checksum::adler32(7);
    let md5 = Checksum::from_bytes(ChecksumKind::Md5, &[1; 16]).unwrap();
    for options in [at_once(Disposition::Replace), when_closed(Disposition::Replace)] {
        let file = open(storage, "f", &options).await.unwrap();
        file.write_at(b"one", 0).await.unwrap();
        let committed = file.close(Some(&whole(3, &[sum.clone(), md5.clone()]))).await.unwrap();
        assert_eq!(kept(storage, "f", ADLER32).await.as_ref(), Some(&sum));
        assert_eq!(kept(storage, "f", ChecksumKind::Md5).await.as_ref(), Some(&md5));
        assert_eq!(storage.stat(&path("f")).await.unwrap().tag, committed.metadata.tag);
    }
    for change in changes {
        for computed_later in [false, true] {
            let file = open(storage, "f", &at_once(Disposition::Replace)).await.unwrap();
            assert_eq!(kept(storage, "f", ADLER32).await, None);
            file.write_at(b"one", 0).await.unwrap();
            file.close((!computed_later).then(|| whole(3, std::slice::from_ref(&sum))).as_ref())
                .await
                .unwrap();
            let Opened::File(reader) = storage.open(&path("f")).await.unwrap() else { panic!("a file") };
            if computed_later {
                reader.keep_checksum(&sum).await.unwrap();
            }
            let file = open(storage, "f", &at_once(Disposition::Existing)).await.unwrap();
            assert_eq!(kept(storage, "f", ADLER32).await.as_ref(), Some(&sum), "nothing changed so far");
            change(file.as_ref()).await.unwrap();
            // Of the same length, and perhaps within one tick of the clock.
            assert_eq!(kept(storage, "f", ADLER32).await, None);
            file.discard().await;
            assert_eq!(kept(storage, "f", ADLER32).await, None);
            assert_eq!(reader.kept_checksums(&[ADLER32]).await, []);
        }
    }
}

async fn a_reader_keeps_nothing_of_other_bytes(storage: &dyn Storage) {
    let reader = async || match storage.open(&path("f")).await.unwrap() {
        Opened::File(reader) => reader,
        Opened::Directory => panic!("a file"),
    };
    // Often enough to meet all that happens within one tick of the clock.
    for round in 0..50 {
        let file = open(storage, "f", &at_once(Disposition::Replace)).await.unwrap();
        file.write_at(b"one", 0).await.unwrap();
        let during = reader().await;
        during.keep_checksum(&Checksum::adler32(1)).await.unwrap();
        file.write_at(b"two", 0).await.unwrap();
        assert_eq!(kept(storage, "f", ADLER32).await, None, "{round}");
        file.close(None).await.unwrap();
        during.keep_checksum(&Checksum::adler32(1)).await.unwrap();
        assert_eq!(kept(storage, "f", ADLER32).await, None, "{round}");
        let before = reader().await;
        let tag = storage.stat(&path("f")).await.unwrap().tag;
        let file = open(storage, "f", &at_once(Disposition::Existing)).await.unwrap();
        file.write_at(b"six", 0).await.unwrap();
        file.close(None).await.unwrap();
        before.keep_checksum(&Checksum::adler32(2)).await.unwrap();
        assert_eq!(kept(storage, "f", ADLER32).await, None, "{round}");
        assert_ne!(storage.stat(&path("f")).await.unwrap().tag, tag, "other bytes, another tag: {round}");
        reader().await.keep_checksum(&Checksum::adler32(3)).await.unwrap();
        assert_eq!(kept(storage, "f", ADLER32).await, Some(Checksum::adler32(3)), "{round}");
    }
}

async fn two_change_one_file(storage: &dyn Storage) {
    let sum = [Checksum::adler32(7)];
    let first = open(storage, "f", &at_once(Disposition::New)).await.unwrap();
    first.write_at(b"one", 0).await.unwrap();
    let second = open(storage, "f", &at_once(Disposition::Existing)).await.unwrap();
    second.write_at(b"w", 1).await.unwrap();
    first.write_at(b"e", 2).await.unwrap();
    assert_eq!(contents(first.as_ref()).await, b"owe");
    first.close(Some(&whole(3, &sum))).await.unwrap();
    assert_eq!(kept(storage, "f", ADLER32).await, None, "these are not the bytes of the first alone");
    second.write_at(b"more", 3).await.unwrap();
    second.close(Some(&whole(7, &sum))).await.unwrap();
    assert_eq!(kept(storage, "f", ADLER32).await, None, "nor of the second");
    // One after the other.
    let file = open(storage, "f", &at_once(Disposition::Replace)).await.unwrap();
    file.write_at(b"two", 0).await.unwrap();
    file.close(Some(&whole(3, &sum))).await.unwrap();
    assert_eq!(kept(storage, "f", ADLER32).await, Some(sum[0].clone()));
    // Of another length than it has, they are of other bytes.
    let file = open(storage, "f", &at_once(Disposition::Replace)).await.unwrap();
    file.write_at(b"two", 0).await.unwrap();
    file.close(Some(&whole(4, &sum))).await.unwrap();
    assert_eq!(kept(storage, "f", ADLER32).await, None);
}

async fn permissions(storage: &dyn Storage) {
    let mode = async |at: &str| storage.look(&path(at)).await.unwrap().mode;
    for options in [at_once(Disposition::Replace), when_closed(Disposition::Replace)] {
        for (wanted, given) in [(0o640, 0o640), (0, 0o600), (0o7700, 0o700), (0o400, 0o600)] {
            let file = open(storage, "f", &WriteOptions { mode: Some(wanted), ..options }).await.unwrap();
            file.close(None).await.unwrap();
            assert_eq!(mode("f").await, 0o100_000 | given, "{wanted:o} {options:?}");
            storage.remove(&path("f"), &Expectation::Anything).await.unwrap();
        }
    }
    write(storage, "f", b"one", &Expectation::Anything).await.unwrap();
    let uploaded = mode("f").await;
    open(storage, "g", &at_once(Disposition::New)).await.unwrap().close(None).await.unwrap();
    assert_eq!(mode("g").await, uploaded);
    for wanted in [0o444, 0o7750, 0o600, 0o777] {
        posix(storage).set_mode(&path("f"), wanted).await.unwrap();
        assert_eq!(mode("f").await, 0o100_000 | (wanted & 0o777));
        posix(storage).set_mode(&path("sub"), wanted).await.unwrap();
        assert_eq!(mode("sub").await, 0o040_000 | (wanted & 0o777));
    }
    assert_eq!(read(storage, "f").await.unwrap(), b"one");
    // Replacing the bytes leaves them alone.
    posix(storage).set_mode(&path("f"), 0o640).await.unwrap();
    let replacing = WriteOptions { mode: Some(0o600), ..at_once(Disposition::Replace) };
    open(storage, "f", &replacing).await.unwrap().close(None).await.unwrap();
    assert_eq!(mode("f").await, 0o100_640);
    assert!(matches!(posix(storage).set_mode(&path("none"), 0o600).await, Err(StoreError::NotFound)));
    assert!(matches!(posix(storage).set_mode(&path("f/g"), 0o600).await, Err(StoreError::NotFound)));
    assert!(matches!(posix(storage).set_mode(&ObjectPath::root(), 0).await, Err(StoreError::InUse)));
}

async fn attributes(storage: &dyn Storage) {
    write(storage, "f", b"one", &Expectation::Anything).await.unwrap();
    if matches!(posix(storage).attribute_names(&path("f")).await, Err(StoreError::Unsupported)) {
        eprintln!("skipped: the file system has no attributes");
        return;
    }
    for at in [path("f"), path("sub"), ObjectPath::root()] {
        assert!(posix(storage).attribute_names(&at).await.unwrap().is_empty());
        let get = async |name: &[u8]| posix(storage).attribute(&at, name).await.unwrap();
        let set =
            async |name: &[u8], value: &[u8], new| posix(storage).set_attribute(&at, name, value, new).await;
        assert_eq!(get(b"a").await, None);
        set(b"a", b"1", true).await.unwrap();
        assert!(matches!(set(b"a", b"2", true).await, Err(StoreError::Unexpected)));
        assert_eq!(get(b"a").await.as_deref(), Some(&b"1"[..]));
        set(b"a", b"longer", false).await.unwrap();
        // Whatever bytes there are, and names that mean something elsewhere.
        for name in [&b"\xff\xfe"[..], b"user.x", b"XrdCks.adler32", b"a.b c/=%", b"U."] {
            set(name, b"\0\xff\n", false).await.unwrap();
            assert_eq!(get(name).await.as_deref(), Some(&b"\0\xff\n"[..]));
        }
        set(b"empty", b"", true).await.unwrap();
        assert_eq!(get(b"empty").await.as_deref(), Some(&b""[..]));
        assert_eq!(get(b"A").await, None);
        assert!(posix(storage).remove_attribute(&at, b"a").await.unwrap());
        assert!(!posix(storage).remove_attribute(&at, b"a").await.unwrap());
        let mut names = posix(storage).attribute_names(&at).await.unwrap();
        names.sort();
        assert_eq!(names, [&b"U."[..], b"XrdCks.adler32", b"a.b c/=%", b"empty", b"user.x", b"\xff\xfe"]);
        for name in names {
            assert!(posix(storage).remove_attribute(&at, &name).await.unwrap());
        }
    }
    // They go with the file, stay when its bytes are changed in place, and are not those of another one.
    posix(storage).set_attribute(&path("f"), b"a", b"1", true).await.unwrap();
    posix(storage)
        .rename(&path("f"), &path("sub/f"), Overwrite::Nothing, &Expectation::Anything)
        .await
        .unwrap();
    open(storage, "sub/f", &at_once(Disposition::Replace)).await.unwrap().close(None).await.unwrap();
    assert_eq!(posix(storage).attribute_names(&path("sub/f")).await.unwrap(), [b"a"]);
    write(storage, "sub/f", b"two", &Expectation::Anything).await.unwrap();
    assert!(posix(storage).attribute_names(&path("sub/f")).await.unwrap().is_empty());
    for nowhere in ["none", "sub/f/g"] {
        let at = path(nowhere);
        assert!(matches!(posix(storage).attribute_names(&at).await, Err(StoreError::NotFound)));
        assert!(matches!(posix(storage).attribute(&at, b"a").await, Err(StoreError::NotFound)));
        assert!(matches!(
            posix(storage).set_attribute(&at, b"a", b"", false).await,
            Err(StoreError::NotFound)
        ));
        assert!(matches!(posix(storage).remove_attribute(&at, b"a").await, Err(StoreError::NotFound)));
    }
}

async fn attributes_have_limits(storage: &dyn Storage) {
    write(storage, "f", b"one", &Expectation::Anything).await.unwrap();
    if matches!(posix(storage).attribute_names(&path("f")).await, Err(StoreError::Unsupported)) {
        return;
    }
    let set =
        async |name: &[u8], value: &[u8]| posix(storage).set_attribute(&path("f"), name, value, false).await;
    let longest = [b'n'; 248];
    set(&longest, b"1").await.unwrap();
    assert_eq!(posix(storage).attribute_names(&path("f")).await.unwrap(), [longest]);
    assert!(matches!(set(&[b'n'; 249], b"1").await, Err(StoreError::NameTooLong)));
    for never in [&b""[..], b"a\0b"] {
        assert!(matches!(set(never, b"1").await, Err(StoreError::Unsupported)));
        assert!(matches!(posix(storage).attribute(&path("f"), never).await, Err(StoreError::Unsupported)));
        assert!(matches!(
            posix(storage).remove_attribute(&path("f"), never).await,
            Err(StoreError::Unsupported)
        ));
    }
    assert!(matches!(set(b"a", &vec![0; 65_537]).await, Err(StoreError::TooLarge)));
    // Not every file system has room for that.
    match set(b"a", &vec![7; 65_536]).await {
        Ok(()) => {
            assert!(posix(storage).attribute(&path("f"), b"a").await.unwrap().unwrap() == vec![7; 65_536]);
        }
        Err(error) => assert!(
            matches!(error, StoreError::NoSpace | StoreError::OverQuota | StoreError::TooLarge),
            "{error:?}"
        ),
    }
    // With checksums kept.
    let file = open(storage, "sub/g", &at_once(Disposition::New)).await.unwrap();
    file.write_at(b"one", 0).await.unwrap();
    file.close(Some(&whole(3, &[Checksum::adler32(7)]))).await.unwrap();
    assert!(posix(storage).attribute_names(&path("sub/g")).await.unwrap().is_empty());
    posix(storage).set_attribute(&path("sub/g"), b"a", b"1", true).await.unwrap();
    assert_eq!(kept(storage, "sub/g", ADLER32).await, Some(Checksum::adler32(7)));
}

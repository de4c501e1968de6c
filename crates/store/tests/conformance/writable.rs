//! Files that are changed in place, and those that are seen when they are closed.

use std::io::IoSlice;
use std::sync::Arc;

use gridlane_core::{Checksum, ChecksumKind};
use gridlane_store::{
    Disposition, Expectation, NodeKind, ObjectPath, Opened, Overwrite, Storage, StoreError, StoreResult,
    Visibility, WritableFile, WriteOptions,
};

use super::{Check, kept, names, path, read, write};

pub(super) const CHECKS: &[Check] = &[
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

fn when_closed(disposition: Disposition) -> WriteOptions {
    WriteOptions { visibility: Visibility::WhenClosed, ..WriteOptions::new(disposition) }
}

fn open(storage: &dyn Storage, at: &str, options: &WriteOptions) -> StoreResult<Arc<dyn WritableFile>> {
    storage.open_writable(&path(at), options)
}

fn contents(file: &dyn WritableFile) -> Vec<u8> {
    let len = usize::try_from(file.metadata().unwrap().size_bytes).unwrap();
    let mut bytes = vec![0xff; len + 1];
    let mut read = 0;
    loop {
        match file.read_at(&mut bytes[read..], read as u64).unwrap() {
            0 => break,
            count => read += count,
        }
    }
    assert_eq!(read, len);
    bytes.truncate(read);
    bytes
}

fn dispositions_say_what_has_to_be_there(storage: &dyn Storage) {
    use Disposition::{Existing, New, Replace};
    assert!(matches!(open(storage, "f", &at_once(Existing)), Err(StoreError::NotFound)));
    for options in [at_once(New), when_closed(New)] {
        let file = open(storage, "sub/f", &options).unwrap();
        file.write_at(b"first", 0).unwrap();
        file.close(&[]).unwrap();
        for again in [at_once(New), when_closed(New)] {
            assert!(matches!(open(storage, "sub/f", &again), Err(StoreError::Unexpected)));
        }
        assert_eq!(read(storage, "sub/f").unwrap(), b"first");
        let file = open(storage, "sub/f", &at_once(Existing)).unwrap();
        assert_eq!(contents(file.as_ref()), b"first");
        file.write_at(b"L", 2).unwrap();
        file.close(&[]).unwrap();
        assert_eq!(read(storage, "sub/f").unwrap(), b"fiLst");
        storage.remove(&path("sub/f"), &Expectation::Anything).unwrap();
    }
    for options in [at_once(Replace), when_closed(Replace)] {
        for bytes in [&b"longer than"[..], b"short"] {
            let file = open(storage, "g", &options).unwrap();
            assert_eq!(contents(file.as_ref()), b"");
            file.write_at(bytes, 0).unwrap();
            file.close(&[]).unwrap();
            assert_eq!(read(storage, "g").unwrap(), bytes);
        }
        storage.remove(&path("g"), &Expectation::Anything).unwrap();
    }
    assert_eq!(names(storage, &ObjectPath::root()), ["sub/"]);
}

fn parents_are_made(storage: &dyn Storage) {
    for (number, options) in
        [at_once(Disposition::New), when_closed(Disposition::Replace)].into_iter().enumerate()
    {
        let at = format!("sub/{number}/b/f");
        assert!(matches!(open(storage, &at, &options), Err(StoreError::ParentMissing)));
        let making = WriteOptions { parents: true, ..options };
        open(storage, &at, &making).unwrap().close(&[]).unwrap();
        assert_eq!(read(storage, &at).unwrap(), b"");
        let through = format!("{at}/g/h");
        assert!(matches!(open(storage, &through, &making), Err(StoreError::NotADirectory)));
    }
    let existing = WriteOptions { parents: true, ..at_once(Disposition::Existing) };
    assert!(matches!(open(storage, "none/f", &existing), Err(StoreError::NotFound)));
    assert_eq!(names(storage, &ObjectPath::root()), ["sub/"]);
}

fn what_is_visible_at_once(storage: &dyn Storage) {
    let file = open(storage, "f", &at_once(Disposition::New)).unwrap();
    assert!(file.has_name());
    assert_eq!(storage.stat(&path("f")).unwrap().size_bytes, 0);
    let Opened::File(reader) = storage.open(&path("f")).unwrap() else { panic!("a file") };
    file.write_at(b"0123456789", 0).unwrap();
    assert_eq!(read(storage, "f").unwrap(), b"0123456789");
    assert!(!reader.is_unchanged());
    let mut bytes = [0; 4];
    assert_eq!(reader.read_at(&mut bytes, 3).unwrap(), 4);
    assert_eq!(&bytes, b"3456");
    assert_eq!(file.metadata().unwrap(), storage.stat(&path("f")).unwrap());
    // It is not taken back.
    drop(file);
    assert_eq!(read(storage, "f").unwrap(), b"0123456789");
    let before = storage.stat(&path("f")).unwrap();
    let file = open(storage, "f", &at_once(Disposition::Replace)).unwrap();
    assert_eq!(storage.stat(&path("f")).unwrap().identity, before.identity, "in place");
    assert_eq!(read(storage, "f").unwrap(), b"");
    file.write_at(b"ab", 0).unwrap();
    let committed = file.close(&[]).unwrap();
    assert!(!committed.replaced);
    assert_eq!(committed.metadata, storage.stat(&path("f")).unwrap());
    assert_ne!(committed.metadata.tag, before.tag);
    // Once for all: without a change, the tag stays.
    let file = open(storage, "f", &at_once(Disposition::Existing)).unwrap();
    assert_eq!(file.close(&[]).unwrap().metadata.tag, committed.metadata.tag);
}

fn what_is_visible_when_closed(storage: &dyn Storage) {
    let file = open(storage, "f", &when_closed(Disposition::New)).unwrap();
    assert!(!file.has_name());
    file.write_at(b"new", 0).unwrap();
    assert_eq!(contents(file.as_ref()), b"new");
    assert_eq!(file.metadata().unwrap().kind, NodeKind::File);
    assert!(matches!(read(storage, "f"), Err(StoreError::NotFound)));
    assert_eq!(names(storage, &ObjectPath::root()), ["sub/"]);
    let committed = file.close(&[]).unwrap();
    assert!(file.has_name() && !committed.replaced);
    assert_eq!(read(storage, "f").unwrap(), b"new");
    assert_eq!(committed.metadata, storage.stat(&path("f")).unwrap());
    let file = open(storage, "f", &when_closed(Disposition::Replace)).unwrap();
    file.write_at(b"newer", 0).unwrap();
    file.sync().unwrap();
    assert_eq!(read(storage, "f").unwrap(), b"new");
    let committed = file.close(&[]).unwrap();
    assert_eq!((committed.replaced, committed.replaced_bytes), (true, 3));
    assert_eq!(read(storage, "f").unwrap(), b"newer");
    let senseless = open(storage, "f", &when_closed(Disposition::Existing));
    assert!(matches!(senseless, Err(StoreError::Unsupported)));
}

fn nothing_is_left_of_what_was_not_closed(storage: &dyn Storage) {
    write(storage, "f", b"old", &Expectation::Anything).unwrap();
    for (at, disposition) in [("f", Disposition::Replace), ("g", Disposition::New)] {
        let file = open(storage, at, &when_closed(disposition)).unwrap();
        file.write_at(b"new", 0).unwrap();
        drop(file);
    }
    assert_eq!(read(storage, "f").unwrap(), b"old");
    assert_eq!(names(storage, &ObjectPath::root()), ["f", "sub/"]);
}

fn places_are_taken_meanwhile(storage: &dyn Storage) {
    let file = open(storage, "f", &when_closed(Disposition::New)).unwrap();
    file.write_at(b"late", 0).unwrap();
    write(storage, "f", b"early", &Expectation::Anything).unwrap();
    assert!(matches!(file.close(&[]), Err(StoreError::Unexpected)));
    assert!(matches!(file.close(&[]), Err(StoreError::Closed)));
    assert_eq!(read(storage, "f").unwrap(), b"early");
    let file = open(storage, "sub/f", &when_closed(Disposition::Replace)).unwrap();
    storage.remove_tree(&path("sub")).unwrap();
    assert!(matches!(file.close(&[]), Err(StoreError::ParentMissing)));
    assert_eq!(names(storage, &ObjectPath::root()), ["f"]);
}

fn several_write_at_once(storage: &dyn Storage) {
    const WRITERS: usize = 8;
    const PIECE: usize = 1000;
    const PIECES: usize = 20;
    for options in [at_once(Disposition::Replace), when_closed(Disposition::Replace)] {
        let file = open(storage, "f", &options).unwrap();
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let file = &file;
                scope.spawn(move || {
                    for piece in 0..PIECES {
                        let at = (piece * WRITERS + writer) * PIECE;
                        file.write_at(&[writer as u8 + 1; PIECE], at as u64).unwrap();
                        let mut back = [0; PIECE];
                        assert_eq!(file.read_at(&mut back, at as u64).unwrap(), PIECE);
                        assert!(back == [writer as u8 + 1; PIECE]);
                    }
                });
            }
        });
        file.close(&[]).unwrap();
        let found = contents(open(storage, "f", &at_once(Disposition::Existing)).unwrap().as_ref());
        assert_eq!(found.len(), WRITERS * PIECES * PIECE);
        let expected = |at: usize| ((at / PIECE) % WRITERS) as u8 + 1;
        assert!(found.iter().enumerate().all(|(at, byte)| *byte == expected(at)));
    }
}

fn vectors_of_any_length(storage: &dyn Storage) {
    // More parts than a kernel takes at once, empty ones among them.
    let parts: Vec<Vec<u8>> = (0..3000_usize).map(|number| vec![number as u8; number % 7]).collect();
    let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    for options in [at_once(Disposition::Replace), when_closed(Disposition::Replace)] {
        let file = open(storage, "f", &options).unwrap();
        file.write_vectored_at(&slices, 5).unwrap();
        assert!(contents(file.as_ref()) == [vec![0; 5], parts.concat()].concat());
        file.write_vectored_at(&[IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"c")], 1).unwrap();
        file.write_vectored_at(&[], 1 << 40).unwrap();
        file.write_vectored_at(&[IoSlice::new(b""); 2000], 1 << 40).unwrap();
        file.write_at(b"", 1 << 40).unwrap();
        assert_eq!(&contents(file.as_ref())[..6], b"\0abc\0\x01");
        assert_eq!(file.close(&[]).unwrap().metadata.size_bytes, 5 + parts.concat().len() as u64);
    }
}

fn lengths_change(storage: &dyn Storage) {
    for options in [at_once(Disposition::Replace), when_closed(Disposition::Replace)] {
        let file = open(storage, "f", &options).unwrap();
        file.write_at(b"abc", 4).unwrap();
        assert_eq!(contents(file.as_ref()), b"\0\0\0\0abc", "a hole reads as zeros");
        file.truncate(5).unwrap();
        assert_eq!(contents(file.as_ref()), b"\0\0\0\0a");
        file.truncate(7).unwrap();
        assert_eq!(contents(file.as_ref()), b"\0\0\0\0a\0\0", "what was cut does not come back");
        file.truncate(7).unwrap();
        file.truncate(0).unwrap();
        file.truncate(2).unwrap();
        let mut byte = [1];
        assert_eq!(file.read_at(&mut byte, 2).unwrap(), 0);
        assert!(matches!(file.read_at_nowait(&mut byte, 1), Ok(None | Some(1))));
        file.close(&[]).unwrap();
        assert_eq!(read(storage, "f").unwrap(), b"\0\0");
    }
    // Where no file ends.
    let file = open(storage, "f", &at_once(Disposition::Existing)).unwrap();
    for offset in [u64::MAX, u64::MAX - 1, i64::MAX as u64] {
        let refused: [StoreResult<()>; 2] =
            [file.write_at(b"ab", offset), file.write_vectored_at(&[IoSlice::new(b"ab")], offset)];
        assert!(refused.iter().all(|refused| matches!(refused, Err(StoreError::TooLarge))), "{refused:?}");
    }
    assert!(matches!(file.truncate(u64::MAX), Err(StoreError::TooLarge)));
    assert_eq!(contents(file.as_ref()), b"\0\0");
}

fn a_closed_file_stays_as_it_is(storage: &dyn Storage) {
    for options in [at_once(Disposition::Replace), when_closed(Disposition::Replace)] {
        let file = open(storage, "f", &options).unwrap();
        file.write_at(b"one", 0).unwrap();
        file.close(&[]).unwrap();
        assert!(matches!(file.write_at(b"two", 0), Err(StoreError::Closed)));
        assert!(matches!(file.write_vectored_at(&[IoSlice::new(b"two")], 0), Err(StoreError::Closed)));
        assert!(matches!(file.truncate(0), Err(StoreError::Closed)));
        assert!(matches!(file.close(&[]), Err(StoreError::Closed)));
        assert_eq!(read(storage, "f").unwrap(), b"one");
    }
}

fn it_outlives_its_name(storage: &dyn Storage) {
    let file = open(storage, "f", &at_once(Disposition::New)).unwrap();
    file.write_at(b"one", 0).unwrap();
    storage.rename(&path("f"), &path("sub/g"), Overwrite::Nothing, &Expectation::Anything).unwrap();
    assert!(file.has_name());
    file.write_at(b"more", 3).unwrap();
    assert_eq!(read(storage, "sub/g").unwrap(), b"onemore");
    storage.remove(&path("sub/g"), &Expectation::Anything).unwrap();
    assert!(!file.has_name());
    file.write_at(b"two", 0).unwrap();
    assert_eq!(contents(file.as_ref()), b"twomore");
    file.close(&[]).unwrap();
    assert!(names(storage, &path("sub")).is_empty());
}

fn what_cannot_be_opened(storage: &dyn Storage) {
    use Disposition::{Existing, New, Replace};
    write(storage, "f", b"one", &Expectation::Anything).unwrap();
    for options in [at_once(Existing), at_once(New), at_once(Replace), when_closed(New), when_closed(Replace)]
    {
        for directory in [path("sub"), ObjectPath::root()] {
            let refused = storage.open_writable(&directory, &options);
            assert!(matches!(refused, Err(StoreError::NotAFile)), "{directory} {options:?}");
        }
        for nowhere in ["f/g", "none/g"] {
            let refused = open(storage, nowhere, &options).err();
            let is_meant = match options.disposition {
                Existing => matches!(refused, Some(StoreError::NotFound)),
                New | Replace => matches!(refused, Some(StoreError::ParentMissing)),
            };
            assert!(is_meant, "{nowhere} {options:?}: {refused:?}");
        }
        // More than any of them has room for.
        let much = WriteOptions { expected_bytes: Some(1 << 62), ..options };
        if storage.space(&ObjectPath::root()).unwrap().available_bytes < 1 << 62 {
            let (at, bytes) = if options.disposition == New { ("g", None) } else { ("f", Some(b"one")) };
            assert!(
                matches!(open(storage, at, &much), Err(StoreError::NoSpace | StoreError::OverQuota)),
                "{options:?}"
            );
            assert_eq!(read(storage, at).ok().as_deref(), bytes.map(|bytes| &bytes[..]));
        }
    }
    assert_eq!(names(storage, &ObjectPath::root()), ["f", "sub/"]);
}

const ADLER32: ChecksumKind = ChecksumKind::Adler32;

fn checksums_are_forgotten_and_kept(storage: &dyn Storage) {
    type Change = fn(&dyn WritableFile) -> StoreResult<()>;
    let changes: [Change; 4] = [
        |file| file.write_at(b"one", 0),
        |file| file.write_vectored_at(&[IoSlice::new(b"x")], 1),
        |file| file.truncate(2),
        |file| file.truncate(3),
    ];
    let sum = Checksum::adler32(7);
    let md5 = Checksum::from_bytes(ChecksumKind::Md5, &[1; 16]).unwrap();
    for options in [at_once(Disposition::Replace), when_closed(Disposition::Replace)] {
        let file = open(storage, "f", &options).unwrap();
        file.write_at(b"one", 0).unwrap();
        let committed = file.close(&[sum.clone(), md5.clone()]).unwrap();
        assert_eq!(kept(storage, "f", ADLER32).as_ref(), Some(&sum));
        assert_eq!(kept(storage, "f", ChecksumKind::Md5).as_ref(), Some(&md5));
        assert_eq!(storage.stat(&path("f")).unwrap().tag, committed.metadata.tag);
    }
    for change in changes {
        for computed_later in [false, true] {
            let file = open(storage, "f", &at_once(Disposition::Replace)).unwrap();
            assert_eq!(kept(storage, "f", ADLER32), None);
            file.write_at(b"one", 0).unwrap();
            file.close(if computed_later { &[] } else { std::slice::from_ref(&sum) }).unwrap();
            let Opened::File(reader) = storage.open(&path("f")).unwrap() else { panic!("a file") };
            if computed_later {
                reader.keep_checksum(&sum).unwrap();
            }
            let file = open(storage, "f", &at_once(Disposition::Existing)).unwrap();
            assert_eq!(kept(storage, "f", ADLER32).as_ref(), Some(&sum), "nothing changed so far");
            change(file.as_ref()).unwrap();
            // Of the same length, and perhaps within one tick of the clock.
            assert_eq!(kept(storage, "f", ADLER32), None);
            drop(file);
            assert_eq!(kept(storage, "f", ADLER32), None);
            assert_eq!(reader.kept_checksum(ADLER32), None);
        }
    }
}

fn a_reader_keeps_nothing_of_other_bytes(storage: &dyn Storage) {
    let reader = || match storage.open(&path("f")).unwrap() {
        Opened::File(reader) => reader,
        Opened::Directory => panic!("a file"),
    };
    // Often enough to meet all that happens within one tick of the clock.
    for round in 0..50 {
        let file = open(storage, "f", &at_once(Disposition::Replace)).unwrap();
        file.write_at(b"one", 0).unwrap();
        let during = reader();
        during.keep_checksum(&Checksum::adler32(1)).unwrap();
        file.write_at(b"two", 0).unwrap();
        assert_eq!(kept(storage, "f", ADLER32), None, "{round}");
        file.close(&[]).unwrap();
        during.keep_checksum(&Checksum::adler32(1)).unwrap();
        assert_eq!(kept(storage, "f", ADLER32), None, "{round}");
        let before = reader();
        let tag = storage.stat(&path("f")).unwrap().tag;
        let file = open(storage, "f", &at_once(Disposition::Existing)).unwrap();
        file.write_at(b"six", 0).unwrap();
        file.close(&[]).unwrap();
        before.keep_checksum(&Checksum::adler32(2)).unwrap();
        assert_eq!(kept(storage, "f", ADLER32), None, "{round}");
        assert_ne!(storage.stat(&path("f")).unwrap().tag, tag, "other bytes, another tag: {round}");
        reader().keep_checksum(&Checksum::adler32(3)).unwrap();
        assert_eq!(kept(storage, "f", ADLER32), Some(Checksum::adler32(3)), "{round}");
    }
}

fn two_change_one_file(storage: &dyn Storage) {
    let sum = [Checksum::adler32(7)];
    let first = open(storage, "f", &at_once(Disposition::New)).unwrap();
    first.write_at(b"one", 0).unwrap();
    let second = open(storage, "f", &at_once(Disposition::Existing)).unwrap();
    second.write_at(b"w", 1).unwrap();
    first.write_at(b"e", 2).unwrap();
    assert_eq!(contents(first.as_ref()), b"owe");
    first.close(&sum).unwrap();
    assert_eq!(kept(storage, "f", ADLER32), None, "these are not the bytes of the first alone");
    second.write_at(b"more", 3).unwrap();
    second.close(&sum).unwrap();
    assert_eq!(kept(storage, "f", ADLER32), None, "nor of the second");
    // One after the other.
    let file = open(storage, "f", &at_once(Disposition::Replace)).unwrap();
    file.write_at(b"two", 0).unwrap();
    file.close(&sum).unwrap();
    assert_eq!(kept(storage, "f", ADLER32), Some(sum[0].clone()));
}

fn permissions(storage: &dyn Storage) {
    let mode = |at: &str| storage.look(&path(at)).unwrap().mode;
    for options in [at_once(Disposition::Replace), when_closed(Disposition::Replace)] {
        for (wanted, given) in [(0o640, 0o640), (0, 0o600), (0o7700, 0o700), (0o400, 0o600)] {
            let file = open(storage, "f", &WriteOptions { mode: Some(wanted), ..options }).unwrap();
            file.close(&[]).unwrap();
            assert_eq!(mode("f"), 0o100_000 | given, "{wanted:o} {options:?}");
            storage.remove(&path("f"), &Expectation::Anything).unwrap();
        }
    }
    write(storage, "f", b"one", &Expectation::Anything).unwrap();
    let uploaded = mode("f");
    open(storage, "g", &at_once(Disposition::New)).unwrap().close(&[]).unwrap();
    assert_eq!(mode("g"), uploaded);
    for wanted in [0o444, 0o7750, 0o600, 0o777] {
        storage.set_mode(&path("f"), wanted).unwrap();
        assert_eq!(mode("f"), 0o100_000 | (wanted & 0o777));
        storage.set_mode(&path("sub"), wanted).unwrap();
        assert_eq!(mode("sub"), 0o040_000 | (wanted & 0o777));
    }
    assert_eq!(read(storage, "f").unwrap(), b"one");
    // Replacing the bytes leaves them alone.
    storage.set_mode(&path("f"), 0o640).unwrap();
    let replacing = WriteOptions { mode: Some(0o600), ..at_once(Disposition::Replace) };
    open(storage, "f", &replacing).unwrap().close(&[]).unwrap();
    assert_eq!(mode("f"), 0o100_640);
    assert!(matches!(storage.set_mode(&path("none"), 0o600), Err(StoreError::NotFound)));
    assert!(matches!(storage.set_mode(&path("f/g"), 0o600), Err(StoreError::NotFound)));
    assert!(matches!(storage.set_mode(&ObjectPath::root(), 0), Err(StoreError::InUse)));
}

fn attributes(storage: &dyn Storage) {
    write(storage, "f", b"one", &Expectation::Anything).unwrap();
    if matches!(storage.attribute_names(&path("f")), Err(StoreError::Unsupported)) {
        eprintln!("skipped: the file system has no attributes");
        return;
    }
    for at in [path("f"), path("sub"), ObjectPath::root()] {
        assert!(storage.attribute_names(&at).unwrap().is_empty());
        let get = |name: &[u8]| storage.attribute(&at, name).unwrap();
        let set = |name: &[u8], value: &[u8], new| storage.set_attribute(&at, name, value, new);
        assert_eq!(get(b"a"), None);
        set(b"a", b"1", true).unwrap();
        assert!(matches!(set(b"a", b"2", true), Err(StoreError::Unexpected)));
        assert_eq!(get(b"a").as_deref(), Some(&b"1"[..]));
        set(b"a", b"longer", false).unwrap();
        // Whatever bytes there are, and names that mean something elsewhere.
        for name in [&b"\xff\xfe"[..], b"user.x", b"XrdCks.adler32", b"a.b c/=%", b"U."] {
            set(name, b"\0\xff\n", false).unwrap();
            assert_eq!(get(name).as_deref(), Some(&b"\0\xff\n"[..]));
        }
        set(b"empty", b"", true).unwrap();
        assert_eq!(get(b"empty").as_deref(), Some(&b""[..]));
        assert_eq!(get(b"A"), None);
        assert!(storage.remove_attribute(&at, b"a").unwrap());
        assert!(!storage.remove_attribute(&at, b"a").unwrap());
        let mut names = storage.attribute_names(&at).unwrap();
        names.sort();
        assert_eq!(names, [&b"U."[..], b"XrdCks.adler32", b"a.b c/=%", b"empty", b"user.x", b"\xff\xfe"]);
        for name in names {
            assert!(storage.remove_attribute(&at, &name).unwrap());
        }
    }
    // They go with the file, stay when its bytes are changed in place, and are not those of another one.
    storage.set_attribute(&path("f"), b"a", b"1", true).unwrap();
    storage.rename(&path("f"), &path("sub/f"), Overwrite::Nothing, &Expectation::Anything).unwrap();
    open(storage, "sub/f", &at_once(Disposition::Replace)).unwrap().close(&[]).unwrap();
    assert_eq!(storage.attribute_names(&path("sub/f")).unwrap(), [b"a"]);
    write(storage, "sub/f", b"two", &Expectation::Anything).unwrap();
    assert!(storage.attribute_names(&path("sub/f")).unwrap().is_empty());
    for nowhere in ["none", "sub/f/g"] {
        let at = path(nowhere);
        assert!(matches!(storage.attribute_names(&at), Err(StoreError::NotFound)));
        assert!(matches!(storage.attribute(&at, b"a"), Err(StoreError::NotFound)));
        assert!(matches!(storage.set_attribute(&at, b"a", b"", false), Err(StoreError::NotFound)));
        assert!(matches!(storage.remove_attribute(&at, b"a"), Err(StoreError::NotFound)));
    }
}

fn attributes_have_limits(storage: &dyn Storage) {
    write(storage, "f", b"one", &Expectation::Anything).unwrap();
    if matches!(storage.attribute_names(&path("f")), Err(StoreError::Unsupported)) {
        return;
    }
    let set = |name: &[u8], value: &[u8]| storage.set_attribute(&path("f"), name, value, false);
    let longest = [b'n'; 248];
    set(&longest, b"1").unwrap();
    assert_eq!(storage.attribute_names(&path("f")).unwrap(), [longest]);
    assert!(matches!(set(&[b'n'; 249], b"1"), Err(StoreError::NameTooLong)));
    for never in [&b""[..], b"a\0b"] {
        assert!(matches!(set(never, b"1"), Err(StoreError::Unsupported)));
        assert!(matches!(storage.attribute(&path("f"), never), Err(StoreError::Unsupported)));
        assert!(matches!(storage.remove_attribute(&path("f"), never), Err(StoreError::Unsupported)));
    }
    assert!(matches!(set(b"a", &vec![0; 65_537]), Err(StoreError::TooLarge)));
    // Not every file system has room for that.
    match set(b"a", &vec![7; 65_536]) {
        Ok(()) => {
            assert!(storage.attribute(&path("f"), b"a").unwrap().unwrap() == vec![7; 65_536]);
        }
        Err(error) => assert!(
            matches!(error, StoreError::NoSpace | StoreError::OverQuota | StoreError::TooLarge),
            "{error:?}"
        ),
    }
    // With checksums kept.
    let file = open(storage, "sub/g", &at_once(Disposition::New)).unwrap();
    file.write_at(b"one", 0).unwrap();
    file.close(&[Checksum::adler32(7)]).unwrap();
    assert!(storage.attribute_names(&path("sub/g")).unwrap().is_empty());
    storage.set_attribute(&path("sub/g"), b"a", b"1", true).unwrap();
    assert_eq!(kept(storage, "sub/g", ADLER32), Some(Checksum::adler32(7)));
}

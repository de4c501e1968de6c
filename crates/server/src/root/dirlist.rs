//! Listings of directories, made while they are sent.

use std::collections::VecDeque;
use std::io;

use gridlane_auth::Operation;
use gridlane_core::{ChecksumKind, limits};
use gridlane_store::{BoxFuture, DirectoryEntry, Entries, Metadata, Names, StoreResult};
use gridlane_xrd::PathArg;
use gridlane_xrd::answer::{
    STAT_SENTINEL, StatText, finish_dirlist, listable, unlistable, write_entry, write_name,
};
use gridlane_xrd::flags::DirlistOptions;
use gridlane_xrd::request::Dirlist;

use super::places::{Context, Places as _, allowed};
use super::query::kind_named;
use super::stat::{Rights, stat_text, text_above};
use crate::digests::Digests;
use crate::export::{Place, Spot};
use gridlane_front::pieces::Pieces;
use gridlane_front::root::answer::{Answer, Failure, Outcome};
use gridlane_share::budget::Lease;

const ACT: &str = "open directory";

/// Room for the entry that a part ends with.
const PIECE_ROOM_BYTES: usize = 1024;

/// Answers `dirlist`.
pub(crate) async fn dirlist(context: &Context, request: &Dirlist) -> Outcome {
    let wants_checksums = request.options.has(DirlistOptions::CHECKSUM);
    let checksum = if wants_checksums { Some(kind_named(&request.about)?) } else { None };
    let has_stat = wants_checksums || request.options.has(DirlistOptions::STAT);
    let form = Form { has_stat, checksum };
    let mut first = if has_stat { STAT_SENTINEL.to_vec() } else { Vec::new() };
    if let Place::Above(names) = context.place(&request.about)? {
        for name in names.iter().filter(|name| listable(name).is_none()) {
            form.write(&mut first, name, text_above, "none");
        }
        finish_dirlist(&mut first);
        return Ok(Answer::Ok(first));
    }
    let spot = context.spot(&request.about, ACT, Operation::Stat)?;
    allowed(&spot, &request.about, ACT, Operation::List)?;
    let failed = |error| failed(&request.about, &error);
    // A directory that is being listed is a descriptor as well, for as long as its client takes.
    let room = context.service().open_files.room()?;
    let listed = match has_stat {
        true => Listed::Entries(spot.storage().entries(&spot.object).await.map_err(failed)?),
        false => Listed::Names(spot.storage().names(&spot.object).await.map_err(failed)?),
    };
    let rights = Rights::of(&spot);
    // A client that may only list a directory is not told the contents of its files.
    let digests = checksum.filter(|_| rights.read).map(|_| context.service().digests.clone());
    let waiting = VecDeque::new();
    let mut lister =
        Lister { spot, rights, form, digests, listed, waiting, next: None, goes_on: false, _room: room };
    lister.next = lister.advance().await.map_err(failed)?;
    Ok(match lister.fill(&mut first).await.map_err(failed)? {
        true => Answer::Pieces { first, rest: Box::new(lister) },
        false => Answer::Ok(first),
    })
}

fn failed(about: &PathArg, error: &gridlane_store::StoreError) -> Failure {
    Failure::of_store(ACT, &about.path, error)
}

/// The form of each entry.
#[derive(Clone, Copy)]
struct Form {
    has_stat: bool,
    checksum: Option<ChecksumKind>,
}

impl Form {
    fn write(self, out: &mut Vec<u8>, name: &[u8], stat: impl FnOnce() -> StatText, checksum: &str) {
        match (self.has_stat, self.checksum) {
            (false, _) => write_name(name, out),
            (true, None) => write_entry(name, &stat(), None, out),
            (true, Some(kind)) => {
                write_entry(name, &stat(), Some(&format!("{}:{checksum}", kind.name())), out);
            }
        }
    }
}

/// A name, and its metadata if that is wanted.
struct Entry {
    name: Vec<u8>,
    metadata: Option<Metadata>,
    checksum: Option<String>,
}

/// The entries of a storage.
enum Listed {
    Entries(Entries),
    Names(Names),
}

/// A listing that is being sent.
struct Lister {
    spot: Spot,
    rights: Rights,
    form: Form,
    /// The known checksums, if they are wanted.
    digests: Option<Digests>,
    listed: Listed,
    /// Entries that were read and not written yet.
    waiting: VecDeque<Entry>,
    /// The next entry: only the last one ends without a line break, so one has to be known in advance.
    next: Option<Entry>,
    /// It is more than one part.
    goes_on: bool,
    _room: Lease,
}

impl Lister {
    /// Appends entries until there is a piece; returns true if there are more.
    async fn fill(&mut self, out: &mut Vec<u8>) -> StoreResult<bool> {
        let end = out.len() + limits::ROOT_LISTING_PIECE_BYTES;
        // Most listings are short; one that goes on has a first part already.
        if self.goes_on {
            out.reserve(limits::ROOT_LISTING_PIECE_BYTES + PIECE_ROOM_BYTES);
        }
        while let Some(entry) = self.next.take() {
            self.write(out, &entry);
            self.next = self.advance().await?;
            if self.next.is_some() && out.len() >= end {
                self.goes_on = true;
                return Ok(true);
            }
        }
        finish_dirlist(out);
        Ok(false)
    }

    /// The next entry.
    async fn advance(&mut self) -> StoreResult<Option<Entry>> {
        if self.waiting.is_empty() {
            let page = self.read_page().await?;
            self.waiting.extend(page);
        }
        Ok(self.waiting.pop_front())
    }

    async fn read_page(&mut self) -> StoreResult<Vec<Entry>> {
        let entries = match &mut self.listed {
            Listed::Names(names) => {
                let entry = |name| Entry { name, metadata: None, checksum: None };
                return Ok(names.next_page().await?.into_iter().map(entry).collect());
            }
            Listed::Entries(entries) => entries.next_page().await?,
        };
        let entry = |entry: DirectoryEntry| Entry {
            name: entry.name,
            metadata: Some(entry.metadata),
            checksum: None,
        };
        let mut page: Vec<Entry> = entries.into_iter().map(entry).collect();
        if let (Some(digests), Some(kind)) = (&self.digests, self.form.checksum) {
            let (mut places, mut files) = (Vec::new(), Vec::new());
            for (place, entry) in page.iter().enumerate() {
                let file = entry.metadata.as_ref().filter(|metadata| !metadata.is_directory());
                if let (Some(metadata), Some(path)) = (file, self.spot.object.join(&entry.name)) {
                    places.push(place);
                    files.push((path, metadata.clone()));
                }
            }
            // As a listing has them: those that need no reading of the file.
            let known = digests.of_entries(self.spot.storage(), files, &[kind]).await;
            for (place, known) in places.into_iter().zip(known) {
                page[place].checksum = known.first().map(|checksum| checksum.hex());
            }
        }
        Ok(page)
    }

    fn write(&self, out: &mut Vec<u8>, Entry { name, metadata, checksum }: &Entry) {
        if let Some(instead) = listable(name) {
            return self.form.write(out, &instead, unlistable, "none");
        }
        let Some(metadata) = metadata else { return write_name(name, out) };
        let stat = || stat_text(metadata, self.rights_of(name), false);
        self.form.write(out, name, stat, checksum.as_deref().unwrap_or("none"));
    }

    /// More may be granted to an entry than to its directory, and never less.
    fn rights_of(&self, name: &[u8]) -> Rights {
        // Where nothing is left to be granted, names need not become paths.
        let is_less = !self.rights.are_all(self.spot.export.allow_write);
        match is_less.then(|| self.spot.object.join(name)).flatten() {
            Some(object) => Rights::of(&self.spot.at(object)),
            None => self.rights,
        }
    }
}

impl Pieces for Lister {
    fn next<'a>(&'a mut self, out: &'a mut Vec<u8>) -> BoxFuture<'a, io::Result<bool>> {
        Box::pin(async move { self.fill(out).await.map_err(io::Error::other) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::{
        arg, bytes, code, context, context_of, export_at, path, text, wait, writable,
    };
    use gridlane_core::Checksum;
    use gridlane_store::{MemoryStorage, ObjectPath, Opened};
    use gridlane_xrd::ErrorCode;
    use gridlane_xrd::answer::{DirlistReader, Entry};

    fn list(context: &Context, path: &str, options: DirlistOptions) -> Outcome {
        wait(dirlist(context, &Dirlist { about: arg(path), options }))
    }

    fn entries(context: &Context, path: &str, options: DirlistOptions) -> Vec<Entry> {
        let mut entries = Vec::new();
        DirlistReader::default().read(&bytes(list(context, path, options)), true, &mut entries).unwrap();
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        entries
    }

    #[test]
    fn names_and_their_metadata() {
        let context = context();
        let plain = entries(&context, "/d/", DirlistOptions::NONE);
        let names: Vec<&[u8]> = plain.iter().map(|entry| entry.name.as_slice()).collect();
        assert_eq!((names, &plain[0].stat), (vec![&b"e"[..], b"f"], &None));
        let known = entries(&context, "/d", DirlistOptions::STAT);
        let stats: Vec<_> = known.iter().map(|entry| entry.stat.as_ref().unwrap()).collect();
        assert!(stats[0].is_directory() && stats[1].size_bytes == 5);
        assert_eq!(text(list(&context, "/d/e", DirlistOptions::NONE)), "");
        assert_eq!(text(list(&context, "/d/e", DirlistOptions::STAT)), ".\n0 0 0 0\0");
        // As in XRootD 5.5.3.
        assert_eq!(entries(&context, "/d", DirlistOptions::STATX), plain);
        assert_eq!(code(list(&context, "/nope", DirlistOptions::NONE)), ErrorCode::NOT_FOUND);
        let (code, text) = crate::root::testing::error(list(&context, "/d/f", DirlistOptions::NONE));
        assert_eq!(
            (code, text.as_str()),
            (ErrorCode::FS_ERROR, "Unable to open directory /d/f; not a directory")
        );
    }

    #[test]
    fn directories_above_exports() {
        let context = context_of(vec![export_at("/a/b"), export_at("/a/c")], |_| {});
        assert_eq!(text(list(&context, "/a", DirlistOptions::NONE)), "b\nc\0");
        let known = entries(&context, "/", DirlistOptions::CHECKSUM);
        assert!(known.len() == 1 && known[0].stat.as_ref().unwrap().is_directory());
    }

    #[test]
    fn checksums_that_are_known() {
        let context = context();
        let checksums = || entries(&context, "/d?cks.type=MD5", DirlistOptions::CHECKSUM);
        assert!(checksums().iter().all(|entry| entry.checksum.is_none() && entry.stat.is_some()));
        let raw = text(list(&context, "/d/?cks.type=md5", DirlistOptions::CHECKSUM));
        assert!(raw.contains(" [ md5:none ]"), "{raw}");
        let spot = context.spot(&arg("/d/f"), "", Operation::Read).unwrap();
        let Opened::File(object) = wait(spot.storage().open(&path("d/f"))).unwrap() else { panic!() };
        let md5 = Checksum::from_hex(ChecksumKind::Md5, "5d41402abc4b2a76b9719d911017c592").unwrap();
        context.service().digests.remember(object.metadata(), md5);
        let expected = (b"md5".to_vec(), b"5d41402abc4b2a76b9719d911017c592".to_vec());
        assert_eq!(checksums()[1].checksum, Some(expected));
        let (code, text) =
            crate::root::testing::error(list(&context, "/d?cks.type=foo", DirlistOptions::CHECKSUM));
        assert_eq!((code, text.as_str()), (ErrorCode::SERVER_ERROR, "foo checksum not supported."));
        // A client that does not ask for checksums is not told that there is none such.
        assert_eq!(entries(&context, "/d?cks.type=foo", DirlistOptions::STAT).len(), 2);
    }

    #[test]
    fn a_long_one_comes_in_pieces() {
        let storage = MemoryStorage::new();
        for number in 0..30_000 {
            storage.add_file(&path(&format!("file-{number:06}")), Vec::new());
        }
        storage.add_file(&ObjectPath::new([&b"two\nlines"[..]]).unwrap(), Vec::new());
        let context = writable(storage);
        for options in [DirlistOptions::NONE, DirlistOptions::STAT] {
            let Answer::Pieces { first, mut rest } = list(&context, "/", options).unwrap() else { panic!() };
            assert_eq!(context.front().budgets.open_files.used(), 1);
            let (mut found, mut reader) = (Vec::new(), DirlistReader::default());
            let mut piece = first;
            loop {
                assert!(piece.len() < limits::ROOT_LISTING_PIECE_BYTES + 1000 && !piece.contains(&0));
                assert_eq!(piece.last(), Some(&b'\n'), "cut between entries");
                reader.read(&piece, false, &mut found).unwrap();
                piece = Vec::new();
                if !wait(rest.next(&mut piece)).unwrap() {
                    break;
                }
            }
            assert_eq!(piece.iter().position(|byte| *byte == 0), Some(piece.len() - 1));
            reader.read(&piece, true, &mut found).unwrap();
            assert_eq!(found.len(), 30_001);
            let odd: Vec<_> = found.iter().filter(|entry| entry.name.starts_with(b"two")).collect();
            assert!(odd.len() == 1 && odd[0].name == "two\u{fffd}lines".as_bytes());
            assert_eq!(odd[0].is_unlistable(), options == DirlistOptions::STAT);
        }
    }
}

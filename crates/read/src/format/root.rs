//! ROOT's files (ROOT, io/doc/TFile/header.md, tdirectory.md, tkey.md; tree/ntuple/doc/BinaryFormatSpecification.md).
//!
//! The header says where the streamer information and the list of keys are. Keys say where the headers of trees are, and the anchors
//! of RNTuples, which say where their headers and footers are. In a file that was written at once all of it is at the end;
//! in a merged one it may be anywhere.

use gridlane_core::ByteRange;

use super::{Fields, File};

/// Bytes of a directory's record that are looked at.
const DIRECTORY_BYTES: u64 = 42;
/// Keys of a directory that are looked at.
const KEYS_MAX: u32 = 4096;
/// Trees and RNTuples of a file that are looked for.
const TREES_MAX: usize = 32;
/// Bytes of an anchor that are looked at: its places come before its checksum.
const ANCHOR_BYTES: u64 = 70;
/// Classes of trees.
const TREES: [&[u8]; 4] = [b"TTree", b"TNtuple", b"TNtupleD", b"TChain"];
/// Classes of the anchors of RNTuples, today's first.
const ANCHORS: [&[u8]; 2] = [b"ROOT::RNTuple", b"ROOT::Experimental::RNTuple"];

/// An object of a directory.
struct Key<'a> {
    at: u64,
    bytes: u32,
    object_bytes: u32,
    key_bytes: u16,
    class: &'a [u8],
    name: &'a [u8],
}

/// Streamer information, list of keys, and what that leads to.
pub(super) fn follow<B: FnMut(ByteRange) -> Option<Vec<u8>>>(head: &[u8], file: &mut File<B>) -> Option<()> {
    let mut fields = Fields { bytes: head, at: 4 };
    let version = fields.u32()?;
    let begin = fields.u32()?;
    let is_large = version >= 1_000_000;
    let _end = fields.place(is_large)?;
    // The list of free segments is for writers.
    let _free_at = fields.place(is_large)?;
    let _free_bytes = fields.u32()?;
    let _free_count = fields.u32()?;
    let name_bytes = fields.u32()?;
    let _units = fields.take(1)?;
    let _compression = fields.u32()?;
    let info_at = fields.place(is_large)?;
    let info_bytes = fields.u32()?;
    file.want(info_at, u64::from(info_bytes));
    // The file's name is in front of it.
    let directory_at = u64::from(begin.checked_add(name_bytes)?);
    let directory = file.want_up_to(directory_at, DIRECTORY_BYTES)?;
    let directory = file.read(directory)?;
    let (keys_at, keys_bytes) = keys_of(&directory)?;
    let keys = file.want(keys_at, u64::from(keys_bytes))?;
    let keys = file.read(keys)?;
    let found = trees(&keys);
    for key in &found {
        if let Some(range) = file.want(key.at, u64::from(key.bytes))
            && ANCHORS.contains(&key.class)
        {
            anchor(key, range, file);
        }
    }
    Some(())
}

/// The place of the list of keys of a directory, and its length in bytes.
fn keys_of(directory: &[u8]) -> Option<(u64, u32)> {
    let mut directory = Fields { bytes: directory, at: 0 };
    let is_large = directory.u16()? > 1000;
    let _created = directory.u32()?;
    let _modified = directory.u32()?;
    let keys_bytes = directory.u32()?;
    let _name_bytes = directory.u32()?;
    let _here = directory.place(is_large)?;
    let _parent = directory.place(is_large)?;
    Some((directory.place(is_large)?, keys_bytes))
}

/// The trees and the RNTuples of a list of keys, each in its newest version, which is the first that is listed.
fn trees(keys: &[u8]) -> Vec<Key<'_>> {
    let mut fields = Fields { bytes: keys, at: 0 };
    let mut found: Vec<Key<'_>> = Vec::new();
    let Some(count) = key(&mut fields).and_then(|_| fields.u32()) else { return found };
    for _ in 0..count.min(KEYS_MAX) {
        let Some(key) = key(&mut fields) else { break };
        if !TREES.contains(&key.class) && !ANCHORS.contains(&key.class) {
            continue;
        }
        if !found.iter().any(|other| other.name == key.name && other.class == key.class) {
            found.push(key);
        }
        if found.len() == TREES_MAX {
            break;
        }
    }
    found
}

/// One key.
fn key<'a>(fields: &mut Fields<'a>) -> Option<Key<'a>> {
    let bytes = fields.u32()?;
    let is_large = fields.u16()? > 1000;
    let object_bytes = fields.u32()?;
    let _date = fields.u32()?;
    let key_bytes = fields.u16()?;
    let _cycle = fields.u16()?;
    let at = fields.place(is_large)?;
    let _directory = fields.place(is_large)?;
    let class = text(fields)?;
    let name = text(fields)?;
    let _title = text(fields)?;
    Some(Key { at, bytes, object_bytes, key_bytes, class, name })
}

/// A text behind its length.
fn text<'a>(fields: &mut Fields<'a>) -> Option<&'a [u8]> {
    let len = match fields.take(1)? {
        [255] => usize::try_from(fields.u32()?).ok()?,
        short => usize::from(*short.first()?),
    };
    fields.take(len)
}

/// Header and footer of an RNTuple, which its anchor names; that is not compressed.
fn anchor<B: FnMut(ByteRange) -> Option<Vec<u8>>>(
    key: &Key<'_>,
    range: ByteRange,
    file: &mut File<B>,
) -> Option<()> {
    let is_plain = key.bytes == key.object_bytes.checked_add(u32::from(key.key_bytes))?;
    if !is_plain || u64::from(key.object_bytes) < ANCHOR_BYTES {
        return None;
    }
    let bytes = file.read(range)?;
    // Behind the length of the object, the version of its class, and four numbers of versions.
    let mut fields = Fields { bytes: &bytes, at: usize::from(key.key_bytes) + 6 + 8 };
    for _ in 0..2 {
        let (at, bytes, _unpacked) = (fields.u64()?, fields.u64()?, fields.u64()?);
        file.want(at, bytes);
    }
    Some(())
}

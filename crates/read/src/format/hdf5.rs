//! HDF5 (HDF5 file format specification, II.A: superblock; III.A: B-trees, symbol tables).
//!
//! Files that were written at once have most of their metadata at the beginning. Groups of the old kind are followed from the
//! root to the headers of its objects; those of the new kind have their links in heaps, which are not looked into.

use gridlane_core::ByteRange;

use super::File;

/// Bytes from the beginning on in which metadata are crowded.
const CROWD_BYTES: u64 = 256 * 1024;
/// Bytes at an address that are worth bringing: an object header with its first messages, a node.
const BLOCK_BYTES: u64 = 4096;
/// Bytes of the header of a data set.
const OBJECT_BYTES: u64 = 1024;
/// Bytes of a node of a group's B-tree, of which there are sixteen children unless a program wants it otherwise.
const NODE_BYTES: u64 = 544;
/// Bytes of a node of a symbol table with its eight entries.
const SYMBOLS_BYTES: u64 = 328;
/// Levels of a B-tree that are followed.
const LEVELS_MAX: u8 = 2;
/// Children of a node that are followed.
const CHILDREN_MAX: usize = 32;

/// The crowd at the beginning, the root group, and where that leads.
pub(super) fn follow<B: FnMut(ByteRange) -> Option<Vec<u8>>>(head: &[u8], file: &mut File<B>) -> Option<()> {
    let offsets_are_8 = |at: usize| (head.get(at) == Some(&8)).then_some(());
    match *head.get(8)? {
        version @ (0 | 1) => {
            offsets_are_8(13)?;
            // Behind base, free space, end and driver addresses: the root's entry, link name first.
            let entry = if version == 0 { 24 } else { 28 } + 4 * 8;
            file.want_up_to(place(head, entry + 8)?, BLOCK_BYTES);
            file.want_up_to(0, CROWD_BYTES);
            let is_cached = head.get(entry + 16) == Some(&1);
            if is_cached {
                file.want_up_to(place(head, entry + 32)?, BLOCK_BYTES);
                tree(place(head, entry + 24)?, LEVELS_MAX, file)?;
            }
        }
        2 | 3 => {
            offsets_are_8(9)?;
            file.want_up_to(place(head, 12 + 3 * 8)?, BLOCK_BYTES);
            file.want_up_to(0, CROWD_BYTES);
        }
        _ => return None,
    }
    Some(())
}

/// An address: little-endian.
fn place(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// The number of entries that stands at `at`.
fn entries(bytes: &[u8], at: usize) -> Option<usize> {
    let count = u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?);
    Some(usize::from(count).min(CHILDREN_MAX))
}

/// The B-tree of a group: its nodes, symbol tables, and the headers of the objects in these. A part that is not there does not
/// keep the others from being followed.
fn tree<B: FnMut(ByteRange) -> Option<Vec<u8>>>(at: u64, levels: u8, file: &mut File<B>) -> Option<()> {
    let node = file.want_up_to(at, NODE_BYTES)?;
    let node = file.read(node)?;
    if !node.starts_with(b"TREE") || node.get(4) != Some(&0) {
        return None;
    }
    let is_leaf = node.get(5) == Some(&0);
    for child in 0..entries(&node, 6)? {
        // Keys and children take turns behind the head of 24 bytes, a key first.
        let Some(child_at) = place(&node, 24 + 16 * child + 8) else { break };
        if is_leaf {
            symbols(child_at, file);
        } else if levels > 0 {
            tree(child_at, levels - 1, file);
        }
    }
    Some(())
}

/// The objects of a node of a symbol table.
fn symbols<B: FnMut(ByteRange) -> Option<Vec<u8>>>(at: u64, file: &mut File<B>) -> Option<()> {
    let node = file.want_up_to(at, SYMBOLS_BYTES)?;
    let node = file.read(node)?;
    if !node.starts_with(b"SNOD") {
        return None;
    }
    for entry in 0..entries(&node, 6)? {
        let Some(object_at) = place(&node, 8 + 40 * entry + 8) else { break };
        file.want_up_to(object_at, OBJECT_BYTES);
    }
    Some(())
}

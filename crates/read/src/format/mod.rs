//! Formats of research data: what their first and last bytes say about the reads that will follow.
//!
//! A file's own words about where its metadata are ([`outline`]) are followed as far as the bytes are there: from the head to the
//! list of keys, from there to the header of a tree. None is required or believed. What is named must be in the file and not too
//! large, pieces are few, and all of them together are bounded by the reader's allowance
//! ([`READ_FORMAT_BYTES`]); where a file is none of these, or broken, there are none.
//!
//! Two formats have no part here. Zarr's metadata are objects of their own, which its readers fetch whole; a shard has no mark, and
//! its index is at its end, which comes with the opening. The windows of streams need no alignment to MiniSEED's records: both are
//! powers of two.

mod hdf5;
mod miniseed;
mod netcdf;
mod root;
mod tail;

use gridlane_core::ByteRange;
use gridlane_core::limits::READ_FORMAT_BYTES;

pub use miniseed::record_bytes as miniseed_record_bytes;

/// Bytes at the beginning that tell every format.
pub(crate) const MARK_BYTES: u64 = 512;
/// Pieces that a file may name.
const PIECES_MAX: usize = 128;

/// A format that is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// ROOT's `TFile`, with trees or RNTuples.
    Root,
    /// Apache Parquet.
    Parquet,
    /// HDF5, and with it NetCDF-4.
    Hdf5,
    /// NetCDF's classic formats.
    NetCdf,
    /// MiniSEED, version 2.
    MiniSeed,
    /// An archive of PKZIP's format: Zarr's store of that kind, NumPy's `npz`.
    Zip,
}

impl Format {
    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Format::Root => "ROOT",
            Format::Parquet => "Parquet",
            Format::Hdf5 => "HDF5",
            Format::NetCdf => "NetCDF",
            Format::MiniSeed => "MiniSEED",
            Format::Zip => "zip",
        }
    }
}

/// The format of a file that begins with these bytes.
pub fn recognised(head: &[u8]) -> Option<Format> {
    let marks = [
        (&b"root"[..], Format::Root),
        (b"PAR1", Format::Parquet),
        (b"\x89HDF\r\n\x1a\n", Format::Hdf5),
        (b"CDF\x01", Format::NetCdf),
        (b"CDF\x02", Format::NetCdf),
        (b"CDF\x05", Format::NetCdf),
        (b"PK\x03\x04", Format::Zip),
    ];
    let marked = marks.iter().find(|(mark, _)| head.starts_with(mark)).map(|(_, format)| *format);
    marked.or_else(|| miniseed_record_bytes(head).map(|_| Format::MiniSeed))
}

/// The places of a file's metadata, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// The format, if it is one of those that are known.
    pub format: Option<Format>,
    /// The ranges that a reader of the format will want before anything else, as the file names them; all are in it.
    pub wanted: Vec<ByteRange>,
    /// Bytes without which nothing more is known: one of `wanted`, or the head.
    pub lacks: Option<ByteRange>,
}

/// Follows what a file says of its metadata. `bytes` gives those of a range, all of them, if they are there.
pub fn outline(size_bytes: u64, bytes: impl FnMut(ByteRange) -> Option<Vec<u8>>) -> Outline {
    let mut file = File { size_bytes, bytes, found: Outline::default() };
    let Some(head) = file.read(ByteRange::new(0, size_bytes.min(MARK_BYTES))) else { return file.found };
    file.found.format = recognised(&head);
    let _ = match file.found.format {
        Some(Format::Root) => root::follow(&head, &mut file),
        Some(Format::Parquet) => tail::parquet(&mut file),
        Some(Format::Zip) => tail::zip(&mut file),
        Some(Format::Hdf5) => hdf5::follow(&head, &mut file),
        Some(Format::NetCdf) => netcdf::follow(&mut file),
        Some(Format::MiniSeed) | None => None,
    };
    file.found
}

/// A file of which some bytes are known.
struct File<B> {
    size_bytes: u64,
    bytes: B,
    found: Outline,
}

impl<B: FnMut(ByteRange) -> Option<Vec<u8>>> File<B> {
    /// A range will be wanted, if the file has it and it is no larger than such things are.
    fn want(&mut self, start: u64, len: u64) -> Option<ByteRange> {
        let end = start.checked_add(len)?;
        let range = ByteRange::new(start, end);
        let is_possible = len > 0 && end <= self.size_bytes && len <= READ_FORMAT_BYTES;
        if !is_possible || self.found.wanted.len() >= PIECES_MAX {
            return None;
        }
        self.found.wanted.push(range);
        Some(range)
    }

    /// The same of a block that the end of the file may cut.
    fn want_up_to(&mut self, start: u64, len: u64) -> Option<ByteRange> {
        self.want(start, len.min(self.size_bytes.checked_sub(start)?))
    }

    /// The bytes of a range; if they are not there they are what the outline lacks first.
    fn read(&mut self, range: ByteRange) -> Option<Vec<u8>> {
        let found = (self.bytes)(range).filter(|bytes| bytes.len() as u64 == range.len());
        if found.is_none() {
            self.found.lacks.get_or_insert(range);
        }
        found
    }
}

/// Numbers and texts, one after the other; numbers are big-endian.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let found = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(found)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    /// An offset or a length, of eight bytes or of four.
    fn place(&mut self, is_large: bool) -> Option<u64> {
        if is_large { self.u64() } else { self.u32().map(u64::from) }
    }
}

#[cfg(test)]
mod tests;

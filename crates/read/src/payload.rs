//! The bytes themselves, in the form that the application and the engine keep them in.

/// Some bytes of the file.
///
/// The planner cuts, joins and counts them, and looks at none but those that tell a [format](mod@crate::format). [`Vec<u8>`] is one;
/// an engine may have parts of a buffer that lanes share, or places in a sparse file; a simulator only their place.
pub trait Payload: Sized {
    /// Number of bytes.
    fn len_bytes(&self) -> u64;

    /// The `len` bytes from `from` on, both inside.
    fn part(&self, from: u64, len: u64) -> Self;

    /// Puts other bytes behind these.
    fn append(&mut self, behind: Self);

    /// The bytes, where they are at hand: formats are recognised by them.
    fn bytes(&self) -> Option<&[u8]> {
        None
    }

    /// Memory that it takes, in bytes: what counts against [`memory_bytes`](crate::Settings::memory_bytes).
    fn memory_bytes(&self) -> u64;
}

impl Payload for Vec<u8> {
    fn len_bytes(&self) -> u64 {
        self.len() as u64
    }

    fn part(&self, from: u64, len: u64) -> Vec<u8> {
        let start = usize::try_from(from).unwrap_or(usize::MAX).min(self.len());
        let end = usize::try_from(from.saturating_add(len)).unwrap_or(usize::MAX).min(self.len());
        self[start..end].to_vec()
    }

    fn append(&mut self, behind: Vec<u8>) {
        self.extend_from_slice(&behind);
    }

    fn bytes(&self) -> Option<&[u8]> {
        Some(self)
    }

    fn memory_bytes(&self) -> u64 {
        self.capacity() as u64
    }
}

//! Records that wait, in bounded memory: what does not fit waits in an unlinked temporary file.
//!
//! A listing is read as fast as its server sends it, for a server cuts connections that take nothing for a
//! minute, and the sum of a tree's bytes is worth knowing early. Copies are slower. What is between the two
//! is here.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;

use gridlane_core::limits::BACKLOG_RECORDS;
use gridlane_core::{Error, Result};

/// Records that can wait in a file.
pub(crate) trait Record: Sized {
    /// Appends its bytes.
    fn write(&self, to: &mut Vec<u8>);
    /// Reads what [`Record::write`] wrote and takes it away; `None` when it did not write this.
    fn read(from: &mut &[u8]) -> Option<Self>;
}

/// Which record comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The one that has waited longest.
    OldestFirst,
    /// The one that came last.
    NewestFirst,
}

/// Records that wait.
#[derive(Debug)]
pub(crate) struct Backlog<T> {
    order: Order,
    /// In front of everything in the file; with [`Order::NewestFirst`] always empty.
    oldest: VecDeque<T>,
    /// Full blocks in the file, oldest first.
    blocks: VecDeque<Block>,
    /// Behind everything in the file.
    newest: VecDeque<T>,
    file: Option<File>,
    len: u64,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    offset: u64,
    bytes: usize,
    records: usize,
}

impl<T: Record> Backlog<T> {
    pub(crate) fn new(order: Order) -> Backlog<T> {
        Backlog {
            order,
            oldest: VecDeque::new(),
            blocks: VecDeque::new(),
            newest: VecDeque::new(),
            file: None,
            len: 0,
        }
    }

    /// Number of records that wait.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Lets a record wait. An error says that the temporary file cannot be written.
    pub(crate) fn push(&mut self, record: T) -> Result<()> {
        self.newest.push_back(record);
        self.len += 1;
        match self.newest.len() >= 2 * BACKLOG_RECORDS {
            true => self.spill(),
            false => Ok(()),
        }
    }

    /// The next record. An error says that the temporary file cannot be read.
    pub(crate) fn pop(&mut self) -> Result<Option<T>> {
        let next = match self.order {
            Order::NewestFirst => {
                if self.newest.is_empty()
                    && let Some(block) = self.blocks.pop_back()
                {
                    self.newest = self.load(block)?;
                }
                self.newest.pop_back()
            }
            Order::OldestFirst => {
                if self.oldest.is_empty() {
                    self.oldest = match self.blocks.pop_front() {
                        Some(block) => self.load(block)?,
                        None => std::mem::take(&mut self.newest),
                    };
                }
                self.oldest.pop_front()
            }
        };
        self.len -= u64::from(next.is_some());
        Ok(next)
    }

    /// Puts the older half of what is in memory behind the last block.
    fn spill(&mut self) -> Result<()> {
        let mut bytes = Vec::new();
        for record in self.newest.drain(..BACKLOG_RECORDS) {
            record.write(&mut bytes);
        }
        let offset = self.blocks.back().map_or(0, |last| last.offset + last.bytes as u64);
        let failed = |cause: &std::io::Error| {
            Error::local_io("cannot keep what waits in a temporary file", cause)
                .hint("TMPDIR names the directory for temporary files")
        };
        let file = match self.file.take() {
            Some(file) => file,
            None => tempfile::tempfile().map_err(|cause| failed(&cause))?,
        };
        let file = self.file.insert(file);
        file.write_all_at(&bytes, offset).map_err(|cause| failed(&cause))?;
        self.blocks.push_back(Block { offset, bytes: bytes.len(), records: BACKLOG_RECORDS });
        Ok(())
    }

    fn load(&self, block: Block) -> Result<VecDeque<T>> {
        let mut bytes = vec![0; block.bytes];
        let damaged = || std::io::Error::from(std::io::ErrorKind::InvalidData);
        let file = self.file.as_ref().ok_or_else(damaged);
        let read = file.and_then(|file| file.read_exact_at(&mut bytes, block.offset)).and_then(|()| {
            let mut rest = &bytes[..];
            let records: Option<VecDeque<T>> = (0..block.records).map(|_| T::read(&mut rest)).collect();
            // Blocks that were read make room at the end of the file only, or when there is none left.
            if self.blocks.is_empty()
                && let Some(file) = &self.file
            {
                file.set_len(0)?;
            }
            records.ok_or_else(damaged)
        });
        read.map_err(|cause| Error::local_io("cannot read what waited in a temporary file", &cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Record for u64 {
        fn write(&self, to: &mut Vec<u8>) {
            to.extend_from_slice(&self.to_le_bytes());
        }

        fn read(from: &mut &[u8]) -> Option<u64> {
            let (number, rest) = from.split_first_chunk()?;
            *from = rest;
            Some(u64::from_le_bytes(*number))
        }
    }

    fn in_memory<T>(backlog: &Backlog<T>) -> usize {
        backlog.oldest.len() + backlog.newest.len()
    }

    #[test]
    fn all_come_back_in_order_and_few_are_in_memory() {
        const COUNT: u64 = 50_000;
        for order in [Order::OldestFirst, Order::NewestFirst] {
            let mut backlog = Backlog::new(order);
            for number in 0..COUNT {
                backlog.push(number).unwrap();
                assert!(in_memory(&backlog) <= 2 * BACKLOG_RECORDS);
            }
            assert_eq!(backlog.len(), COUNT);
            for number in 0..COUNT {
                let expected = if order == Order::OldestFirst { number } else { COUNT - 1 - number };
                assert_eq!(backlog.pop().unwrap(), Some(expected), "{order:?}");
                assert!(in_memory(&backlog) <= 3 * BACKLOG_RECORDS);
            }
            assert!(backlog.pop().unwrap().is_none() && backlog.is_empty());
            assert_eq!(backlog.file.as_ref().unwrap().metadata().unwrap().len(), 0);
        }
    }

    #[test]
    fn what_comes_while_others_wait_keeps_its_turn() {
        for order in [Order::OldestFirst, Order::NewestFirst] {
            let mut backlog = Backlog::new(order);
            let mut model = VecDeque::new();
            let mut state = 7u64;
            for number in 0..200_000u64 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // More come than go at first, then the other way round.
                let comes = (state >> 33) % 10 < if number < 100_000 { 7 } else { 3 };
                if comes {
                    backlog.push(number).unwrap();
                    model.push_back(number);
                    continue;
                }
                let expected = match order {
                    Order::OldestFirst => model.pop_front(),
                    Order::NewestFirst => model.pop_back(),
                };
                assert_eq!(backlog.pop().unwrap(), expected, "{order:?}");
            }
            assert_eq!(backlog.len(), model.len() as u64);
        }
    }
}

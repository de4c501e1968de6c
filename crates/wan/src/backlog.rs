//! Packets on their way: the bytes between their arrival at one device and their delivery at the other.

use std::collections::VecDeque;

/// Memory is taken and given back in blocks of this size, so that a megabyte of acknowledgements does not
/// cost a slot of 64 KiB each.
const BLOCK_BYTES: usize = 1024 * 1024;

/// Largest packet with its header that one read can give: 64 KiB, and room for headers.
pub(crate) const PACKET_BYTES_MAX: usize = 66 * 1024;

/// A queue of packets, each with the time of its delivery. Blocks are used again, the latest first: what
/// is nearly empty stays in the cache.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    packets: VecDeque<Entry>,
    /// Those that hold packets, the oldest first; the last is being filled.
    blocks: VecDeque<Box<[u8]>>,
    spare: Vec<Box<[u8]>>,
    /// Number of blocks that came before the first of `blocks`.
    blocks_before: u64,
    /// Bytes of the last block that are used.
    filled: usize,
    blocks_max: usize,
}

#[derive(Debug)]
struct Entry {
    due_ns: u64,
    /// Number of its block, from the beginning.
    block: u64,
    start: usize,
    len: usize,
}

impl Backlog {
    /// Holds at least `bytes` of packets.
    pub(crate) fn new(bytes: usize) -> Backlog {
        let mut backlog = Backlog::default();
        backlog.set_limit(bytes);
        backlog
    }

    /// Holds at least so many bytes from now on. It never holds less than before: what is there stays.
    pub(crate) fn set_limit(&mut self, bytes: usize) {
        // At the end of each block up to one packet's room is lost.
        self.blocks_max = self.blocks_max.max(bytes.div_ceil(BLOCK_BYTES - PACKET_BYTES_MAX) + 2);
    }

    /// Room for one packet; `None` when memory is used up.
    pub(crate) fn room(&mut self) -> Option<&mut [u8]> {
        if self.blocks.is_empty() || self.filled + PACKET_BYTES_MAX > BLOCK_BYTES {
            if self.blocks.len() >= self.blocks_max {
                return None;
            }
            let block = self.spare.pop().unwrap_or_else(|| vec![0; BLOCK_BYTES].into_boxed_slice());
            self.blocks.push_back(block);
            self.filled = 0;
        }
        let filled = self.filled;
        self.blocks.back_mut().map(|block| &mut block[filled..filled + PACKET_BYTES_MAX])
    }

    /// Keeps the packet that was put into [`Backlog::room`]. Deliveries are in order.
    pub(crate) fn push(&mut self, len: usize, due_ns: u64) {
        debug_assert!(
            len <= PACKET_BYTES_MAX && self.packets.back().is_none_or(|last| last.due_ns <= due_ns)
        );
        let block = self.blocks_before + self.blocks.len() as u64 - 1;
        self.packets.push_back(Entry { due_ns, block, start: self.filled, len });
        self.filled += len;
    }

    /// Gives packets other times; `time` keeps their order.
    pub(crate) fn retime(&mut self, time: impl Fn(u64) -> u64) {
        self.packets.iter_mut().for_each(|packet| packet.due_ns = time(packet.due_ns));
    }

    /// When the next packet is due.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.packets.front().map(|packet| packet.due_ns)
    }

    /// The packet that is due next. It stays until [`Backlog::pop`].
    pub(crate) fn front(&self) -> Option<&[u8]> {
        let packet = self.packets.front()?;
        let block = self.blocks.get((packet.block - self.blocks_before) as usize)?;
        block.get(packet.start..packet.start + packet.len)
    }

    /// Takes it out.
    pub(crate) fn pop(&mut self) {
        self.packets.pop_front();
        match self.packets.front() {
            Some(next) => {
                while self.blocks_before < next.block {
                    self.spare.extend(self.blocks.pop_front());
                    self.blocks_before += 1;
                }
            }
            // Everything is done with: the next packet goes where the cache is warm.
            None => {
                while self.blocks.len() > 1 {
                    self.spare.extend(self.blocks.pop_front());
                    self.blocks_before += 1;
                }
                self.filled = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn put(backlog: &mut Backlog, bytes: &[u8], due_ns: u64) -> bool {
        let Some(room) = backlog.room() else { return false };
        room[..bytes.len()].copy_from_slice(bytes);
        backlog.push(bytes.len(), due_ns);
        true
    }

    #[test]
    fn it_holds_what_it_was_made_for_and_then_says_no() {
        let mut backlog = Backlog::new(10_000_000);
        let packet = vec![1; PACKET_BYTES_MAX];
        let mut held = 0;
        while put(&mut backlog, &packet, 0) {
            held += packet.len();
        }
        assert!((10_000_000..14_000_000).contains(&held), "{held}");
        backlog.pop();
        assert!(!put(&mut backlog, &packet, 0), "its block is not free yet");
        for _ in 0..20 {
            backlog.pop();
        }
        assert!(put(&mut backlog, &packet, 0));
    }

    #[test]
    fn a_queue_that_keeps_getting_empty_stays_in_one_block() {
        let mut backlog = Backlog::new(100_000_000);
        for _ in 0..10_000 {
            assert!(put(&mut backlog, &[1; 60_000], 0));
            backlog.pop();
        }
        assert_eq!(backlog.blocks.len() + backlog.spare.len(), 1);
    }

    proptest! {
        /// Whatever is put in and taken out: packets come out as they went in, in order.
        #[test]
        fn first_in_first_out(steps in proptest::collection::vec((0_usize..PACKET_BYTES_MAX, 0_u32..4), 1..300)) {
            let mut backlog = Backlog::new(4_000_000);
            let mut model = VecDeque::new();
            for (number, (len, pops)) in steps.into_iter().enumerate() {
                let bytes = vec![number as u8; len];
                if put(&mut backlog, &bytes, number as u64) {
                    model.push_back((bytes, number as u64));
                }
                for _ in 0..pops / 2 {
                    prop_assert_eq!(backlog.due_ns(), model.front().map(|(_, due)| *due));
                    prop_assert_eq!(backlog.front(), model.front().map(|(bytes, _)| &bytes[..]));
                    if model.pop_front().is_some() {
                        backlog.pop();
                    }
                }
            }
        }
    }
}

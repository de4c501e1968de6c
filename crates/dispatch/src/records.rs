//! The table of files that wait, and lists that are linked through it.

/// No place.
pub(crate) const NONE: u32 = u32::MAX;
/// Records of a piece of the table: it grows by 200 kB, and nothing is moved.
const PIECE: usize = 4096;

/// Whether a place is in use, and for what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// It is free.
    #[default]
    Free,
    /// The file is in a list.
    Ready,
    /// The file waits for its time.
    Delayed,
}

/// A file that waits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Record {
    pub(crate) file: i64,
    pub(crate) size_bytes: u64,
    pub(crate) previous: u32,
    pub(crate) next: u32,
    pub(crate) bin: u32,
    /// When it came, in seconds since the origin of time, before which it may be.
    pub(crate) since_s: i32,
    /// Not before this, in seconds; 0: at any time.
    pub(crate) wakes_s: u32,
    /// In seconds; 0: never.
    pub(crate) expires_s: u32,
    /// 0 to 4, of which 4 is first.
    pub(crate) priority: u8,
    pub(crate) state: State,
}

/// What is kept of a file has to stay small.
const _: () = assert!(size_of::<Record>() <= 48);

impl Record {
    /// True if it waits until just this time.
    pub(crate) fn is_waking(&self, at_s: u32) -> bool {
        self.state == State::Delayed && self.wakes_s == at_s
    }

    /// True if it waits no longer than just until this time.
    pub(crate) fn is_expiring(&self, at_s: u32) -> bool {
        self.state != State::Free && self.expires_s == at_s
    }
}

/// A list of records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    pub(crate) head: u32,
    tail: u32,
    pub(crate) len: u32,
}

impl Default for List {
    fn default() -> List {
        List { head: NONE, tail: NONE, len: 0 }
    }
}

/// Records, by place.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pieces: Vec<Vec<Record>>,
    /// The first free place, linked by `next`.
    free: Option<u32>,
}

impl Records {
    /// The record of a place.
    pub(crate) fn get(&self, place: u32) -> &Record {
        &self.pieces[place as usize / PIECE][place as usize % PIECE]
    }

    /// The record of a place.
    pub(crate) fn get_mut(&mut self, place: u32) -> &mut Record {
        &mut self.pieces[place as usize / PIECE][place as usize % PIECE]
    }

    /// A place for a record.
    pub(crate) fn add(&mut self, record: Record) -> u32 {
        if let Some(place) = self.free {
            let next = self.get(place).next;
            self.free = (next != NONE).then_some(next);
            *self.get_mut(place) = record;
            return place;
        }
        if self.pieces.last().is_none_or(|piece| piece.len() == PIECE) {
            self.pieces.push(Vec::with_capacity(PIECE));
        }
        let piece = self.pieces.len() - 1;
        self.pieces[piece].push(record);
        (piece * PIECE + self.pieces[piece].len() - 1) as u32
    }

    /// Frees a place, which is in no list.
    pub(crate) fn remove(&mut self, place: u32) {
        let next = self.free.unwrap_or(NONE);
        *self.get_mut(place) = Record { next, ..Record::default() };
        self.free = Some(place);
    }

    /// Puts a record at the end of a list.
    pub(crate) fn append(&mut self, list: &mut List, place: u32) {
        let last = list.tail;
        let record = self.get_mut(place);
        (record.previous, record.next) = (last, NONE);
        if last == NONE {
            list.head = place;
        } else {
            self.get_mut(last).next = place;
        }
        list.tail = place;
        list.len += 1;
    }

    /// Takes a record out of its list.
    pub(crate) fn unlink(&mut self, list: &mut List, place: u32) {
        let Record { previous, next, .. } = *self.get(place);
        match previous {
            NONE => list.head = next,
            _ => self.get_mut(previous).next = next,
        }
        match next {
            NONE => list.tail = previous,
            _ => self.get_mut(next).previous = previous,
        }
        list.len -= 1;
    }

    /// The places of a list, in order.
    pub(crate) fn iter(&self, list: &List) -> impl Iterator<Item = u32> {
        let head = (list.head != NONE).then_some(list.head);
        std::iter::successors(head, |place| {
            let next = self.get(*place).next;
            (next != NONE).then_some(next)
        })
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.pieces.len() * PIECE * size_of::<Record>() + self.pieces.capacity() * size_of::<Vec<Record>>()
    }
}

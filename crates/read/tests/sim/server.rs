//! Simulated servers, and bytes of which only the place is known.

use gridlane_read::Payload;

pub(crate) const MB: f64 = 1e6;

/// One server and the path to it.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// Bytes per second of the path.
    pub(crate) rate: f64,
    pub(crate) round_trip_s: f64,
    /// Round trips until a connection takes requests: TCP, login, open.
    pub(crate) handshakes: f64,
    /// The servers' and the client's time for an element.
    pub(crate) element_s: f64,
    pub(crate) elements_max: usize,
    pub(crate) element_bytes_max: u64,
    pub(crate) pipelines: bool,
    pub(crate) slow_start: bool,
    /// It says that the file has this size.
    pub(crate) says_bytes: Option<u64>,
    /// It sends the whole file whatever is asked for.
    pub(crate) ignores_ranges: bool,
    /// It ends each answer after so many bytes, as if that were all.
    pub(crate) cuts_after_bytes: Option<u64>,
    /// Each connection breaks after so many bytes.
    pub(crate) resets_after_bytes: Option<u64>,
    /// It says nothing any more from then on.
    pub(crate) silent_from_s: Option<f64>,
    /// It breaks connections and refuses new ones from then on.
    pub(crate) down_from_s: Option<f64>,
    /// It has no such file.
    pub(crate) has_no_file: bool,
    /// It sends other bytes than those asked for along with them.
    pub(crate) adds_strays: bool,
    /// It closes a connection on which nothing was sent for so long.
    pub(crate) closes_idle_after_s: Option<f64>,
    /// What is between forgets such a connection, and says nothing.
    pub(crate) forgets_idle_after_s: Option<f64>,
    /// It takes so many connections.
    pub(crate) lanes_max: usize,
}

impl Server {
    /// A server like the reference: handshakes of 4 round trips, vectors of 1024 elements, 2 us for each.
    pub(crate) fn new(rate: f64, round_trip_s: f64) -> Server {
        Server {
            rate,
            round_trip_s,
            handshakes: 4.0,
            element_s: 2e-6,
            elements_max: 1024,
            element_bytes_max: 2_097_136,
            pipelines: true,
            slow_start: true,
            says_bytes: None,
            ignores_ranges: false,
            cuts_after_bytes: None,
            resets_after_bytes: None,
            silent_from_s: None,
            down_from_s: None,
            has_no_file: false,
            adds_strays: false,
            closes_idle_after_s: None,
            forgets_idle_after_s: None,
            lanes_max: usize::MAX,
        }
    }

    /// A path of 1 Gb/s.
    pub(crate) fn gigabit(round_trip_s: f64) -> Server {
        Server::new(125.0 * MB, round_trip_s)
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Server)) -> Server {
        change(&mut self);
        self
    }
}

/// Bytes of the file of which only the place is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) at: u64,
    pub(crate) len: u64,
}

impl Payload for Place {
    fn len_bytes(&self) -> u64 {
        self.len
    }

    fn part(&self, from: u64, len: u64) -> Place {
        assert!(from + len <= self.len);
        Place { at: self.at + from, len }
    }

    fn append(&mut self, behind: Place) {
        assert_eq!(self.at + self.len, behind.at, "the file is put together in order");
        self.len += behind.len;
    }

    fn memory_bytes(&self) -> u64 {
        self.len
    }
}

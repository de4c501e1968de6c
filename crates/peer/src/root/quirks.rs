//! Quirks of servers, remembered so that they need not be found out each time.

use gridlane_xrd::SessionId;

use super::server::Server;
use crate::memory::Memory;

/// Sessions of one server that were lost and are to be ended.
const LOST_KEPT: usize = 8;

/// The quirks of all servers, shared by the clones of a client.
pub(super) type KnownQuirks = Memory<Server, Quirks>;

/// One server.
#[derive(Clone, Debug, Default)]
pub(super) struct Quirks {
    /// It wants every session to be opened step by step.
    pub(super) wants_steps: bool,
    /// It has taken a flight.
    pub(super) takes_flights: bool,
    /// Sessions whose connection broke: it may still hold files open for them.
    lost: Vec<SessionId>,
}

impl Quirks {
    /// A session's connection broke.
    pub(super) fn lost(&mut self, session: SessionId) {
        if self.lost.len() < LOST_KEPT && session != SessionId::default() {
            self.lost.push(session);
        }
    }

    /// The sessions that were lost, once.
    pub(super) fn take_lost(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.lost)
    }
}

//! What a client remembers of servers, so that it need not find out each time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridlane_xrd::SessionId;

use super::Server;

/// Servers that are remembered; when there are more, all are forgotten.
const SERVERS_KEPT: usize = 1024;
/// Sessions of one server that were lost and are to be ended.
const LOST_KEPT: usize = 8;

/// Shared by the clones of a client.
#[derive(Clone, Default)]
pub(super) struct Habits(Arc<Mutex<HashMap<Server, Habit>>>);

/// One server.
#[derive(Clone, Debug, Default)]
pub(super) struct Habit {
    /// It wants every session to be opened step by step.
    pub(super) wants_steps: bool,
    /// It has taken a flight.
    pub(super) takes_flights: bool,
    /// Sessions whose connection broke: it may still hold files open for them.
    lost: Vec<SessionId>,
}

impl Habits {
    pub(super) fn of(&self, server: &Server) -> Habit {
        self.all().get(server).cloned().unwrap_or_default()
    }

    pub(super) fn learn(&self, server: &Server, news: impl FnOnce(&mut Habit)) {
        let mut all = self.all();
        if all.len() >= SERVERS_KEPT && !all.contains_key(server) {
            all.clear();
        }
        news(all.entry(server.clone()).or_default());
    }

    /// A session's connection broke.
    pub(super) fn lost(&self, server: &Server, session: SessionId) {
        self.learn(server, |habit| {
            if habit.lost.len() < LOST_KEPT && session != SessionId::default() {
                habit.lost.push(session);
            }
        });
    }

    /// The sessions that were lost, once.
    pub(super) fn take_lost(&self, server: &Server) -> Vec<SessionId> {
        self.all().get_mut(server).map(|habit| std::mem::take(&mut habit.lost)).unwrap_or_default()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Server, Habit>> {
        // A panic elsewhere leaves nothing half-done here.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! No process ends between an issuer's answer and the file that keeps it: the refresh token that was used would be worthless,
//! and the next one lost.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use gridlane_core::{Error, ErrorKind, Result};

static STATE: (Mutex<State>, Condvar) =
    (Mutex::new(State { exchanges: 0, is_ending: false }), Condvar::new());

struct State {
    /// Exchanges of a refresh token that have begun, and are not stored yet.
    exchanges: usize,
    /// True if the process is about to end.
    is_ending: bool,
}

/// Waits until no refresh token is on its way; no other one is sent from then on. To be called before the process ends. An issuer
/// that took a token and does not answer is waited for as long as any answer is.
pub fn settle() {
    let mut state = state();
    state.is_ending = true;
    drop(STATE.1.wait_while(state, |state| state.exchanges > 0));
}

/// An exchange that runs, from before the issuer is asked until its answer is stored.
pub(super) struct Unsettled;

impl Unsettled {
    /// An error of kind `Interrupted` when the process is about to end.
    pub(super) fn begin() -> Result<Unsettled> {
        let mut state = state();
        if state.is_ending {
            return Err(Error::new(ErrorKind::Interrupted, "the program ends"));
        }
        state.exchanges += 1;
        Ok(Unsettled)
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        state().exchanges -= 1;
        STATE.1.notify_all();
    }
}

fn state() -> MutexGuard<'static, State> {
    STATE.0.lock().unwrap_or_else(PoisonError::into_inner)
}

//! A token that is read again when its file changes.

use std::sync::{Arc, Mutex, PoisonError};

use gridlane_core::Result;
use gridlane_engine::{Token, TokenSource};

use super::{Found, FoundToken, Machine, Place};

/// Gives the token that its file has now.
pub(super) struct LiveToken {
    machine: Arc<dyn Machine>,
    state: Mutex<State>,
}

struct State {
    token: FoundToken,
    /// When the file was looked at, in seconds since 1970: many requests a second ask.
    looked_s: i64,
}

impl LiveToken {
    pub(super) fn new(token: FoundToken, machine: Arc<dyn Machine>) -> LiveToken {
        LiveToken { state: Mutex::new(State { token, looked_s: machine.now_s() }), machine }
    }

    /// What the file has now, if it has changed; what cannot be used is left alone, since somebody may be writing it.
    fn news(&self, known: &FoundToken) -> Option<FoundToken> {
        let (Place::File(path), Some(version)) = (&known.place, known.version) else { return None };
        if self.machine.version(path).ok()? == version {
            return None;
        }
        let search = super::Search { machine: self.machine.as_ref(), user: self.machine.user() };
        search.token_in(path, known.is_named, &mut Vec::new()).ok().flatten()
    }
}

impl TokenSource for LiveToken {
    fn token(&self) -> Result<Token> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now_s = self.machine.now_s();
        if state.looked_s != now_s {
            state.looked_s = now_s;
            if let Some(token) = self.news(&state.token) {
                state.token = token;
            }
        }
        let token = state.token.clone();
        let given = Token { secret: token.secret.clone(), from: token.name() };
        Found { token: Some(token), ..Found::default() }.refuse_invalid(now_s)?;
        Ok(given)
    }
}

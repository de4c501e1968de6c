//! A token that is read again when its file changes.

use std::sync::{Arc, Mutex, PoisonError};

use gridlane_core::Result;
use gridlane_peer::{Token, TokenSource};

use super::{Found, FoundToken, Machine, Origin, Version};

/// Gives the token that its file has now.
pub(super) struct LiveToken {
    machine: Arc<dyn Machine>,
    state: Mutex<State>,
}

struct State {
    token: FoundToken,
    /// When the file was looked at, in seconds since 1970: many requests a second ask.
    looked_s: i64,
    /// Another version of the file than the token's, as it was at the last look.
    newer: Option<Version>,
}

impl LiveToken {
    pub(super) fn new(token: FoundToken, machine: Arc<dyn Machine>) -> LiveToken {
        LiveToken { state: Mutex::new(State { token, looked_s: machine.now_s(), newer: None }), machine }
    }

    /// The token that the file has now, if it has changed; an unusable one is left alone, since the file may be half
    /// written. Half a token cannot be recognised: while the known one is valid, the new one is taken when it has not
    /// changed between two looks.
    fn news(&self, state: &mut State, now_s: i64) -> Option<FoundToken> {
        let known = &state.token;
        let (Origin::File(path), Some(version)) = (&known.origin, known.version) else { return None };
        let newer = Some(self.machine.version(path).ok()?).filter(|newer| *newer != version);
        let is_settled = std::mem::replace(&mut state.newer, newer) == newer;
        let is_valid = known.claims.ends_s.is_none_or(|ends_s| ends_s > now_s);
        if newer.is_none() || is_valid && !is_settled {
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
            if let Some(token) = self.news(&mut state, now_s) {
                state.token = token;
            }
        }
        let token = state.token.clone();
        let given = Token { secret: token.secret.clone(), from: token.name() };
        Found { token: Some(token), ..Found::default() }.refuse_invalid(now_s)?;
        Ok(given)
    }
}

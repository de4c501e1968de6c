//! Credentials that are read again when their files change.
//!
//! Half of a token cannot be told from a whole one: while the known credential is valid, a new one is taken when its file has not
//! changed between two looks, which are a second apart. One that has ended, or that a server has refused, is replaced by what is
//! there at that moment. What cannot be used is left alone, since the file may be half written.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridlane_core::{Result, Secret};
use gridlane_peer::{Certificate, CertificateSource, Token, TokenSource};

use super::{Found, FoundCertificate, FoundToken, Machine, Origin, Search, Version};

/// Decides when a file is read again, by its versions.
#[derive(Debug)]
struct Looks<V> {
    /// When the file was looked at, in seconds since 1970: many requests a second ask.
    looked_s: i64,
    /// Another version of the file than the known one, as it was at the last look.
    newer: Option<V>,
}

impl<V: Copy + PartialEq> Looks<V> {
    fn new(now_s: i64) -> Looks<V> {
        Looks { looked_s: now_s, newer: None }
    }

    /// True if the file is to be looked at now: once a second while what is known `is_good`.
    fn is_due(&mut self, now_s: i64, is_good: bool) -> bool {
        std::mem::replace(&mut self.looked_s, now_s) != now_s || !is_good
    }

    /// True if the version that was `found` is to be read, in place of the `known` one.
    fn takes(&mut self, known: V, found: V, is_good: bool) -> bool {
        let newer = Some(found).filter(|found| *found != known);
        let is_settled = std::mem::replace(&mut self.newer, newer) == newer;
        newer.is_some() && (!is_good || is_settled)
    }
}

/// Gives the token that its file has now.
pub(super) struct LiveToken {
    machine: Arc<dyn Machine>,
    state: Mutex<(FoundToken, Looks<Version>)>,
}

impl LiveToken {
    pub(super) fn new(token: FoundToken, machine: Arc<dyn Machine>) -> LiveToken {
        let looks = Looks::new(machine.now_s());
        LiveToken { state: Mutex::new((token, looks)), machine }
    }

    /// The token that the file has now, if it has changed and is to be taken; where the known one `is_good` only when it has
    /// settled.
    fn news(&self, (known, looks): &mut (FoundToken, Looks<Version>), is_good: bool) -> Option<FoundToken> {
        let (Origin::File(path), Some(version)) = (&known.origin, known.version) else { return None };
        if !looks.takes(version, self.machine.version(path).ok()?, is_good) {
            return None;
        }
        let search = Search { machine: self.machine.as_ref(), user: self.machine.user() };
        let found = search.token_in(path, known.is_named, &mut Vec::new()).ok().flatten()?;
        // One that has ended is no news.
        let now_s = self.machine.now_s();
        Some(found).filter(|found| found.claims.ends_s.is_none_or(|ends_s| ends_s > now_s))
    }

    fn state(&self) -> MutexGuard<'_, (FoundToken, Looks<Version>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A token as it is shown; an error of kind `Denied` when it has ended.
fn given(token: &FoundToken, now_s: i64) -> Result<Token> {
    let given = Token { secret: token.secret.clone(), from: token.name() };
    Found { token: Some(token.clone()), ..Found::default() }.refuse_invalid(now_s).map(|()| given)
}

impl TokenSource for LiveToken {
    fn token(&self) -> Result<Token> {
        let mut state = self.state();
        let now_s = self.machine.now_s();
        let is_good = state.0.claims.ends_s.is_none_or(|ends_s| ends_s > now_s);
        if state.1.is_due(now_s, is_good)
            && let Some(token) = self.news(&mut state, is_good)
        {
            state.0 = token;
        }
        given(&state.0, now_s)
    }

    fn refused(&self, token: &Secret) -> Result<Option<Token>> {
        let mut state = self.state();
        if state.0.secret == *token
            && let Some(newer) = self.news(&mut state, false)
        {
            state.0 = newer;
        }
        let now = given(&state.0, self.machine.now_s())?;
        Ok(Some(now).filter(|now| now.secret != *token))
    }
}

/// The versions of the files of a certificate and of its key.
type Pair = (Version, Version);

/// Gives the certificate that its file has now.
pub(super) struct LiveCertificate {
    machine: Arc<dyn Machine>,
    state: Mutex<(FoundCertificate, Looks<Pair>)>,
}

impl LiveCertificate {
    pub(super) fn new(found: FoundCertificate, machine: Arc<dyn Machine>) -> LiveCertificate {
        let looks = Looks::new(machine.now_s());
        LiveCertificate { state: Mutex::new((found, looks)), machine }
    }

    /// The certificate that the files have now, as for tokens. One that has ended already is not taken.
    fn news(
        &self,
        (known, looks): &mut (FoundCertificate, Looks<Pair>),
        is_good: bool,
    ) -> Option<FoundCertificate> {
        let version = known.version?;
        let found = (self.machine.version(&known.file).ok()?, self.machine.version(&known.key).ok()?);
        if !looks.takes(version, found, is_good) {
            return None;
        }
        let search = Search { machine: self.machine.as_ref(), user: self.machine.user() };
        let newer = search.certificate_in(&known.file, &known.key, known.is_named).ok()?;
        newer.refuse_ended(self.machine.now_s()).is_ok().then_some(newer)
    }

    /// What is to be shown in place of `shown`, which is `refused` or not.
    fn instead(&self, shown: &Certificate, is_refused: bool) -> Result<Option<Certificate>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now_s = self.machine.now_s();
        let is_shown = state.0.identity.is_same(&shown.shown);
        let is_good = state.0.refuse_ended(now_s).is_ok() && !(is_refused && is_shown);
        if state.1.is_due(now_s, is_good)
            && let Some(newer) = self.news(&mut state, is_good)
        {
            state.0 = newer;
        }
        state.0.refuse_ended(now_s)?;
        Ok((!state.0.identity.is_same(&shown.shown)).then(|| state.0.shown()))
    }
}

impl CertificateSource for LiveCertificate {
    fn newer(&self, shown: &Certificate) -> Result<Option<Certificate>> {
        self.instead(shown, false)
    }

    fn refused(&self, shown: &Certificate) -> Result<Option<Certificate>> {
        self.instead(shown, true)
    }
}

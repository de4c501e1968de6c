//! The token of a login, for requests: renewed before it ends, without a request waiting for it.
//!
//! A request asks for the token, which is a lookup. When less is left of it than [`LOGIN_RENEWED_BEFORE_S`], or a third of its
//! lifetime, a thread renews it, while requests go on with the old one. Only when there is no good one do requests wait. The
//! thread has a runtime of its own: a request that waits in its runtime's last free thread holds up no renewal.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use gridlane_auth::oidc::Provider;
use gridlane_core::limits::{LOGIN_RENEWED_BEFORE_S, LOGIN_RETRY_S};
use gridlane_core::{Error, ErrorKind, Fault, Result, Secret};
use gridlane_net::Dialer;
use gridlane_peer::{Token, TokenSource};
use tokio::runtime::{Builder, Handle, RuntimeFlavor};

use super::issuer::now_s;
use super::store::{Access, Store};
use super::{AGENT_PREFIX, agent, judge_name, make};

type Tell = dyn Fn(&Error) + Send + Sync;

/// What to tell of a renewal that failed while the token is still good.
#[derive(Clone, Default)]
pub struct Teller(Option<Arc<Tell>>);

impl Teller {
    /// Calls this, from any thread.
    pub fn new(tell: impl Fn(&Error) + Send + Sync + 'static) -> Teller {
        Teller(Some(Arc::new(tell)))
    }

    fn tell(&self, error: &Error) {
        if let Some(tell) = &self.0 {
            tell(error);
        }
    }
}

impl fmt::Debug for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Teller(…)" } else { "Teller(nobody)" })
    }
}

/// Where tokens come from.
enum Origin {
    /// A login that is stored.
    Stored { store: Store, dialer: Dialer },
    /// An account of oidc-agent, at its socket.
    Agent { socket: PathBuf, account: String },
}

/// Gives the token of a login. Its clones are the same; its `Debug` shows no secret.
#[derive(Clone)]
pub struct LoginSource(Arc<Inner>);

struct Inner {
    name: String,
    origin: Origin,
    teller: Teller,
    state: Mutex<State>,
    /// Told when a renewal ends.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    access: Option<Access>,
    provider: Option<Provider>,
    is_renewing: bool,
    /// Why the last renewal failed, and when, in seconds since 1970.
    failed: Option<(Error, i64)>,
    /// True if that was told since the last success.
    is_told: bool,
    /// A server has refused this token.
    refused: Option<Secret>,
    /// A refused token that nothing better was to be had for, or that was got in the place of one: it is not asked about again.
    settled: Option<Secret>,
}

/// What the token is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Nothing,
    /// It ends soon.
    Soon,
    /// There is none that is good.
    Now,
}

/// The seconds that have to be left of a token whose lifetime is this: at most a third of it.
fn margin_s(lifetime_s: i64) -> i64 {
    LOGIN_RENEWED_BEFORE_S.min(lifetime_s.saturating_add(2) / 3)
}

impl State {
    fn need(&self, now_s: i64) -> Need {
        let Some(access) = &self.access else { return Need::Now };
        if self.refused.as_ref() == Some(&access.secret) {
            return Need::Now;
        }
        let Some(ends_s) = access.ends_s else { return Need::Nothing };
        let left_s = ends_s.saturating_sub(now_s);
        match left_s {
            ..=0 => Need::Now,
            _ if left_s <= margin_s(ends_s.saturating_sub(access.began_s)) => Need::Soon,
            _ => Need::Nothing,
        }
    }

    /// The failure after which it is too early to try again.
    fn recent_failure(&self, now_s: i64) -> Option<&Error> {
        let (error, at_s) = self.failed.as_ref()?;
        // A clock that was put back must not keep it waiting.
        (0..LOGIN_RETRY_S).contains(&now_s.saturating_sub(*at_s)).then_some(error)
    }
}

impl LoginSource {
    /// The source for a stored login, or for `oidc-agent:ACCOUNT`. Nothing is asked yet. `variable` looks up the environment.
    pub fn new(
        name: &str,
        variable: impl Fn(&str) -> Option<std::ffi::OsString>,
        dialer: Dialer,
        teller: Teller,
    ) -> Result<LoginSource> {
        let origin = match name.strip_prefix(AGENT_PREFIX) {
            Some(account) => Origin::Agent { socket: agent::socket(variable)?, account: account.to_owned() },
            None => {
                judge_name(name)?;
                Origin::Stored { store: Store::of(variable)?, dialer }
            }
        };
        let (state, changed) = Default::default();
        Ok(LoginSource(Arc::new(Inner { name: name.to_owned(), origin, teller, state, changed })))
    }

    /// `the token of the login atlas`, as messages call it.
    fn words(&self) -> String {
        format!("the token of the login {}", self.0.name)
    }

    /// The access token that is good now, and is not the one that was refused. Waits for a renewal only if there is none.
    pub fn access(&self) -> Result<Access> {
        let mut state = self.state();
        let mut is_tried = false;
        loop {
            let now_s = now_s();
            let need = state.need(now_s);
            if let Some(access) = state.access.clone().filter(|_| need != Need::Now) {
                let is_due =
                    need == Need::Soon && !state.is_renewing && state.recent_failure(now_s).is_none();
                if is_due && let Err(error) = self.begin(&mut state) {
                    state.failed = Some((error, now_s));
                }
                return Ok(access);
            }
            if state.is_renewing {
                is_tried = true;
                state = self.wait(state);
                continue;
            }
            if let Some(error) = state.recent_failure(now_s) {
                return Err(self.over(error, &state, now_s));
            }
            if is_tried && state.failed.is_none() {
                // It is new, and is no good: an issuer whose tokens have ended when they come, or a clock that is wrong.
                let stillborn = self.stillborn();
                let error = self.over(&stillborn, &state, now_s);
                // Else each request would have the issuer make another one.
                state.failed = Some((stillborn, now_s));
                return Err(error);
            }
            is_tried = true;
            self.begin(&mut state)?;
        }
    }

    /// True if its token is renewed before it ends: not that of a login without a refresh token.
    pub fn is_renewable(&self) -> bool {
        match &self.0.origin {
            Origin::Agent { .. } => true,
            Origin::Stored { store, .. } => store.read(&self.0.name).is_ok_and(|login| login.is_renewable()),
        }
    }

    /// Tells that a server has refused this token: the next request waits for another one.
    pub fn refuse(&self, token: &Secret) {
        let mut state = self.state();
        // A late word about an older one says nothing of this one.
        if state.access.as_ref().is_some_and(|access| access.secret == *token) {
            state.refused = Some(token.clone());
        }
    }

    /// An access token that is good for so many seconds from now on. Waits for a new one if the known one is not.
    ///
    /// # Errors
    /// `Unsupported` when new ones are not good for as long.
    pub fn lasting(&self, lifetime_s: u64) -> Result<Access> {
        let until_s = now_s().saturating_add(i64::try_from(lifetime_s).unwrap_or(i64::MAX));
        let access = self.renewed_in_place(until_s)?;
        match access.ends_s {
            // The answer took a moment.
            Some(ends_s) if ends_s < until_s => {
                let message = format!(
                    "a new token of the login {} is good for {} s",
                    self.0.name,
                    ends_s.saturating_sub(now_s())
                );
                Err(Error::new(ErrorKind::Unsupported, message)
                    .hint("ask for less, or have the issuer allow more"))
            }
            _ => Ok(access),
        }
    }

    fn renewed_in_place(&self, until_s: i64) -> Result<Access> {
        let source = self.clone();
        let thread =
            std::thread::Builder::new().name("login".into()).spawn(move || source.renewed(None, until_s));
        let thread =
            thread.map_err(|cause| Error::local_io("cannot start a thread to renew a login", &cause))?;
        let lost = || Error::new(ErrorKind::Other, "the renewal of a login broke off");
        in_place(|| thread.join()).map_err(|_| lost())?
    }

    /// Begins a renewal.
    fn begin(&self, state: &mut State) -> Result<()> {
        let source = self.clone();
        let but = state.refused.clone();
        let now_s = now_s();
        let lifetime_s =
            state.access.as_ref().and_then(|access| Some(access.ends_s?.saturating_sub(access.began_s)));
        // What another process got is as good when it would not be renewed here at once.
        let until_s = now_s.saturating_add(lifetime_s.map_or(1, margin_s)).saturating_add(1);
        let spawned = std::thread::Builder::new().name("login".into()).spawn(move || {
            let outcome = source.renewed(but.as_ref(), until_s);
            source.ended(outcome);
        });
        spawned.map_err(|cause| Error::local_io("cannot start a thread to renew a login", &cause))?;
        state.is_renewing = true;
        Ok(())
    }

    /// Renews, in a thread of its own.
    fn renewed(&self, but: Option<&Secret>, until_s: i64) -> Result<Access> {
        match &self.0.origin {
            Origin::Agent { socket, account } => {
                // It is asked for one that is good for longer than the refused one.
                let refused = self.state().access.clone().filter(|access| Some(&access.secret) == but);
                let until_s =
                    refused.and_then(|access| Some(access.ends_s?.saturating_add(1))).unwrap_or(until_s);
                let valid_s = u64::try_from(until_s.saturating_sub(now_s())).unwrap_or(0);
                agent::ask(socket, account, valid_s)
            }
            Origin::Stored { store, dialer } => {
                let mut provider = self.state().provider.clone();
                let runtime = Builder::new_current_thread().enable_all().build();
                let runtime = runtime.map_err(|cause| Error::local_io("cannot renew a login", &cause))?;
                let outcome =
                    runtime.block_on(make::renew(store, dialer, &self.0.name, &mut provider, until_s, but));
                // A name service that does not answer must not keep the thread.
                runtime.shutdown_background();
                // Where the services are may have changed.
                self.state().provider = provider.filter(|_| outcome.is_ok());
                outcome
            }
        }
    }

    /// A renewal has ended.
    fn ended(&self, outcome: Result<Access>) {
        let now_s = now_s();
        let mut state = self.state();
        state.is_renewing = false;
        let mut told = None;
        match outcome {
            Ok(access) => {
                state.access = Some(access);
                (state.failed, state.is_told) = (None, false);
            }
            Err(error) => {
                let is_good = state.need(now_s) != Need::Now;
                if is_good && !std::mem::replace(&mut state.is_told, true) {
                    let message = format!("{} is not renewed: {}", self.words(), error.message());
                    told = Some(again(&error, message).more("it is still good, and is tried again"));
                }
                state.failed = Some((error, now_s));
            }
        }
        drop(state);
        self.0.changed.notify_all();
        if let Some(error) = told {
            self.0.teller.tell(&error);
        }
    }

    /// There is no good token, for this reason.
    fn over(&self, cause: &Error, state: &State, now_s: i64) -> Error {
        let ended_s =
            state.access.as_ref().and_then(|access| access.ends_s).filter(|ends_s| *ends_s <= now_s);
        let name = self.words();
        let message = match ended_s {
            _ if state.refused.is_some()
                && state.refused.as_ref() == state.access.as_ref().map(|access| &access.secret) =>
            {
                format!("{name} was refused and cannot be renewed: {}", cause.message())
            }
            Some(ended_s) => {
                format!(
                    "{name} ended {} s ago and cannot be renewed: {}",
                    now_s.saturating_sub(ended_s),
                    cause.message()
                )
            }
            None => format!("{name} cannot be had: {}", cause.message()),
        };
        again(cause, message)
    }

    fn stillborn(&self) -> Error {
        let message = "the issuer's new token is over already";
        Error::new(ErrorKind::Denied, message)
            .fault(Fault::Peer)
            .hint("is this machine's clock right (timedatectl)?")
    }

    fn wait<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        in_place(|| {
            let renewed = self.0.changed.wait_while(state, |state| state.is_renewing);
            renewed.unwrap_or_else(PoisonError::into_inner)
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The same failure with other words in front.
fn again(cause: &Error, message: String) -> Error {
    let mut error =
        Error::new(cause.kind(), message).fault(cause.whose_fault()).retryable(cause.is_retryable());
    if let Some(endpoint) = cause.endpoint_text() {
        error = error.endpoint(endpoint);
    }
    match cause.advice() {
        Some(advice) => error.hint(advice.clone()),
        None => error,
    }
}

/// Waits where other tasks of the runtime go on meanwhile, if it has threads for them.
fn in_place<T>(wait: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(wait),
        _ => wait(),
    }
}

impl TokenSource for LoginSource {
    fn token(&self) -> Result<Token> {
        self.access().map(|access| Token { secret: access.secret, from: self.words() })
    }

    fn refused(&self, token: &Secret) -> Result<Option<Token>> {
        let now_s = now_s();
        let is_new = self.state().access.as_ref().is_some_and(|access| {
            let lifetime_s = access.ends_s.map_or(i64::MAX, |ends_s| ends_s.saturating_sub(access.began_s));
            let age_s = now_s.saturating_sub(access.began_s);
            // A clock that was put back makes nothing new.
            access.secret == *token && (0..LOGIN_RETRY_S.min(lifetime_s / 2)).contains(&age_s)
        });
        // A server that refuses every token would have the issuer make one for each request.
        if is_new || self.state().settled.as_ref() == Some(token) {
            return Ok(None);
        }
        self.refuse(token);
        let other = self.token().map(|now| Some(now).filter(|now| now.secret != *token));
        let mut state = self.state();
        match &other {
            // Refused as well, it is not the token that is wrong.
            Ok(Some(now)) => state.settled = Some(now.secret.clone()),
            // Others may take it, as long as it lasts.
            Ok(None) | Err(_) => {
                state.settled = Some(token.clone());
                state.refused = None;
            }
        }
        let is_over = state.need(now_s) == Need::Now;
        drop(state);
        other.or_else(|error| if is_over { Err(error) } else { Ok(None) })
    }
}

impl fmt::Debug for LoginSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginSource").field("name", &self.0.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(began_s: i64, ends_s: Option<i64>) -> State {
        State { access: Some(Access { secret: Secret::new("a"), began_s, ends_s }), ..State::default() }
    }

    #[test]
    fn when_a_token_is_renewed() {
        assert_eq!(State::default().need(0), Need::Now);
        let hour = state(0, Some(3600));
        for (now_s, need) in [
            (0, Need::Nothing),
            (3539, Need::Nothing),
            (3540, Need::Soon),
            (3599, Need::Soon),
            (3600, Need::Now),
        ] {
            assert_eq!(hour.need(now_s), need, "at {now_s}");
        }
        let short = state(100, Some(105));
        for (now_s, need) in [(102, Need::Nothing), (103, Need::Soon), (104, Need::Soon), (105, Need::Now)] {
            assert_eq!(short.need(now_s), need, "at {now_s}");
        }
        assert_eq!(state(0, None).need(i64::MAX), Need::Nothing, "nothing says when it ends");
        let mut refused = state(0, Some(3600));
        refused.refused = Some(Secret::new("another"));
        assert_eq!(refused.need(0), Need::Nothing);
        refused.refused = Some(Secret::new("a"));
        assert_eq!(refused.need(0), Need::Now);
        // A clock that jumps: forwards it is over, and backwards it is as good as new.
        assert_eq!((hour.need(i64::MAX), hour.need(i64::MIN)), (Need::Now, Need::Nothing));
    }

    #[test]
    fn a_failure_is_not_repeated_at_every_request() {
        let mut state = state(0, Some(100));
        state.failed = Some((Error::new(ErrorKind::Network, "gone"), 50));
        assert!(state.recent_failure(50).is_some() && state.recent_failure(54).is_some());
        assert!(state.recent_failure(55).is_none(), "it is tried again");
        assert!(state.recent_failure(49).is_none(), "the clock was put back");
    }
}

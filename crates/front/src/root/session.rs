//! The sessions that there are, and the connections of each.
//!
//! A session begins with the login on one connection, its main one, and ends with it. Others join it by its id, which
//! cannot be guessed, and carry answers. What goes between connections of a session goes through their inboxes.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use gridlane_auth::Identity;
use gridlane_core::limits;
use gridlane_xrd::{ErrorCode, PathId, SessionId};
use tokio::sync::mpsc::error::SendError;
use tokio::sync::watch;

use super::answer::Failure;
use super::context::Session;
use super::delegation::{Delegated, Delegation};
use super::event::{Event, Inbox};
use super::identity::is_same;
use super::reading::ReadJob;
use crate::client::Client;

/// All sessions of a server.
pub struct Sessions<F> {
    known: Mutex<HashMap<SessionId, Arc<Connections<F>>>>,
}

impl<F> Default for Sessions<F> {
    fn default() -> Sessions<F> {
        Sessions { known: Mutex::default() }
    }
}

/// State that the connections of a session share.
pub(crate) struct Connections<F> {
    pub(crate) session: Arc<Session<F>>,
    client: IpAddr,
    is_tls: bool,
    /// The identity by the certificate of its main connection.
    certificate: Arc<Identity>,
    /// The identity of its client, since the login.
    identity: OnceLock<Arc<Identity>>,
    /// The reads that its main connection has given to others.
    pub(crate) delegated: Arc<Delegated>,
    bound: Mutex<Bound>,
    /// Nothing is left of it.
    gone: watch::Sender<bool>,
}

#[derive(Default)]
struct Bound {
    paths: [Option<Inbox>; limits::ROOT_BOUND_MAX],
    /// The most that there have been at the same time.
    most: usize,
    /// The main connection has ended.
    is_over: bool,
}

/// A session, for its main connection: ends when this is dropped.
pub(crate) struct Main<F> {
    pub(crate) all: Arc<Connections<F>>,
    sessions: Arc<Sessions<F>>,
}

/// A session, for a connection that joined it: it leaves when this is dropped.
pub(crate) struct Joined<F> {
    pub(crate) all: Arc<Connections<F>>,
    pub(crate) path_id: PathId,
}

impl<F> Sessions<F> {
    /// Begins a session.
    pub(crate) fn begin(
        self: &Arc<Sessions<F>>,
        user: String,
        process: u32,
        agent: String,
        client: &Client,
        is_tls: bool,
        main: Inbox,
    ) -> io::Result<Main<F>>
    where
        F: Default,
    {
        let mut id = SessionId::default();
        // From the operating system: a client that could guess it could end the session, or get its answers.
        rustix::rand::getrandom(&mut id.0, rustix::rand::GetRandomFlags::empty())?;
        let session = Arc::new(Session::new(id, user, process, agent));
        let gone = watch::Sender::new(false);
        let all = Arc::new(Connections {
            session,
            client: client.address,
            is_tls,
            certificate: Arc::clone(&client.identity),
            identity: OnceLock::new(),
            delegated: Arc::new(Delegated::by(main)),
            bound: Mutex::default(),
            gone,
        });
        self.known().insert(id, Arc::clone(&all));
        Ok(Main { all, sessions: Arc::clone(self) })
    }

    /// Joins a session.
    pub(crate) fn join(
        &self,
        id: SessionId,
        client: &Client,
        is_tls: bool,
        inbox: Inbox,
    ) -> Result<Joined<F>, Failure> {
        let unknown = || Failure::new(ErrorCode::NOT_FOUND, "session not found");
        let all = self.known().get(&id).cloned().ok_or_else(unknown)?;
        let (own, other) = (&all.certificate, &client.identity);
        let is_other = !own.is_anonymous() && !other.is_anonymous() && !is_same(own, other);
        if all.client != client.address || is_other {
            let what = "the session is another client's";
            return Err(Failure::new(ErrorCode::NOT_AUTHORIZED, what));
        }
        if all.is_tls && !is_tls {
            let what = "the session is encrypted: begin TLS on this connection as well";
            return Err(Failure::new(ErrorCode::TLS_REQUIRED, what));
        }
        let mut bound = all.lock();
        if bound.is_over {
            return Err(unknown());
        }
        let Some(free) = bound.paths.iter().position(Option::is_none) else {
            return Err(Failure::new(ErrorCode::NO_MEMORY, "bind limit exceeded"));
        };
        bound.paths[free] = Some(inbox);
        bound.most = bound.most.max(free + 1);
        drop(bound);
        let path_id = PathId(u8::try_from(free + 1).unwrap_or(u8::MAX));
        Ok(Joined { all, path_id })
    }

    /// The session of this id that this client has begun. An anonymous one belongs to every client of the same address.
    pub(crate) fn of_client(
        &self,
        id: SessionId,
        client: &Client,
    ) -> Result<Option<Arc<Connections<F>>>, Failure> {
        let is_other = |all: &Connections<F>| {
            let owner = all.identity();
            all.client != client.address || !owner.is_anonymous() && !is_same(owner, &client.identity)
        };
        match self.known().get(&id) {
            Some(all) if is_other(all) => Err(Failure::new(ErrorCode::NOT_AUTHORIZED, "not session owner")),
            all => Ok(all.cloned()),
        }
    }

    /// The number of sessions.
    pub fn count(&self) -> usize {
        self.known().len()
    }

    fn known(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Connections<F>>>> {
        // Every change is complete in itself.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F> Connections<F> {
    /// Its client has proved this identity.
    pub(crate) fn proved(&self, identity: Arc<Identity>) {
        // There is one login.
        let _ = self.identity.set(identity);
    }

    /// The identity of its client.
    pub(crate) fn identity(&self) -> &Arc<Identity> {
        self.identity.get().unwrap_or(&self.certificate)
    }

    /// Ends the session, and waits until nothing is left of it.
    pub(crate) async fn end(&self) {
        let mut gone = self.gone.subscribe();
        // Without a receiver it has ended.
        let _ = self.delegated.main().send(Event::End);
        let _ = gone.wait_for(|gone| *gone).await;
    }

    /// The inbox of the connection that carries answers of this path; `None` when it was never bound, or is not any
    /// longer.
    pub(crate) fn path(&self, path_id: PathId) -> Option<Inbox> {
        let index = usize::from(path_id.0).checked_sub(1)?;
        self.lock().paths.get(index)?.clone()
    }

    /// Gives a read to a bound connection; it comes back when that has ended meanwhile.
    pub(crate) fn delegate(&self, path: &Inbox, mut job: ReadJob) -> Result<(), Box<ReadJob>> {
        job.delegation = Some(Delegation::new(&self.delegated, job.pending.stream));
        match path.send(Event::Delegated(job)) {
            Err(SendError(Event::Delegated(mut job))) => {
                job.delegation.take().into_iter().for_each(Delegation::settle);
                Err(Box::new(job))
            }
            _ => Ok(()),
        }
    }

    /// True if a connection has had this path.
    pub(crate) fn was_bound(&self, path_id: PathId) -> bool {
        path_id != PathId::MAIN && usize::from(path_id.0) <= self.lock().most
    }

    fn lock(&self) -> MutexGuard<'_, Bound> {
        // Every change is complete in itself.
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F> Main<F> {
    /// Tells the other connections that it is over, and forgets the session: no other joins it any longer.
    pub(crate) fn close(&self) {
        self.sessions.known().remove(&self.all.session.id);
        let mut bound = self.all.lock();
        bound.is_over = true;
        for inbox in bound.paths.iter_mut().filter_map(Option::take) {
            // A connection that is gone need not be told.
            let _ = inbox.send(Event::End);
        }
    }
}

impl<F> Drop for Main<F> {
    fn drop(&mut self) {
        self.close();
        self.all.gone.send_replace(true);
    }
}

impl<F> Drop for Joined<F> {
    fn drop(&mut self) {
        let mut bound = self.all.lock();
        if let Some(path) = bound.paths.get_mut(usize::from(self.path_id.0).wrapping_sub(1)) {
            *path = None;
        }
    }
}

//! The client, session, connection and settings that a request is answered with.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use gridlane_xrd::SessionId;

use super::rounds::LoginProof;
use crate::client::Client;
use crate::front::Front;
use crate::generation::Generation;
use crate::phase::Stopping;
use crate::service::Service;

/// A session: what its connections share, and what ends with the first of them.
pub struct Session<F> {
    /// Its id, by which other connections join it.
    pub(crate) id: SessionId,
    /// The user's name by the client. Nothing depends on it being true.
    pub user: String,
    /// The number of the client's process, by the client.
    pub process: u32,
    /// The client's program and its version by the client, for the log.
    pub(crate) agent: String,
    /// The client's activity in its own words, for the log.
    purpose: Mutex<String>,
    /// The files that it has open.
    pub files: F,
}

impl<F> Session<F> {
    /// One that has no file open.
    pub(crate) fn new(
        id: SessionId,
        user: impl Into<String>,
        process: u32,
        agent: impl Into<String>,
    ) -> Session<F>
    where
        F: Default,
    {
        let (user, agent) = (user.into(), agent.into());
        Session { id, user, process, agent, purpose: Mutex::default(), files: F::default() }
    }

    /// The client's activity in its own words; empty if it names none.
    pub(crate) fn purpose(&self) -> String {
        self.purpose.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Remembers the client's activity.
    pub(crate) fn set_purpose(&self, purpose: String) {
        *self.purpose.lock().unwrap_or_else(PoisonError::into_inner) = purpose;
    }
}

/// The connection that a request came by.
#[derive(Clone, Debug)]
pub struct Link {
    /// The address at which the client reached the server.
    pub local: SocketAddr,
    /// The other end, or the client that a trusted proxy names.
    pub peer: SocketAddr,
    /// That proxy.
    pub proxy: Option<SocketAddr>,
    /// The version of TLS, if it protects the connection.
    pub tls: Option<&'static str>,
}

/// The context of a request: the settings of the moment when it came, and its client.
pub struct Context<S: Service> {
    /// The settings of the moment when it came.
    pub generation: Arc<Generation<S>>,
    /// The client: by the credentials in the request where those are looked at; else by the login.
    pub client: Client,
    /// The proof of the login, as if every request had it.
    pub proof: Option<LoginProof>,
    /// The session of the connection.
    pub session: Arc<Session<S::Files>>,
    /// The connection that it came by.
    pub link: Arc<Link>,
    /// True if the client understands answers that come later.
    pub takes_later: bool,
    /// Tells when the server stops.
    pub stopping: Stopping,
}

impl<S: Service> Clone for Context<S> {
    fn clone(&self) -> Context<S> {
        Context {
            generation: Arc::clone(&self.generation),
            client: self.client.clone(),
            proof: self.proof.clone(),
            session: Arc::clone(&self.session),
            link: Arc::clone(&self.link),
            takes_later: self.takes_later,
            stopping: self.stopping.clone(),
        }
    }
}

impl<S: Service> Context<S> {
    /// The front.
    pub fn front(&self) -> &Arc<Front> {
        &self.generation.front
    }

    /// The service.
    pub fn service(&self) -> &S {
        &self.generation.service
    }

    /// Counts each path of a request as a request of its own: the first one is counted already. It is answered all the same,
    /// and its client waits with the next one.
    pub fn count_paths(&self, paths: usize) {
        let (limits, throttle) = (&self.front().limits, &self.front().throttle);
        let more = u32::try_from(paths.saturating_sub(1)).unwrap_or(u32::MAX);
        throttle.owe(&limits.of_address(self.client.address), more);
        throttle.owe(&limits.of_identity(&self.client.identity), more);
    }
}

//! The steps before the first request: TLS, login, authentication, or joining a session that there is.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use gridlane_core::limits;
use gridlane_xrd::answer::LoginAnswer;
use gridlane_xrd::path::pairs;
use gridlane_xrd::request::{Auth, Bind, Login};
use gridlane_xrd::{ErrorCode, Request, RequestId, Status, StreamId};
use tokio::time::{sleep, timeout};

use super::{Connection, Role};
use crate::auth::certificates::Judged;
use crate::auth::keys::now_s;
use crate::client::Client;
use crate::phase::Stopping;
use crate::root::answer::Failure;
use crate::root::context::{Context, Link};
use crate::root::outbox::Sent;
use crate::root::rounds::{On, Proved, Round, Rounds};
use crate::root::{identity, log};
use crate::service::Service;
use crate::settings::RootAuth;

impl<S: Service> Connection<S> {
    /// Answers a client that what it sent is wrong.
    pub(super) fn refuse(&mut self, stream: StreamId, id: RequestId, failure: Failure) -> io::Result<()> {
        log::refused(&self.front, &self.link()?, id, self.clock.active, &failure);
        self.outbox.failure(stream, &failure);
        self.is_ending |= failure.closes;
        Ok(())
    }

    /// Sends what there is in clear text, and begins with TLS.
    pub(super) async fn start_tls(&mut self) -> io::Result<()> {
        let deadline = self.front.data.deadlines.head;
        let flushed = async {
            loop {
                let mut moved = 0;
                match self.outbox.send(&mut self.wire.stream, usize::MAX, &mut moved)? {
                    Sent::Full => self.wire.stream.ready(false, true).await?,
                    _ => return Ok::<(), io::Error>(()),
                }
            }
        };
        timeout(deadline, flushed).await.map_err(|_| io::ErrorKind::TimedOut)??;
        let ahead = std::mem::take(&mut self.wire.inbox);
        let upgraded = self.front.acceptor.upgrade(&mut self.wire.stream, ahead.unread()).await;
        upgraded.map_err(io::Error::other)?;
        self.machine.tls_begun();
        Ok(())
    }

    pub(super) fn login(&mut self, stream: StreamId, login: &Login) -> io::Result<()> {
        self.renew();
        self.look_at_certificate();
        let is_tls = self.wire.stream.is_tls();
        let offered = match identity::offered(&self.front, is_tls) {
            Ok(offered) => offered,
            Err(failure) => return self.refuse(stream, RequestId::LOGIN, failure),
        };
        let user = String::from_utf8_lossy(&login.user);
        let user = user.chars().filter(|char| !char.is_control()).collect();
        let (sessions, events) = (&self.generation.sessions, self.events.clone());
        let main = sessions.begin(user, login.process, agent_of(login), &self.client, is_tls, events)?;
        let session = Arc::clone(&main.all.session);
        let mut body = Vec::new();
        LoginAnswer { session: session.id, methods: identity::method_list(&self.front, &offered) }
            .encode(&mut body);
        self.outbox.answer(stream, Status::OK, body);
        self.machine.logged_in(!offered.is_empty());
        let link = Arc::new(self.link()?);
        let (generation, client, takes_later) =
            (Arc::clone(&self.generation), self.client.clone(), login.is_async());
        let stopping = Stopping::new(self.phase.clone());
        let context = Context { generation, client, proof: None, session, link, takes_later, stopping };
        self.role = match offered.is_empty() {
            true => Role::Main(main, context),
            false => Role::Unauthenticated(main, context),
        };
        if let Some(context) = self.context() {
            let request = Request::Login(login.clone());
            log::answered(context, &context.client, &request, self.clock.active, None, 0);
        }
        Ok(())
    }

    /// A client whose token is refused may show another one, or go on with another method.
    pub(super) async fn authenticate(&mut self, stream: StreamId, auth: &Auth) -> io::Result<()> {
        let began = Instant::now();
        let offered = identity::offered(&self.front, self.wire.stream.is_tls()).unwrap_or_default();
        let Some(method) = offered.into_iter().find(|method| method.name().as_bytes() == auth.kind) else {
            let kind = String::from_utf8_lossy(&auth.kind).replace(char::is_control, "");
            let text = format!("{kind} security protocol is not supported.");
            return self.refuse(stream, RequestId::AUTH, Failure::new(ErrorCode::AUTH_FAILED, text));
        };
        let on = On { peer: self.wire.stream.peer(), is_for_copies: self.machine.is_for_copies() };
        let mut rounds = Rounds::by(method, on, self.rounds.take());
        let proved = match rounds.next(&self.front, &self.client, &auth.credentials).await {
            Ok(Round::Over(proved)) => proved,
            Ok(Round::GoesOn(more)) => {
                self.rounds = Some(rounds);
                self.outbox.answer(stream, Status::AUTHMORE, more);
                return Ok(());
            }
            Err(failure) => {
                self.refused_proofs += 1;
                if self.refused_proofs > limits::ROOT_PROOFS_FREE_MAX {
                    sleep(limits::ROOT_PROOF_PAUSE).await;
                }
                let what = match method {
                    RootAuth::Ztn => "the token of the login".to_owned(),
                    method => format!("the login by {}", method.name()),
                };
                let doubt = format!("{what} was not taken: {}", failure.text);
                self.doubt(doubt.into());
                return self.refuse(stream, RequestId::AUTH, failure);
            }
        };
        let mut key = None;
        self.role = match std::mem::replace(&mut self.role, Role::NotLoggedIn) {
            Role::Unauthenticated(main, mut context) => {
                if let Some(Proved { identity, doubt, by, key: agreed }) = proved {
                    key = agreed;
                    (context.client.identity, context.client.doubt) = (identity, doubt);
                    context.proof = Some(by);
                }
                main.all.proved(Arc::clone(&context.client.identity));
                Role::Main(main, context)
            }
            other => other,
        };
        self.machine.authenticated(key);
        self.outbox.answer(stream, Status::OK, Vec::new());
        if let Some(context) = self.context() {
            log::answered(context, &context.client, &auth.clone().into(), began, None, 0);
        }
        Ok(())
    }

    /// Keeps what was wrong with a method, for a client that goes on by another one and is refused something.
    fn doubt(&mut self, doubt: Arc<str>) {
        if let Role::Unauthenticated(_, context) = &mut self.role {
            context.client.doubt = Some(doubt);
        }
    }

    /// Finds the identity of the connection's certificate, at this moment.
    pub(super) fn look_at_certificate(&mut self) {
        let stream = &self.wire.stream;
        self.client.is_secure =
            stream.is_tls() || self.client.address.is_loopback() && stream.proxy().is_none();
        match self.chain.judged(&self.front, stream, now_s()) {
            Some(Judged { identity, doubt }) => (self.client.identity, self.client.doubt) = (identity, doubt),
            None if self.client.identity.is_anonymous() && self.client.doubt.is_none() => return,
            // Certificates counted when it came, and do no longer.
            None => {
                (self.client.identity, self.client.doubt) =
                    (Client::anonymous(self.client.address).identity, None);
            }
        }
        if let Role::Main(_, context) | Role::Unauthenticated(_, context) = &mut self.role
            && context.proof.is_none()
        {
            let tokens = context.client.doubt.take().filter(|_| self.client.doubt.is_none());
            context.client.identity = Arc::clone(&self.client.identity);
            context.client.doubt = self.client.doubt.clone().or(tokens);
        }
    }

    pub(super) fn bind(&mut self, stream: StreamId, bind: &Bind) -> io::Result<()> {
        self.look_at_certificate();
        let is_tls = self.wire.stream.is_tls();
        let sessions = &self.generation.sessions;
        match sessions.join(bind.session, &self.client, is_tls, self.events.clone()) {
            Ok(joined) => {
                self.outbox.answer(stream, Status::OK, vec![joined.path_id.0]);
                let (generation, session) = (Arc::clone(&self.generation), Arc::clone(&joined.all.session));
                let link = Arc::new(self.link()?);
                let mut client = self.client.clone();
                client.identity = Arc::clone(joined.all.identity());
                let (stopping, takes_later) = (Stopping::new(self.phase.clone()), false);
                let context =
                    Context { generation, client, proof: None, session, link, takes_later, stopping };
                self.role = Role::Bound(joined, context);
                self.machine.bound();
                Ok(())
            }
            Err(failure) => self.refuse(stream, RequestId::BIND, failure),
        }
    }

    /// The connection, for logs.
    pub(super) fn link(&self) -> io::Result<Link> {
        let stream = &self.wire.stream;
        Ok(Link {
            local: stream.local()?,
            peer: stream.peer(),
            proxy: stream.proxy(),
            tls: stream.tls_version(),
        })
    }
}

/// The client's program: its name and version.
fn agent_of(login: &Login) -> String {
    let value = |key: &[u8]| {
        let found = pairs(&login.cgi).find(|(name, _)| *name == key).map(|(_, value)| value);
        let text = String::from_utf8_lossy(found.unwrap_or_default()).replace(char::is_control, "");
        text.chars().take(limits::LOGGED_FIELD_BYTES_MAX / 4).collect::<String>()
    };
    [value(b"xrd.appname"), value(b"xrd.rn")].join(" ").trim().to_owned()
}

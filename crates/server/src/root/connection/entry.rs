//! How a client gets in: TLS, login, proof, or as a part of a session that there is.

use std::io;
use std::sync::Arc;

use gridlane_core::limits;
use gridlane_xrd::answer::LoginAnswer;
use gridlane_xrd::path::pairs;
use gridlane_xrd::request::{Auth, Bind, Login};
use gridlane_xrd::{ErrorCode, Request, RequestId, Status, StreamId};
use tokio::time::timeout;

use super::{Connection, Role};
use crate::root::answer::Failure;
use crate::root::context::{Context, Link};
use crate::root::log;
use crate::root::outbox::Sent;
use crate::settings::RootAuth;

impl Connection {
    /// Tells a client what is wrong with what it sent.
    pub(super) fn refuse(&mut self, stream: StreamId, id: RequestId, failure: Failure) -> io::Result<()> {
        log::refused(&self.shared, &self.link()?, id, self.clock.active, &failure);
        self.outbox.failure(stream, &failure);
        self.is_ending |= failure.closes;
        Ok(())
    }

    /// Sends what there is in clear text, and begins with TLS.
    pub(super) async fn start_tls(&mut self) -> io::Result<()> {
        let deadline = self.shared.deadlines.head;
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
        let upgraded = self.shared.acceptor.upgrade(&mut self.wire.stream, ahead.unread()).await;
        upgraded.map_err(io::Error::other)?;
        self.machine.tls_begun();
        Ok(())
    }

    pub(super) fn login(&mut self, stream: StreamId, login: &Login) -> io::Result<()> {
        self.renew();
        let user = String::from_utf8_lossy(&login.user);
        let user = user.chars().filter(|char| !char.is_control()).collect();
        let (address, is_tls) = (self.client.address, self.wire.stream.is_tls());
        let begun =
            self.shared.root_sessions.begin(user, agent_of(login), address, is_tls, self.events.clone());
        let main = begun?;
        let methods: &[u8] = match self.shared.root.auth {
            RootAuth::None => b"",
            RootAuth::Host => b"&P=host",
            RootAuth::Unix => b"&P=unix",
        };
        let session = Arc::clone(&main.all.session);
        let mut body = Vec::new();
        LoginAnswer { session: session.id, methods: methods.to_vec() }.encode(&mut body);
        self.outbox.answer(stream, Status::OK, body);
        self.machine.logged_in(!methods.is_empty());
        let link = Arc::new(self.link()?);
        let (shared, client, takes_later) = (Arc::clone(&self.shared), self.client.clone(), login.is_async());
        let context = Context { shared, client, session, link, takes_later };
        self.role = match methods.is_empty() {
            true => Role::Main(main, context),
            false => Role::Unproved(main, context),
        };
        if let Some(context) = self.context() {
            let request = Request::Login(login.clone());
            log::answered(context, &request, self.clock.active, None, None, 0);
        }
        Ok(())
    }

    pub(super) fn authenticate(&mut self, stream: StreamId, auth: &Auth) -> io::Result<()> {
        let offered: &[u8] = match self.shared.root.auth {
            RootAuth::Host => b"host",
            RootAuth::None | RootAuth::Unix => b"unix",
        };
        if auth.kind != offered {
            let kind = String::from_utf8_lossy(&auth.kind).replace(char::is_control, "");
            let text = format!("{kind} security protocol is not supported.");
            return self.refuse(stream, RequestId::AUTH, Failure::new(ErrorCode::AUTH_FAILED, text));
        }
        self.role = match std::mem::replace(&mut self.role, Role::Stranger) {
            Role::Unproved(main, context) => Role::Main(main, context),
            other => other,
        };
        self.machine.authenticated();
        self.outbox.answer(stream, Status::OK, Vec::new());
        Ok(())
    }

    pub(super) fn bind(&mut self, stream: StreamId, bind: &Bind) -> io::Result<()> {
        let (address, is_tls) = (self.client.address, self.wire.stream.is_tls());
        let joined = self.shared.root_sessions.join(bind.session, address, is_tls, self.events.clone());
        match joined {
            Ok(joined) => {
                self.outbox.answer(stream, Status::OK, vec![joined.path_id.0]);
                let (shared, session) = (Arc::clone(&self.shared), Arc::clone(&joined.all.session));
                let link = Arc::new(self.link()?);
                let context =
                    Context { shared, client: self.client.clone(), session, link, takes_later: false };
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

/// What a client says that it is: its program's name and version.
fn agent_of(login: &Login) -> String {
    let value = |key: &[u8]| {
        let found = pairs(&login.cgi).find(|(name, _)| *name == key).map(|(_, value)| value);
        let text = String::from_utf8_lossy(found.unwrap_or_default()).replace(char::is_control, "");
        text.chars().take(limits::LOGGED_FIELD_BYTES_MAX / 4).collect::<String>()
    };
    [value(b"xrd.appname"), value(b"xrd.rn")].join(" ").trim().to_owned()
}

//! Helpers for tests of services.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use gridlane_core::Result;
use gridlane_xrd::SessionId;
use tokio::sync::watch;

use crate::client::Client;
use crate::generation::Generation;
use crate::phase::{Phase, Stopping};
use crate::root::context::{Context, Link, Session};
use crate::service::Service;
use crate::settings::Settings;

/// The phase of a server that never stops.
static SERVING: LazyLock<watch::Sender<Phase>> = LazyLock::new(|| watch::Sender::new(Phase::Serving));

/// A session of root:// with these settings, without a connection, for tests of requests to a service.
pub fn context<S: Service>(settings: Settings<S::Settings>) -> Result<Context<S>> {
    let (local, peer) =
        (SocketAddr::from(([127, 0, 0, 1], 1094)), SocketAddr::from(([127, 0, 0, 1], 40_000)));
    let generation = Generation::first(settings, 1_795_327_850)?;
    generation.front.begin();
    Ok(Context {
        generation: Arc::new(generation),
        client: Client::anonymous(peer.ip()),
        proof: None,
        session: Arc::new(Session::new(SessionId::default(), "ann", 7, "xrdcp v5.5.3")),
        link: Arc::new(Link { local, peer, proxy: None, tls: None }),
        takes_later: true,
        stopping: Stopping::new(SERVING.subscribe()),
    })
}

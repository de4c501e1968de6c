//! Generations of settings: a reload makes another one; a request that runs keeps the one that it began with.

use std::sync::Arc;

use gridlane_core::Result;
use tokio::sync::watch;

use crate::front::{Front, Lasting};
use crate::root::session::Sessions;
use crate::service::Service;
use crate::settings::Settings;

/// One generation: the front, the service behind it, and the sessions of root://, which all generations share.
pub struct Generation<S: Service> {
    pub(crate) front: Arc<Front>,
    pub(crate) service: S,
    /// The sessions of clients of root://.
    pub sessions: Arc<Sessions<S::Files>>,
}

/// The generation of the moment.
pub(crate) type Current<S> = watch::Receiver<Arc<Generation<S>>>;

impl<S: Service> Generation<S> {
    /// The first one of a server that started at this moment, in seconds since 1970.
    pub(crate) fn first(settings: Settings<S::Settings>, started_s: u64) -> Result<Generation<S>> {
        let (front, settings) = Front::new(settings, Lasting::new(started_s)?);
        let front = Arc::new(front);
        let service = S::new(settings, &front, None)?;
        Ok(Generation { front, service, sessions: Arc::default() })
    }

    /// Another one, by other settings. Fails without having changed anything.
    pub(crate) fn next(&self, settings: Settings<S::Settings>) -> Result<Generation<S>> {
        let (front, settings) = Front::new(settings, self.front.lasting());
        let front = Arc::new(front);
        let service = S::new(settings, &front, Some(&self.service))?;
        Ok(Generation { front, service, sessions: Arc::clone(&self.sessions) })
    }
}

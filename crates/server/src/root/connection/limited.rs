//! What the client of a connection may take: its address, its user and its virtual organisation have limits.

use std::time::Duration;

use gridlane_xrd::ErrorCode;

use super::Connection;
use crate::client::Client;
use crate::root::answer::{Answer, Failure, Outcome};
use crate::shared::Shared;
use crate::throttle::By;

/// Takes a request from what its client may ask; whose allowance is used up and how long to wait, if so.
pub(super) fn take_request(shared: &Shared, client: &Client) -> Result<(), (By, Duration)> {
    let (limits, throttle) = (&shared.limits, &shared.throttle);
    let taken = throttle.request(&limits.at(client.address));
    taken
        .and_then(|()| throttle.request(&limits.who(&client.identity)))
        .inspect_err(|(by, _)| shared.metrics.throttled(*by))
}

impl Connection {
    /// Takes a request from what the client may ask; the answer if it has to wait, or has too many connections.
    pub(super) fn allowance(&mut self) -> Result<(), Outcome> {
        self.count_user().map_err(|by| {
            let what = format!("{} has too many connections open", by.named());
            Err(Failure { closes: true, ..Failure::new(ErrorCode::OVERLOADED, what) })
        })?;
        take_request(&self.shared, &self.client).map_err(|(by, wait)| {
            let seconds = u32::try_from(wait.as_secs() + 1).unwrap_or(u32::MAX);
            Ok(Answer::Wait(seconds, format!("{} asks too often", by.named())))
        })
    }

    /// Goes by the rate limits of this moment.
    pub(super) fn renew_paces(&mut self) {
        let (limits, throttle) = (&self.shared.limits, &self.shared.throttle);
        let of_client = throttle.paces(&limits.at(self.client.address));
        self.paces = of_client.and(throttle.paces(&limits.who(&self.client.identity)));
    }

    /// Counts the connection for whoever the client has proved to be, from then on.
    fn count_user(&mut self) -> Result<(), By> {
        let parties = self.shared.limits.who(&self.client.identity);
        if self.counted.0 != parties {
            self.counted = Default::default();
            let counted = self.shared.count(self.client.address, &parties);
            let connected = counted.inspect_err(|by| self.shared.metrics.refused(*by))?;
            self.counted = (parties, connected);
            self.renew_paces();
        }
        Ok(())
    }
}

//! Limits of a connection's client: of its address, its user and its virtual organisation.
//!
//! The identity is that of the login. Credentials in a request are looked at later, when it may be waited for: then it
//! counts as a request of their bearer. Connections and bytes count for the session's client alone.

use std::time::Duration;

use gridlane_xrd::ErrorCode;

use super::{Connection, Role};
use crate::client::Client;
use crate::root::answer::{Answer, Failure, Outcome};
use crate::root::context::Context;
use crate::service::Service;
use crate::throttle::By;

/// The client of the connection.
pub(super) fn client_of<'a, S: Service>(role: &'a Role<S>, stranger: &'a Client) -> &'a Client {
    match role {
        Role::Main(_, context) | Role::Unauthenticated(_, context) | Role::Bound(_, context) => {
            &context.client
        }
        Role::NotLoggedIn => stranger,
    }
}

/// Takes a request from the allowance of a client that has shown other credentials in it, while the connection was
/// counted for the session's; returns the answer if it has to wait.
pub(in crate::root) fn own_allowance<S: Service>(
    context: &Context<S>,
    client: &Client,
) -> Result<(), Outcome> {
    let front = context.front();
    let parties = front.limits.of_identity(&client.identity);
    if parties.are_none() || parties == front.limits.of_identity(&context.client.identity) {
        return Ok(());
    }
    let taken = front.throttle.request(&parties);
    taken
        .inspect_err(|(by, _)| front.data.metrics.throttled(*by))
        .map_err(|(by, wait)| asks_too_often(by, wait))
}

fn asks_too_often(by: By, wait: Duration) -> Outcome {
    let seconds = u32::try_from(wait.as_secs() + 1).unwrap_or(u32::MAX);
    Ok(Answer::Wait(seconds, format!("{} sends too many requests", by.named())))
}

impl<S: Service> Connection<S> {
    /// Takes a request from the client's allowance; returns the answer if it has to wait, or has too many connections.
    pub(super) fn allowance(&mut self) -> Result<(), Outcome> {
        self.count_user().map_err(|by| {
            self.front.data.metrics.refused(by);
            let what = format!("{} has too many connections open", by.named());
            Err(Failure::new(ErrorCode::OVERLOADED, what).closing())
        })?;
        self.front
            .take_request(client_of(&self.role, &self.client))
            .map_err(|(by, wait)| asks_too_often(by, wait))
    }

    /// Goes by the rate limits of this moment.
    pub(super) fn renew_paces(&mut self) {
        let (limits, throttle) = (&self.front.limits, &self.front.throttle);
        let client = client_of(&self.role, &self.client);
        let of_address = throttle.paces(&limits.of_address(client.address));
        self.paces = of_address.and(throttle.paces(&limits.of_identity(&client.identity)));
    }

    /// Counts the connection for its user at once, if there is room. If not, its first request is told so: a connection
    /// that ends without an answer is only made again.
    pub(super) fn begin_counting(&mut self) {
        let _ = self.count_user();
    }

    /// The same of one that has joined a session, which asks nothing by itself: it ends, and the session does without it.
    pub(super) fn end_if_too_many(&mut self) {
        if let Err(by) = self.count_user() {
            self.front.data.metrics.refused(by);
            self.is_ending = true;
        }
    }

    /// Counts the connection for the identity that the client has proved, from then on.
    fn count_user(&mut self) -> Result<(), By> {
        let client = client_of(&self.role, &self.client);
        let parties = self.front.limits.of_identity(&client.identity);
        if self.counted.0 != parties {
            self.counted = Default::default();
            let connected = self.front.count(client.address, &parties)?;
            self.counted = (parties, connected);
            self.renew_paces();
        }
        Ok(())
    }
}

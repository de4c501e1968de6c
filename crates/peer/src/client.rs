//! The client of all protocols, which every copy and every request goes through.

use std::time::Duration;

use gridlane_core::Url;
use gridlane_net::Dialer;

use crate::memory::Asked;
use crate::paths::{Paths, ReadPaths};
use crate::unresponsive::UnresponsiveServers;
use crate::{Credentials, http, root};

/// Reaches servers, whatever protocol they speak. Its clones share everything that it keeps: idle connections, and what it
/// has learned of servers.
///
/// A process that serves several users has a clone for each, with their [credentials](Client::credentials): connections,
/// sessions and whatever else depends on the identity are then each user's own.
#[derive(Clone)]
pub struct Client {
    /// For `http` and `https`.
    pub http: http::Client,
    /// For `root` and `roots`.
    pub root: root::Client,
    /// The user's credentials, and the endpoints that may see them.
    pub credentials: Credentials,
    /// Connections of earlier copies: their rates and round trips.
    pub paths: Paths,
    /// What files that were read here and there have shown of the paths to their servers.
    pub read_paths: ReadPaths,
    /// Servers that were waited for in vain.
    pub unresponsive: UnresponsiveServers,
    dialer: Dialer,
}

impl Client {
    /// A client that connects with `dialer` and waits for the beginning of an answer up to `answer_max`.
    pub fn new(dialer: Dialer, answer_max: Duration) -> Client {
        let http = http::Client::new(dialer.clone(), answer_max);
        let (credentials, paths, read_paths, unresponsive) = Default::default();
        let root = root::Client::new(dialer.clone(), answer_max);
        Client { http, root, credentials, paths, read_paths, unresponsive, dialer }
    }

    /// The way to servers, by which its connections are made.
    pub fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    /// The key by which servers that [were waited for in vain](Client::unresponsive) are found.
    pub fn asked(&self, url: &Url) -> Asked {
        Asked::new(url, self.credentials.identity())
    }

    /// The same for another user, with these credentials. What it has learned of servers so far is kept.
    pub fn credentials(mut self, credentials: Credentials) -> Client {
        self.http = self.http.credentials(credentials.clone());
        self.root = self.root.credentials(credentials.clone());
        self.credentials = credentials;
        self
    }
}

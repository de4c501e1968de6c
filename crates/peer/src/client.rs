//! The client of all protocols, which every copy and every question goes through.

use std::time::Duration;

use gridlane_core::Url;
use gridlane_net::Dialer;

use crate::memory::Asked;
use crate::mute::Mutes;
use crate::paths::Paths;
use crate::{Credentials, http, root};

/// Reaches servers, whatever protocol they speak. Its clones share everything that it keeps: idle connections, and what it
/// has learned of servers.
///
/// A process that serves several users has a clone for each, with their [credentials](Client::credentials): connections,
/// sessions and what depends on who asks are then each user's own.
#[derive(Clone)]
pub struct Client {
    /// For `http` and `https`.
    pub http: http::Client,
    /// For `root` and `roots`.
    pub root: root::Client,
    /// What is shown of the user, and to whom.
    pub credentials: Credentials,
    /// What connections did in earlier copies.
    pub paths: Paths,
    /// Servers whose word was waited for in vain.
    pub mute: Mutes,
}

impl Client {
    /// A client that connects with `dialer` and waits for the beginning of an answer up to `answer_max`.
    pub fn new(dialer: Dialer, answer_max: Duration) -> Client {
        let http = http::Client::new(dialer.clone(), answer_max);
        let (credentials, paths, mute) = Default::default();
        Client { http, root: root::Client::new(dialer, answer_max), credentials, paths, mute }
    }

    /// The server of `url`, as what is known of servers that [were waited for in vain](Client::mute) is found by.
    pub fn asked(&self, url: &Url) -> Asked {
        Asked::new(url, self.credentials.identity())
    }

    /// The same for another user, with something to show. What it has learned of servers so far is kept.
    pub fn credentials(mut self, credentials: Credentials) -> Client {
        self.http = self.http.credentials(credentials.clone());
        self.root = self.root.credentials(credentials.clone());
        self.credentials = credentials;
        self
    }
}

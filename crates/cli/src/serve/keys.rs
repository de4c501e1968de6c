//! Fetches what issuers of tokens publish: their descriptions and their keys.

use std::future::Future;
use std::pin::Pin;

use gridlane_core::{Error, ErrorKind, Result, Scheme, Url, limits};
use gridlane_front::KeySource;
use gridlane_net::tls::Trust;
use gridlane_net::{Dialer, Proxies};
use gridlane_peer::http::{Client, Request};

/// Fetches over https, from the host that a URL names and no other.
pub(super) struct KeyFetcher {
    client: Client,
}

impl KeyFetcher {
    /// Believes the certificates that `trust` says. It should not be insecure: a host that could pretend to be an issuer
    /// could have any identity at this server.
    pub(super) fn new(trust: Trust) -> KeyFetcher {
        let proxies = Proxies::from_environment(|name| std::env::var(name).ok());
        let dialer = Dialer::new(trust).proxies(proxies);
        KeyFetcher { client: Client::new(dialer, limits::ISSUER_DOCUMENT_MAX) }
    }

    async fn fetched(&self, url: &str) -> Result<Vec<u8>> {
        let url = Url::parse_absolute(url)?;
        if url.scheme() != Scheme::Https {
            let message = "the keys of an issuer are fetched over https only";
            return Err(Error::new(ErrorKind::Denied, message).endpoint(&url));
        }
        let request = Request::new("GET", &url).header("Accept", "application/json").stays();
        let mut found = self.client.exchange(&request).await?.accept(&[200]).await?;
        found.read_whole(limits::ISSUER_DOCUMENT_BYTES_MAX).await
    }
}

/// Waits for as long as it is let.
impl KeySource for KeyFetcher {
    fn fetch<'a>(&'a self, url: &'a str) -> Pin<Box<dyn Future<Output = Result<Vec<u8>>> + Send + 'a>> {
        Box::pin(self.fetched(url))
    }
}

//! Fetches what issuers of tokens publish: their descriptions and their keys.

use std::future::Future;
use std::pin::Pin;

use gridlane_core::{Error, ErrorKind, Fault, Result, Scheme, Url, limits};
use gridlane_engine::http::{Client, Connected, Exchange, Purpose, Request, follow};
use gridlane_front::KeySource;
use gridlane_net::tls::Trust;
use gridlane_net::{Dialer, Proxies};

/// Redirects at one issuer: what adds or removes a slash. More is a loop.
const REDIRECTS_MAX: usize = 3;

/// Fetches over https, from the host that a URL names and no other.
pub(super) struct KeyFetcher {
    client: Client,
}

impl KeyFetcher {
    /// Believes the certificates that `trust` says. It should not be insecure: whoever could pretend to be an issuer could
    /// be anybody to this server.
    pub(super) fn new(trust: Trust) -> KeyFetcher {
        let proxies = Proxies::from_environment(|name| std::env::var(name).ok());
        let dialer = Dialer::new(trust).proxies(proxies);
        KeyFetcher { client: Client::new(dialer, limits::ISSUER_DOCUMENT_MAX) }
    }

    async fn fetched(&self, url: &str) -> Result<Vec<u8>> {
        let mut at = Url::parse_absolute(url)?;
        for _ in 0..=REDIRECTS_MAX {
            if at.scheme() != Scheme::Https {
                let message = "what an issuer publishes is believed over https only";
                return Err(Error::new(ErrorKind::Denied, message).endpoint(&at));
            }
            // Rare enough for a connection of its own.
            let Connected { mut connection, .. } =
                self.client.connect(&at, &at, Purpose::Question, true).await?;
            connection.send(&Request::new("GET", &at).header("Accept", "application/json")).await?;
            let response = connection.response().await?;
            let next = follow("GET", &at, &response.head)?;
            let exchange = Exchange { connection, response, url: at.clone(), redirects: Vec::new() };
            match next {
                None => {
                    return exchange
                        .accept(&[200])
                        .await?
                        .read_whole(limits::ISSUER_DOCUMENT_BYTES_MAX)
                        .await;
                }
                Some(next) if next.same_endpoint(&at) => at = next,
                Some(next) => {
                    let message = format!("it redirects to {next}, which is another server");
                    return Err(Error::new(ErrorKind::Denied, message).fault(Fault::Peer).endpoint(&at));
                }
            }
        }
        Err(Error::new(ErrorKind::Protocol, "it redirects in a circle").fault(Fault::Peer).endpoint(&at))
    }
}

/// Waits for as long as it is let.
impl KeySource for KeyFetcher {
    fn fetch<'a>(&'a self, url: &'a str) -> Pin<Box<dyn Future<Output = Result<Vec<u8>>> + Send + 'a>> {
        Box::pin(self.fetched(url))
    }
}

//! Asking an issuer: over https, and nowhere else than where its own description says.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gridlane_auth::oidc::{
    Call, Client, DeviceGrant, Grant, IssuerWords, Provider, Tokens, Unusable, device_call, documents,
    read_device, read_provider, read_tokens, token_call,
};
use gridlane_auth::{Cause, Refusal};
use gridlane_core::limits::{ISSUER_DOCUMENT_BYTES_MAX, LOGIN_ANSWER_BYTES_MAX, LOGIN_ANSWER_MAX};
use gridlane_core::{Error, ErrorKind, Fault, Hint, Result, Secret, Url};
use gridlane_net::{Dialer, Proxies};
use gridlane_peer::http;

/// An issuer and its services. It belongs to the runtime that it was made in.
pub struct Issuer {
    way: Way,
    /// Where its services are.
    pub(super) provider: Provider,
}

/// Why there are no tokens.
pub(super) struct NoTokens {
    pub(super) error: Error,
    /// A refresh token that came with others that cannot be used.
    pub(super) refresh: Option<Secret>,
}

impl From<Error> for NoTokens {
    fn from(error: Error) -> NoTokens {
        NoTokens { error, refresh: None }
    }
}

impl From<NoTokens> for Error {
    fn from(none: NoTokens) -> Error {
        none.error
    }
}

/// The way to an issuer, without credentials of anybody: what is sent is in the request.
struct Way {
    client: http::Client,
    /// For what is in clear, which is this machine itself: a proxy that the environment names would see it.
    here: http::Client,
}

impl Way {
    fn new(dialer: &Dialer) -> Way {
        let of = |dialer: Dialer| http::Client::new(dialer, LOGIN_ANSWER_MAX);
        Way { client: of(dialer.clone()), here: of(dialer.clone().proxies(Proxies::default())) }
    }

    fn to(&self, url: &Url) -> &http::Client {
        if url.scheme().is_encrypted() { &self.client } else { &self.here }
    }
}

/// Seconds since 1970.
pub(super) fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

impl Issuer {
    /// Finds out where the services of an issuer are, by its description at one of two places.
    pub async fn find(dialer: &Dialer, issuer: &str) -> Result<Issuer> {
        let places = documents(issuer).map_err(|refusal| {
            Error::new(ErrorKind::Usage, refusal.message)
                .fault(Fault::Caller)
                .hint("https://iam.example.org/")
        })?;
        let way = Way::new(dialer);
        let mut first = None;
        for place in places {
            match described(&way, &place, issuer).await {
                Ok(provider) => return Ok(Issuer { way, provider }),
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or_else(|| Error::new(ErrorKind::NotFound, "the issuer describes itself nowhere")))
    }

    /// The same with services that are known already.
    pub(super) fn known(dialer: &Dialer, provider: Provider) -> Issuer {
        Issuer { way: Way::new(dialer), provider }
    }

    /// Begins a login that a person allows in a browser; with the request, whose secrets answers must not repeat.
    pub(super) async fn device(
        &self,
        client: &Client,
        scope: Option<&str>,
        audience: Option<&str>,
    ) -> Result<DeviceGrant> {
        let call = device_call(&self.provider, client, scope, audience).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "the issuer has no logins by a code (RFC 8628)")
                .endpoint(&self.provider.issuer)
        })?;
        let (status, body) = self.ask(&call).await?;
        let answer =
            read_device(status, &body, &call).map_err(|refusal| misunderstood(refusal, &call.url))?;
        answer.map_err(|words| refused(&words, &call.url))
    }

    /// Asks for tokens; the issuer's words are left to the caller.
    pub(super) async fn try_tokens(
        &self,
        client: &Client,
        grant: Grant<'_>,
        scope: Option<&str>,
        audience: Option<&str>,
    ) -> std::result::Result<std::result::Result<Tokens, IssuerWords>, NoTokens> {
        let call = token_call(&self.provider, client, grant, scope, audience);
        let (status, body) = self.ask(&call).await?;
        read_tokens(status, &body, &call, now_s()).map_err(|Unusable { refusal, refresh }| NoTokens {
            error: misunderstood(refusal, &call.url),
            refresh,
        })
    }

    /// Asks for tokens; the issuer's words are an error.
    pub(super) async fn tokens(
        &self,
        client: &Client,
        grant: Grant<'_>,
        scope: Option<&str>,
        audience: Option<&str>,
    ) -> std::result::Result<Tokens, NoTokens> {
        let answer = self.try_tokens(client, grant, scope, audience).await?;
        answer.map_err(|words| refused(&words, &self.provider.token).into())
    }

    /// Sends a request: once, on a connection of its own, and to no other server.
    async fn ask(&self, call: &Call) -> Result<(u16, Vec<u8>)> {
        let mut request = http::Request::new("POST", &call.url)
            .header("Content-Type", "application/x-www-form-urlencoded")
            .header("Accept", "application/json")
            .stays()
            .body(call.body.expose().as_bytes());
        if let Some(authorization) = &call.authorization {
            request = request.secret("Authorization", authorization.clone());
        }
        let answered = async {
            let mut exchange = self.way.to(&call.url).exchange(&request).await?;
            let status = exchange.status().code();
            Ok((status, exchange.read_whole(LOGIN_ANSWER_BYTES_MAX).await?))
        };
        in_time(answered, &call.url).await
    }
}

async fn described(way: &Way, place: &Url, issuer: &str) -> Result<Provider> {
    let request = http::Request::new("GET", place).header("Accept", "application/json").stays();
    let fetched = async {
        let mut found = way.to(place).exchange(&request).await?.accept(&[200]).await?;
        found.read_whole(ISSUER_DOCUMENT_BYTES_MAX).await
    };
    let document = in_time(fetched, place).await?;
    read_provider(&document, issuer).map_err(|refusal| misunderstood(refusal, place))
}

/// An issuer that answers byte by byte holds up nothing for ever.
async fn in_time<T>(what: impl Future<Output = Result<T>>, url: &Url) -> Result<T> {
    const WHOLE_MAX: Duration = Duration::from_secs(2 * LOGIN_ANSWER_MAX.as_secs());
    tokio::time::timeout(WHOLE_MAX, what).await.unwrap_or_else(|_| {
        let message = format!("no whole answer within {} s", WHOLE_MAX.as_secs());
        Err(Error::new(ErrorKind::Timeout, message).endpoint(url))
    })
}

/// An answer that is none.
fn misunderstood(refusal: Refusal, url: &Url) -> Error {
    let kind = match refusal.cause {
        Cause::Unavailable => ErrorKind::Busy,
        Cause::Untrusted | Cause::Unacceptable => ErrorKind::Denied,
        _ => ErrorKind::Protocol,
    };
    Error::new(kind, refusal.message).fault(Fault::Peer).endpoint(url)
}

/// The error that the issuer's words are.
pub(super) fn refused(words: &IssuerWords, url: &Url) -> Error {
    let kind = if words.is_temporary() { ErrorKind::Busy } else { ErrorKind::Denied };
    let error = Error::new(kind, format!("the issuer says {words}")).fault(Fault::Peer).endpoint(url);
    match words.error.as_str() {
        "invalid_client" | "unauthorized_client" => {
            error.hint("is the client registered there, with this id and secret, and for this kind of login?")
        }
        "invalid_scope" => error.hint("ask for scopes that the issuer has and lets this client have"),
        _ if words.is_over() => error.hint(Hint::LogIn),
        _ => error,
    }
}

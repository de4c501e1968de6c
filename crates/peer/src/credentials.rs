//! Credentials of a user, and the endpoints that may see them.
//!
//! One rule for all protocols: the user's credentials go to the endpoints that the user named, and to hosts that the
//! operator named for it; wherever else a server, a metalink or a page leads, they stay here. Where a request began and
//! where it has come to are both looked at, so that a redirect from one endpoint to another is told apart from a
//! request that the user made there.
//!
//! Only over TLS; the sender has to see to that, since a connection of XRootD's protocol becomes one of TLS later. The
//! user and password of a URL are for that URL's server, and over TLS only as well: see [`sends_password`].

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use gridlane_auth::sss::Keytab;
use gridlane_core::{Error, ErrorKind, Fault, Hint, Result, Secret, Url};
use gridlane_net::tls::ClientIdentity;
use gridlane_net::{Identity, IdentityId};

use crate::forwarded::{Field, Forwarded, Given};

/// A token, and where it is from: a file or a variable, as a person knows it.
#[derive(Clone, Debug)]
pub struct Token {
    /// The token itself: characters that may stand in a header field (RFC 6750, 2.1).
    pub secret: Secret,
    /// `the token of /tmp/bt_u1000`.
    pub from: String,
}

/// Gives the token that is valid now. Asked at every request, so that a renewed one is used at once.
pub trait TokenSource: Send + Sync {
    /// The token; an error of kind `Denied` when there is none any more.
    fn token(&self) -> Result<Token>;

    /// A server has refused `token`: another one, if there is one now, without any delay that [`token`](TokenSource::token)
    /// has; `None` when there is no other. An error of kind `Denied` when it is certain that there is none any more.
    fn refused(&self, token: &Secret) -> Result<Option<Token>> {
        Ok(Some(self.token()?).filter(|now| now.secret != *token))
    }
}

/// Gives the certificate that is valid now. Asked before every new connection, so that a renewed one is shown at once.
pub trait CertificateSource: Send + Sync {
    /// Another certificate than `shown`, if there is one to be shown in its place; `None` as long as that one is to be shown. An
    /// error of kind `Denied` when it has ended and there is no other.
    fn newer(&self, shown: &Certificate) -> Result<Option<Certificate>>;

    /// A server has refused `shown`: another one, if there is one now, without any delay that
    /// [`newer`](CertificateSource::newer) has.
    fn refused(&self, shown: &Certificate) -> Result<Option<Certificate>>;
}

/// Gives the keys that servers of the same site have as well (XRootD's `sss`). Asked at each login that a server wants by one.
pub trait SharedKeys: Send + Sync {
    /// Where they are, as a person knows it.
    fn place(&self) -> String;

    /// The keys; else why there are none, in words.
    fn keys(&self) -> std::result::Result<Keytab, String>;
}

/// A certificate that a user's connections show.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The certificate with its key.
    pub shown: ClientIdentity,
    /// `the proxy of /tmp/x509up_u1000`.
    pub name: String,
}

/// The credentials of a user, and the endpoints that may see them. Its clones are the same; its `Debug` shows no secret.
///
/// Each has an [`Identity`] of its own, to which the connections belong on which it may be shown: no connection of one user
/// carries a request of another, whatever they share otherwise. Credentials that are empty are anonymous.
#[derive(Clone, Default)]
pub struct Credentials(Arc<Inner>);

#[derive(Default)]
struct Inner {
    identity: Identity,
    token: Option<Box<dyn TokenSource>>,
    shared_keys: Option<Arc<dyn SharedKeys>>,
    /// The certificate that new connections show.
    certificate: Option<Mutex<Presented>>,
    /// Where a renewed one comes from.
    certificates: Option<Box<dyn CertificateSource>>,
    forward_to: Vec<HostPattern>,
    /// Endpoints that the user named.
    named: Mutex<Vec<Url>>,
    /// Endpoints that may see them by a redirect, each with the one that it may be from.
    led_to: Mutex<Vec<(Url, Url)>>,
    /// What was given for single servers, in place of all that is above but the identity.
    given: Option<Given>,
}

/// A certificate, and the identity of the connections that show it.
struct Presented {
    certificate: Certificate,
    identity: Identity,
}

/// What there is in place of a credential that a server has refused.
#[derive(Clone, Debug)]
pub enum Renewal {
    /// Another one, which the next request shows.
    Another,
    /// Nothing else.
    Same,
    /// Nothing: the credential has ended, as this says.
    Over(Error),
}

impl Renewal {
    /// The error of a request that was refused and is not tried again, with the end of its credential if that is known.
    pub fn explain(self, refused: Error) -> Error {
        match self {
            Renewal::Over(why) if !refused.message().contains(why.message()) => {
                refused.more(why.message()).hint("renew it: once it is there, the same command may go on")
            }
            _ => refused,
        }
    }
}

/// True if the user and password of a URL are sent to its server by HTTP: over TLS, or where the server is this machine
/// itself, which takes them in clear (as `gridlane serve` does). On any other way they could be read.
pub fn sends_password(url: &Url) -> bool {
    let host = url.host().strip_suffix('.').unwrap_or(url.host());
    let is_here = host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
    url.scheme().is_encrypted() || is_here
}

/// Hosts that may see the user's credentials wherever they are named: a name, or `*.` and a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    /// In lower case; of a pattern, with the dot in front.
    name: String,
    is_domain: bool,
}

impl HostPattern {
    /// Reads `host.example.org`, `*.example.org` or an address. `*` alone would be every host and is refused.
    pub fn parse(text: &str) -> Result<HostPattern> {
        let name = text.trim().to_ascii_lowercase();
        let (name, is_domain) = match name.strip_prefix('*') {
            Some(domain) => (domain.to_owned(), true),
            None => (name.trim_start_matches('[').trim_end_matches(']').to_owned(), false),
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        let is_usable = match is_domain {
            true => name.len() > 2 && name.starts_with('.') && !name.contains(':'),
            false => !name.is_empty(),
        };
        if !is_usable || !name.chars().all(is_plain) {
            return Err(Error::new(ErrorKind::Usage, format!("{text:?} is neither a host nor *.DOMAIN"))
                .fault(Fault::Caller)
                .hint("write hosts without ports: se.example.org,*.example.org"));
        }
        Ok(HostPattern { name, is_domain })
    }

    /// True if a host is meant; a domain's pattern means all below it, and not itself.
    pub fn matches(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        match self.is_domain {
            true => host.len() > self.name.len() && host.ends_with(&self.name),
            false => host == self.name,
        }
    }
}

impl Credentials {
    /// Credentials that no endpoint may see yet, with an identity of their own if they are not empty.
    pub fn new(
        token: Option<Box<dyn TokenSource>>,
        certificate: Option<Certificate>,
        forward_to: Vec<HostPattern>,
    ) -> Credentials {
        Credentials::with_shared_keys(token, certificate, None, forward_to)
    }

    /// The same with keys that servers have as well, which are used over root:// alone, in clear too: what is sent is
    /// encrypted with them.
    pub fn with_shared_keys(
        token: Option<Box<dyn TokenSource>>,
        certificate: Option<Certificate>,
        shared_keys: Option<Arc<dyn SharedKeys>>,
        forward_to: Vec<HostPattern>,
    ) -> Credentials {
        let shown = certificate.as_ref().map(|certificate| certificate.shown.clone());
        let identity = match token.is_some() || shown.is_some() || shared_keys.is_some() {
            true => Identity::new(shown),
            false => Identity::default(),
        };
        let presented = |certificate| Mutex::new(Presented { certificate, identity: identity.clone() });
        let certificate = certificate.map(presented);
        Credentials(Arc::new(Inner {
            identity,
            token,
            shared_keys,
            certificate,
            forward_to,
            ..Inner::default()
        }))
    }

    /// The same, with a source of certificates that take the place of the first one: to be called before they are shared.
    pub fn renewing(self, certificates: Box<dyn CertificateSource>) -> Credentials {
        match Arc::try_unwrap(self.0) {
            Ok(inner) => Credentials(Arc::new(Inner { certificates: Some(certificates), ..inner })),
            Err(shared) => Credentials(shared),
        }
    }

    /// Header fields that a user has given for requests to certain servers: those of a third-party copy. Nothing needs to
    /// be [named](Credentials::name), and no other host ever sees them.
    ///
    /// A request carries the fields of the URL that it began at, or else the first ones for the endpoint of that URL. Where
    /// a redirect leads to another endpoint, only those go along that are known to be no secrets, and a secret in clear to
    /// another machine is an error of kind [`Denied`](ErrorKind::Denied). A request's own fields stand, but `User-Agent`.
    /// Over root:// the token of `Authorization` is that of the login, which sends it over TLS only; nothing else is sent.
    ///
    /// Connections to these endpoints belong to `identity`: the next credentials with it find them. An error of kind
    /// [`Usage`](ErrorKind::Usage), the caller's fault, for fields that cannot be sent or are a request's own.
    pub fn forwarding(identity: Identity, given: Vec<Forwarded>) -> Result<Credentials> {
        let given = Some(Given::new(given)?);
        Ok(Credentials(Arc::new(Inner { identity, given, ..Inner::default() })))
    }

    /// The identity by which their user is known in this process: the same one for as long as they are there.
    pub fn identity(&self) -> &Identity {
        &self.0.identity
    }

    /// The identity of new connections on which they may be shown. A renewed certificate is another identity, so that
    /// connections which have shown the old one are left alone from then on. An error of kind `Denied` when the certificate has
    /// ended and there is no other.
    pub fn shown_identity(&self) -> Result<Identity> {
        let Some(presented) = &self.0.certificate else { return Ok(self.0.identity.clone()) };
        let mut presented = presented.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(source) = &self.0.certificates
            && let Some(newer) = source.newer(&presented.certificate)?
        {
            presented.take(newer);
        }
        Ok(presented.identity.clone())
    }

    /// A server has refused `token`.
    pub fn renew_token(&self, token: &Secret) -> Renewal {
        match self.0.token.as_ref().map(|source| source.refused(token)) {
            Some(Ok(Some(_))) => Renewal::Another,
            Some(Ok(None)) | None => Renewal::Same,
            Some(Err(why)) => Renewal::Over(why),
        }
    }

    /// A server has refused the certificate of a connection of `identity`.
    pub fn renew_certificate(&self, identity: IdentityId) -> Renewal {
        let Some(presented) = &self.0.certificate else { return Renewal::Same };
        let mut presented = presented.lock().unwrap_or_else(PoisonError::into_inner);
        if identity.is_anonymous() {
            return Renewal::Same;
        }
        if presented.identity.id() != identity {
            // It was renewed since.
            return Renewal::Another;
        }
        match self.0.certificates.as_ref().map(|source| source.refused(&presented.certificate)) {
            Some(Ok(Some(newer))) => {
                presented.take(newer);
                Renewal::Another
            }
            Some(Ok(None)) | None => Renewal::Same,
            Some(Err(why)) => Renewal::Over(why),
        }
    }

    /// Why no request can show them any more: they have ended, and nothing has taken their place. `None` as long as they may
    /// be good.
    pub fn over(&self) -> Option<Error> {
        self.token().err().or_else(|| self.shown_identity().err())
    }

    /// The user has named the endpoint of `url`: requests that begin there may show credentials there.
    pub fn name(&self, url: &Url) {
        let mut named = self.0.named.lock().unwrap_or_else(PoisonError::into_inner);
        if !named.iter().any(|known| known.same_endpoint(url)) {
            named.push(url.clone());
        }
    }

    /// Lets the server of `to` see them too when that of `from` redirects to it: that port of that host, and no other.
    pub fn lead(&self, from: &Url, to: &Url) {
        let mut led_to = self.0.led_to.lock().unwrap_or_else(PoisonError::into_inner);
        led_to.push((from.clone(), to.clone()));
    }

    /// True if there are no credentials.
    pub fn is_empty(&self) -> bool {
        self.0.identity.is_anonymous() && self.0.given.is_none()
    }

    /// True if they are [what was given for single servers](Credentials::forwarding).
    pub(crate) fn are_given(&self) -> bool {
        self.0.given.is_some()
    }

    /// The fields that were given for requests that begin at `origin`.
    pub(crate) fn given(&self, origin: &Url) -> Option<&Arc<[Field]>> {
        self.0.given.as_ref()?.of(origin)
    }

    /// What to do about a host that has not seen them because it may not.
    pub(crate) fn hint_withheld(&self, host: &str) -> Hint {
        match self.are_given() {
            true => {
                "a credential that is given for a server is sent to that server, and on to no other".into()
            }
            false => Hint::ForwardCredentials { host: host.to_owned() },
        }
    }

    /// True if the operator named this host for the user's secrets, wherever the redirect to it is from.
    pub fn may_forward(&self, host: &str) -> bool {
        self.0.forward_to.iter().any(|pattern| pattern.matches(host))
    }

    /// True if the server of `at` may see them, in a request that began at `origin`. TLS is checked elsewhere.
    pub fn may_see(&self, origin: &Url, at: &Url) -> bool {
        if self.are_given() {
            return at.same_endpoint(origin) && self.given(origin).is_some();
        }
        let is_named = || {
            let named = self.0.named.lock().unwrap_or_else(PoisonError::into_inner);
            named.iter().any(|known| known.same_endpoint(at))
        };
        let is_led_to = || {
            let led_to = self.0.led_to.lock().unwrap_or_else(PoisonError::into_inner);
            led_to.iter().any(|(from, to)| from.same_endpoint(origin) && to.same_endpoint(at))
        };
        self.may_forward(at.host()) || (at.same_endpoint(origin) && is_named()) || is_led_to()
    }

    /// The token that is valid now; `None` without one.
    pub fn token(&self) -> Result<Option<Token>> {
        self.0.token.as_ref().map(|source| source.token()).transpose()
    }

    /// The token that is valid now for the login of a request that began at `origin`; `None` without one.
    pub(crate) fn login_token(&self, origin: &Url) -> Result<Option<Token>> {
        match &self.0.given {
            Some(given) => Ok(given.token(origin)),
            None => self.token(),
        }
    }

    /// The keys that servers have as well.
    pub(crate) fn shared_keys(&self) -> Option<Arc<dyn SharedKeys>> {
        self.0.shared_keys.clone()
    }

    /// The name of the certificate of the user's connections.
    pub fn certificate(&self) -> Option<String> {
        let presented = self.0.certificate.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        Some(presented.certificate.name.clone())
    }
}

impl Presented {
    /// Shows another certificate from now on.
    fn take(&mut self, certificate: Certificate) {
        self.identity = Identity::new(Some(certificate.shown.clone()));
        self.certificate = certificate;
    }
}

#[cfg(test)]
impl Certificate {
    /// One that nothing else is known of.
    pub(crate) fn of_test(name: &str) -> Certificate {
        let dir = tempfile::tempdir().unwrap();
        let (certificate, key) = gridlane_net::tls::self_signed(dir.path(), &["ada".to_owned()]).unwrap();
        let read = |file| std::fs::read(file).unwrap();
        let shown = ClientIdentity::from_pem(&read(certificate), &read(key)).unwrap();
        Certificate { shown, name: name.to_owned() }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("identity", &self.0.identity)
            .field("has_token", &self.0.token.is_some())
            .field("shared_keys", &self.0.shared_keys.as_ref().map(|keys| keys.place()))
            .field("certificate", &self.certificate())
            .field("forward_to", &self.0.forward_to)
            .field("given", &self.0.given)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse_absolute(text).unwrap()
    }

    #[test]
    fn a_redirect_may_lead_to_one_endpoint() {
        let certificate = Certificate::of_test("a test");
        let credentials = Credentials::new(None, Some(certificate), Vec::new());
        let manager = url("root://manager.example:1094//f");
        let behind = url("root://data.example:1095//f");
        credentials.name(&manager);
        credentials.lead(&manager, &behind);
        assert!(credentials.may_see(&manager, &manager) && credentials.may_see(&manager, &behind));
        for other in
            ["root://data.example:1094//f", "root://other.example:1095//f", "root://manager.example:1095//f"]
        {
            assert!(!credentials.may_see(&manager, &url(other)), "{other}");
        }
        assert!(
            !credentials.may_see(&url("root://other.example//f"), &behind),
            "by a redirect from elsewhere"
        );
        assert!(!credentials.may_see(&behind, &behind), "it was not named");
    }

    #[test]
    fn a_pattern_is_a_host_or_what_is_below_a_domain() {
        let domain = HostPattern::parse(" *.Example.org").unwrap();
        for (host, is_meant) in [
            ("a.example.org", true),
            ("B.a.EXAMPLE.org.", true),
            ("example.org", false),
            ("aexample.org", false),
            ("a.example.org.evil", false),
        ] {
            assert_eq!(domain.matches(host), is_meant, "{host}");
        }
        assert!(HostPattern::parse("[::1]").unwrap().matches("::1"));
        assert!(!HostPattern::parse("h").unwrap().matches("a.h"));
        for bad in ["", "*", "*.", "*org", "a/b", "https://h", "*.a:b", "a b", "a*.org"] {
            assert!(HostPattern::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_password_travels_in_clear_to_nobody_but_this_machine() {
        for (text, is_sent) in [
            ("https://ada:pw@h/", true),
            ("http://ada:pw@h/", false),
            ("http://ada:pw@192.0.2.1/", false),
            ("http://ada:pw@localhost.example/", false),
            ("http://ada:pw@127.example/", false),
            ("http://ada:pw@[::2]/", false),
            ("http://ada:pw@127.8.9.1:80/", true),
            ("http://ada:pw@[::1]:1094/", true),
            ("http://ada:pw@[::ffff:127.0.0.1]/", true),
            ("http://ada:pw@LocalHost:1094/", true),
        ] {
            assert_eq!(sends_password(&url(text)), is_sent, "{text}");
        }
    }

    #[test]
    fn nobody_sees_them_but_who_was_named_and_asked_first() {
        let forward_to = vec![HostPattern::parse("*.pools.example").unwrap()];
        let credentials = Credentials::new(None, None, forward_to);
        let (se, other) = (url("https://se.example/a"), url("https://se.example:8443/a"));
        assert!(!credentials.may_see(&se, &se), "nobody has named it");
        credentials.name(&url("https://se.example:443/elsewhere"));
        credentials.name(&url("https://mirror.example/"));
        assert!(credentials.may_see(&se, &url("https://SE.example/b")));
        for at in [&other, &url("http://se.example/a"), &url("https://mirror.example/a")] {
            assert!(!credentials.may_see(&se, at), "{at}: a redirect leads there");
        }
        assert!(credentials.may_see(&se, &url("https://p1.pools.example:1234/x")));
        assert!(!credentials.may_see(&other, &other), "another port was not named");
        assert!(credentials.clone().may_see(&se, &se), "clones are the same");
    }
}

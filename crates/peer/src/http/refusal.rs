//! Credentials of a request, and what a server that refuses them has said, in words.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use gridlane_core::limits::CLOCK_SKEW_MAX;
use gridlane_core::units::format_seconds;
use gridlane_core::{Error, ErrorKind, Fault, Hint, Result, Scheme, Secret, Speaks, Url};
use gridlane_dav::ResponseHead;
use gridlane_net::{Identity, IdentityId, Proxy, Route};
use percent_encoding::percent_decode_str;

use super::request::Request;
use super::status::status_error;
use crate::credentials::{Credentials, Renewal, Token, sends_password};
use crate::forwarded::{Field, GIVEN};

/// Characters of a server's `WWW-Authenticate` that are looked at, and of a text in it that are shown.
const CHALLENGE_CHARS_MAX: usize = 2048;
const WORDS_CHARS_MAX: usize = 200;
/// A secret that is shorter cannot be told from other words in what a server says.
const SCRUBBED_CHARS_MIN: usize = 6;

/// Words of nginx, Apache and Go's servers for requests without TLS to a port that has it.
pub(super) const WANTS_TLS: [&str; 4] = [
    "The plain HTTP request was sent to HTTPS port",
    "plain HTTP to an SSL-enabled server port",
    "HTTP request to an HTTPS server",
    "plain HTTP to a TLS-enabled server port",
];

/// Credentials that may be shown on a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct User {
    credentials: Credentials,
    may: May,
    /// The fields that were given for requests that begin where this one did.
    given: Option<Arc<[Field]>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum May {
    /// There is nothing to show, or the URL has what opens it.
    #[default]
    Nothing,
    All,
    /// It would travel in clear.
    NotInClear,
    /// The server was named by neither the user nor the operator.
    NotThere,
    /// The fields that were given are for this server.
    Given,
    /// They have a secret, and are for the server that redirected here.
    GivenElsewhere,
}

/// Credentials that a request has shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    what: What,
    /// To be taken out of what the server says in turn.
    secrets: Vec<Secret>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum What {
    #[default]
    Nothing,
    NotInClear,
    NotThere,
    /// User and password of the URL, or a field that the caller made.
    OfUrl,
    /// The user and password in the URL would have travelled in clear, and were not sent.
    KeptOfUrl,
    Token(String),
    Certificate(String),
    /// A field that was given for the server.
    Given,
    /// One was given, for another server.
    GivenElsewhere,
}

impl User {
    /// Of a request that began at `origin` and has come to `at`.
    pub(super) fn of(credentials: &Credentials, origin: &Url, at: &Url) -> User {
        let given = credentials.given(origin).cloned();
        let has_secret = || given.iter().flat_map(|fields| fields.iter()).any(|field| field.is_secret);
        let may = match credentials.is_empty() || !credentials.are_given() && origin.has_secrets() {
            true => May::Nothing,
            false if credentials.are_given() => match (&given, at.same_endpoint(origin)) {
                (Some(_), true) => May::Given,
                _ if has_secret() => May::GivenElsewhere,
                _ => May::Nothing,
            },
            false if !at.scheme().is_encrypted() => May::NotInClear,
            false if !credentials.may_see(origin, at) => May::NotThere,
            false => May::All,
        };
        User { credentials: credentials.clone(), may, given }
    }

    /// What may be shown, somewhere.
    pub(super) fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    fn may_see(&self) -> bool {
        matches!(self.may, May::All | May::Given)
    }

    /// The fields that a request carries.
    pub(super) fn fields(&self) -> impl Iterator<Item = &Field> {
        self.all_fields().filter(|field| self.may == May::Given || !field.is_secret)
    }

    fn all_fields(&self) -> impl Iterator<Item = &Field> {
        self.given.iter().flat_map(|fields| fields.iter())
    }

    fn shows_secret(&self) -> bool {
        self.fields().any(|field| field.is_secret)
    }

    /// An error if a secret that was given would travel in clear, on the way to `at` or to a proxy in front of it.
    pub(super) fn check_way(&self, at: &Url, route: &Route) -> Result<()> {
        if self.shows_secret() { check_clear(GIVEN, at, route) } else { Ok(()) }
    }

    /// The same for the secrets of a request itself.
    pub(super) fn check_request(request: &Request<'_>, at: &Url, route: &Route) -> Result<()> {
        if request.secrets.is_empty() {
            Ok(())
        } else {
            check_clear("a credential for another server", at, route)
        }
    }

    /// The identity that a connection belongs to on which it is shown.
    pub(super) fn identity(&self) -> Result<Identity> {
        if self.may_see() { self.credentials.shown_identity() } else { Ok(Identity::default()) }
    }

    /// What there is in place of the credential that a request has shown on a connection of `identity`, and that was refused.
    pub(super) fn renewal(&self, shown: &Shown, identity: IdentityId) -> Renewal {
        match (&shown.what, shown.secrets.first()) {
            (What::Token(_), Some(token)) => self.credentials.renew_token(token),
            (What::Certificate(_), _) => self.credentials.renew_certificate(identity),
            _ => Renewal::Same,
        }
    }

    /// The token to show.
    pub(super) fn token(&self) -> Result<Option<Token>> {
        if self.may_see() { self.credentials.token() } else { Ok(None) }
    }

    /// The credentials that a request shows to a server behind `proxy`, `token` included.
    pub(super) fn shown(&self, request: &Request<'_>, proxy: Option<&Proxy>, token: Option<&Token>) -> Shown {
        let what = match (token, self.may) {
            _ if self.shows_secret() => What::Given,
            _ if request.keeps_password(proxy) => What::KeptOfUrl,
            _ if request.has_credentials() => What::OfUrl,
            (Some(token), _) => What::Token(token.from.clone()),
            (None, May::Nothing) => What::Nothing,
            (None, May::NotInClear) => What::NotInClear,
            (None, May::NotThere) => What::NotThere,
            (None, May::GivenElsewhere) => What::GivenElsewhere,
            (None, May::All | May::Given) => {
                self.credentials.certificate().map_or(What::Nothing, What::Certificate)
            }
        };
        let given = self.all_fields().filter(|field| field.is_secret).map(|field| &field.value);
        let given = given.chain(request.secrets.iter().map(|(_, value)| value));
        Shown { what, secrets: token.map(|token| &token.secret).into_iter().chain(given).cloned().collect() }
    }
}

/// An error if a secret would travel in clear, on the way to `at` or to a proxy in front of it.
fn check_clear(what: &str, at: &Url, route: &Route) -> Result<()> {
    let is_here = sends_password(at) && route.is_direct();
    if at.scheme().is_encrypted() || is_here {
        return Ok(());
    }
    let message = format!("{what} would travel in clear, and was not sent");
    Err(Error::new(ErrorKind::Denied, message)
        .fault(Fault::Caller)
        .endpoint(at)
        .hint("a credential is sent over TLS only: write https:// if the server speaks it"))
}

/// The error that an answer is; `said` is the first line of its text. If it refuses access, it names the credentials and
/// the server's reason, and says if a wrong clock may be the cause.
pub(super) fn error(head: &ResponseHead, said: &str, url: &Url, shown: &Shown, now: SystemTime) -> Error {
    if url.scheme() == Scheme::Http && WANTS_TLS.iter().any(|words| said.contains(words)) {
        return Speaks::Tls.error("http").http_status(head.status.code()).endpoint(url);
    }
    let said = scrubbed(said, url, shown);
    let mut error = status_error(head, &said);
    if !matches!(head.status.code(), 401 | 403) {
        return error;
    }
    let challenge = challenge(head);
    if let Some(words) = &challenge.words {
        let words = scrubbed(words, url, shown);
        error = error.more(format!("it says {}", without_repetition(&words, &said)));
    }
    error = match &shown.what {
        What::Nothing | What::NotInClear | What::NotThere => {
            error.more("the request was made without credentials")
        }
        What::KeptOfUrl => {
            error.more("the user and password in the URL were not sent: they would have travelled in clear")
        }
        What::OfUrl => error.more("the request was made with the credentials in the URL"),
        What::Token(from) | What::Certificate(from) => {
            error.more(format!("the request was made with {from}"))
        }
        What::Given => error.more(format!("{GIVEN} was refused")),
        What::GivenElsewhere => {
            error.more("the request was made without the credential, which was given for another server")
        }
    };
    // Without credentials no request is refused for the time in them.
    let is_shown = matches!(shown.what, What::OfUrl | What::Token(_) | What::Certificate(_) | What::Given);
    if let Some(skew) = skew(head, now).filter(|_| is_shown) {
        let words = skew.words(url.host());
        return error.more(format!("{words}, which is the likely cause")).hint(
            "set the clock that is wrong, this machine's (timedatectl, chrony) or the server's: certificates and tokens \
             have times in them",
        );
    }
    let host = url.host();
    let is_unknown = head.status.code() == 401;
    let hint = match &shown.what {
        What::NotInClear => {
            "a token or a certificate is sent over TLS only: write https:// if the server speaks it".into()
        }
        What::KeptOfUrl => "a password is sent over TLS only: write https:// if the server speaks it".into(),
        What::NotThere => Hint::ForwardCredentials { host: host.to_owned() },
        What::Nothing if challenge.wants_only("basic") => {
            "it takes a user and password: https://USER:PASSWORD@HOST/…".into()
        }
        What::Nothing => Hint::GetCredentials,
        What::OfUrl if is_unknown => "check what is in the URL: has it expired, is it for this server?".into(),
        What::GivenElsewhere => {
            "a credential is sent to the server that it was given for, and on to no other".into()
        }
        What::Token(_) | What::Given if is_unknown => Hint::CheckToken,
        What::Certificate(_) if is_unknown => Hint::CheckCertificate,
        What::Token(_) | What::Given => Hint::CheckScopes,
        What::Certificate(_) => {
            "does it have the VO's attributes (voms-proxy-info -all)? Else ask the operator of the server for access"
                .into()
        }
        What::OfUrl => "ask the operator of the server for access".into(),
    };
    error.hint(hint)
}

/// The words of a challenge (`invalid_token: The token expired`), without what the text of the answer says already.
fn without_repetition<'a>(words: &'a str, said: &str) -> &'a str {
    match words.split_once(": ") {
        Some((error, description)) if said.contains(description) => error,
        _ => words,
    }
}

pub(super) fn scrubbed(said: &str, url: &Url, shown: &Shown) -> String {
    let query = url.request_target().split_once('?').map_or("", |(_, query)| query);
    without_secrets(said, query, url, &shown.secrets)
}

/// A server's text, without what only it and the user know: values of the query, the URL's password, tokens and values of
/// fields.
pub(crate) fn without_secrets<'a>(
    said: &str,
    query: &str,
    url: &Url,
    shown: impl IntoIterator<Item = &'a Secret>,
) -> String {
    let of_query = query.split('&').filter_map(|pair| pair.split_once('=')).map(|(_, value)| value);
    let password = url.credentials().map(|(_, password)| password);
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let mut secrets: Vec<String> =
        of_query.chain(password).flat_map(|text| [text.to_owned(), decoded(text)]).collect();
    secrets.extend(shown.into_iter().flat_map(|secret| parts(secret.expose())));
    // `authz=Bearer%20TOKEN`.
    secrets.extend(secrets.clone().iter().filter_map(|text| text.strip_prefix("Bearer ")).map(str::to_owned));
    without(said, secrets)
}

/// A secret, and what in it is one by itself: what is behind the scheme of `Authorization`, a user and password in that, and
/// the values of cookies.
fn parts(secret: &str) -> Vec<String> {
    let mut parts = vec![secret.to_owned()];
    if let Some((scheme, behind)) = secret.split_once(' ') {
        let behind = behind.trim_start();
        let decoded = base64::engine::general_purpose::STANDARD.decode(behind).ok();
        let pair = decoded.filter(|_| scheme.eq_ignore_ascii_case("basic"));
        let pair = pair.and_then(|bytes| String::from_utf8(bytes).ok());
        parts.extend(pair.iter().filter_map(|pair| pair.split_once(':')).map(|(_, word)| word.to_owned()));
        parts.extend(pair);
        parts.push(behind.to_owned());
    }
    let cookies = secret.split(';').filter_map(|cookie| cookie.split_once('='));
    parts.extend(cookies.map(|(_, value)| value.trim().to_owned()));
    parts
}

/// A text without secrets, and without a part of one at its end.
pub(crate) fn without(said: &str, mut secrets: Vec<String>) -> String {
    secrets.retain(|secret| secret.len() >= SCRUBBED_CHARS_MIN);
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    let mut text = secrets.iter().fold(said.to_owned(), |text, secret| text.replace(secret.as_str(), "…"));
    // Its first line may be cut inside of a secret.
    for secret in &secrets {
        let is_cut = |len: &usize| secret.is_char_boundary(*len) && text.ends_with(&secret[..*len]);
        if let Some(len) = (SCRUBBED_CHARS_MIN..secret.len()).rev().find(is_cut) {
            text.truncate(text.len() - len);
            text.push('…');
        }
    }
    text
}

/// The credentials that a server asks for (RFC 9110, 11.6.1; RFC 6750, 3).
struct Challenge {
    /// `invalid_token: The token expired`.
    words: Option<String>,
    /// In lower case.
    schemes: Vec<String>,
}

impl Challenge {
    fn wants_only(&self, scheme: &str) -> bool {
        !self.schemes.is_empty() && self.schemes.iter().all(|wanted| wanted == scheme)
    }
}

fn challenge(head: &ResponseHead) -> Challenge {
    let mut found = Challenge { words: None, schemes: Vec::new() };
    for value in head.headers.all("www-authenticate") {
        let value: String = value.chars().filter(|c| !c.is_control()).take(CHALLENGE_CHARS_MAX).collect();
        found.schemes.extend(value.split_whitespace().next().map(str::to_ascii_lowercase));
        let words: Vec<String> =
            ["error", "error_description"].iter().filter_map(|name| parameter(&value, name)).collect();
        if found.words.is_none() && !words.is_empty() {
            found.words = Some(words.join(": "));
        }
    }
    found
}

/// The value of a parameter, quoted or not.
fn parameter(value: &str, name: &str) -> Option<String> {
    let mut rest = value;
    loop {
        let at = rest.find(name)?;
        let (before, found) = (&rest[..at], &rest[at + name.len()..]);
        rest = found;
        let begins = before.is_empty() || before.ends_with([' ', ',', '\t']);
        let Some(text) = found.trim_start().strip_prefix('=').filter(|_| begins) else { continue };
        let text = text.trim_start();
        let text: String = match text.strip_prefix('"') {
            Some(quoted) => {
                let mut is_escaped = false;
                quoted
                    .chars()
                    .take_while(|c| {
                        let goes_on = is_escaped || *c != '"';
                        is_escaped = *c == '\\' && !is_escaped;
                        goes_on
                    })
                    .filter(|c| *c != '\\')
                    .collect()
            }
            None => text.split([',', ' ']).next().unwrap_or_default().to_owned(),
        };
        return Some(text.chars().take(WORDS_CHARS_MAX).collect()).filter(|text: &String| !text.is_empty());
    }
}

/// The difference between this machine's clock and a server's.
struct Skew {
    apart: Duration,
    is_behind: bool,
}

impl Skew {
    fn words(&self, host: &str) -> String {
        let way = if self.is_behind { "behind" } else { "ahead of" };
        format!("this machine's clock is {} {way} {host}'s", format_seconds(self.apart.as_secs_f64()))
    }
}

/// The difference of clocks by a server's `Date`, where it is enough to make credentials look too old or too young.
fn skew(head: &ResponseHead, now: SystemTime) -> Option<Skew> {
    let theirs = gridlane_dav::date::parse(head.headers.single("date")?)?;
    let (apart, is_behind) = match theirs.duration_since(now) {
        Ok(apart) => (apart, true),
        Err(negative) => (negative.duration(), false),
    };
    (apart > CLOCK_SKEW_MAX).then_some(Skew { apart, is_behind })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::Certificate;

    fn head(code: u16, fields: &str) -> ResponseHead {
        let text = format!("HTTP/1.1 {code} x\r\n{fields}\r\n");
        ResponseHead::parse(text.as_bytes()).unwrap().unwrap().0
    }

    fn url(text: &str) -> Url {
        Url::parse_absolute(text).unwrap()
    }

    fn now() -> SystemTime {
        gridlane_dav::date::parse("Sun, 22 Nov 2026 10:00:00 GMT").unwrap()
    }

    fn token() -> Shown {
        let secrets = vec![Secret::new("eyJhbGciOiJF.payload.signature")];
        Shown { what: What::Token("the token of /tmp/bt_u0".into()), secrets }
    }

    #[test]
    fn a_refusal_says_what_was_shown_and_what_the_server_thinks_of_it() {
        let fields = concat!(
            "WWW-Authenticate: Bearer realm=\"error=x\", error=\"invalid_token\", ",
            "error_description=\"It \\\"expired\\\"\"\r\n",
            "WWW-Authenticate: Basic\r\nDate: Sun, 22 Nov 2026 10:00:30 GMT\r\n",
        );
        let said = "no: eyJhbGciOiJF.payload.signature is old";
        let error = error(&head(401, fields), said, &url("https://h/f"), &token(), now());
        for words in ["401", "(\"no: … is old\")", "invalid_token: It \"expired\"", "the token of /tmp/bt_u0"]
        {
            assert!(error.message().contains(words), "no {words:?} in {error}");
        }
        assert!(!error.to_string().contains("payload") && !error.to_string().contains("clock"), "{error}");
    }

    #[test]
    fn what_a_server_says_twice_is_repeated_once() {
        let fields = concat!(
            "WWW-Authenticate: Bearer error=\"invalid_token\", error_description=\"the token expired\"\r\n",
            "Date: Sun, 22 Nov 2026 10:00:30 GMT\r\n",
        );
        let error =
            error(&head(401, fields), "401: the token expired.", &url("https://h/f"), &token(), now());
        assert_eq!(error.message().matches("the token expired").count(), 1, "{error}");
        assert!(error.message().contains("it says invalid_token"), "{error}");
    }

    #[test]
    fn a_wrong_clock_is_named() {
        for (date, words) in [("10:07:00", "7 min 00 s behind h's"), ("08:00:00", "2 h 00 min ahead of h's")]
        {
            let fields = format!("Date: Sun, 22 Nov 2026 {date} GMT\r\n");
            let error = error(&head(403, &fields), "", &url("https://h/f"), &token(), now());
            assert!(error.message().contains(words), "{error}");
        }
        let error = error(
            &head(404, "Date: Sun, 22 Nov 2026 12:00:00 GMT\r\n"),
            "",
            &url("https://h/f"),
            &token(),
            now(),
        );
        assert!(!error.to_string().contains("clock"), "{error}");
        let unshown = Shown::default();
        let fields = "Date: Sun, 22 Nov 2026 12:00:00 GMT\r\n";
        let error = super::error(&head(401, fields), "", &url("https://h/f"), &unshown, now());
        assert!(!error.to_string().contains("clock") && error.to_string().contains("get a token"), "{error}");
    }

    #[test]
    fn what_to_do_depends_on_what_was_shown() {
        let certificate = Certificate::of_test("the certificate of /c.pem");
        let credentials = Credentials::new(None, Some(certificate), Vec::new());
        let (se, clear) = (url("https://se/f"), url("http://se/f"));
        credentials.name(&se);
        credentials.name(&clear);
        let hint = |credentials: &Credentials, origin: &Url, at: &Url| {
            let shown = User::of(credentials, origin, at).shown(&Request::new("GET", at), None, None);
            let error = error(&head(401, ""), "", at, &shown, now());
            format!("{}; {}", error.message(), error.advice().unwrap())
        };
        let shown = hint(&credentials, &se, &se);
        assert!(shown.contains("/c.pem") && shown.contains("trust its authority"), "{shown}");
        assert!(hint(&credentials, &clear, &clear).contains("over TLS only"));
        assert!(hint(&credentials, &se, &url("https://pool/f")).contains("name pool as well"));
        assert!(hint(&Credentials::default(), &se, &se).contains("get a token"));
        let open = url("https://ada:pw@se/f");
        assert!(hint(&credentials, &open, &open).contains("in the URL"));
        let clear = url("http://ada:pw@se/f");
        let kept = hint(&credentials, &clear, &clear);
        assert!(kept.contains("were not sent") && kept.contains("write https://"), "{kept}");
    }

    #[test]
    fn a_proxy_sees_nothing_that_was_given() {
        use crate::forwarded::Forwarded;
        use gridlane_net::{Dialer, Proxies, tls::Trust};
        let checked = |at: &str, name: &str, proxy: &str| {
            let fields = vec![(name.to_owned(), Secret::new("abcdefgh"))];
            let given = vec![Forwarded { to: url(at), fields }];
            let credentials = Credentials::forwarding(Identity::new(None), given).unwrap();
            let proxies = Proxies::from_environment(|name| (name == "all_proxy").then(|| proxy.to_owned()));
            let dialer = Dialer::new(Trust::default()).proxies(proxies);
            User::of(&credentials, &url(at), &url(at)).check_way(&url(at), &dialer.route(&url(at)).unwrap())
        };
        for proxy in ["http://p:3128", "socks5h://p"] {
            assert!(checked("https://h/f", "Authorization", proxy).is_ok(), "{proxy}");
            assert!(checked("http://127.0.0.1/f", "SciTag", proxy).is_ok(), "{proxy}");
            let error = checked("http://127.0.0.1/f", "Authorization", proxy).unwrap_err();
            assert_eq!((error.kind(), error.whose_fault()), (ErrorKind::Denied, Fault::Caller), "{proxy}");
        }
        assert!(checked("http://127.0.0.1/f", "Authorization", "").is_ok());
        assert!(checked("http://h/f", "Authorization", "").is_err());
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_server_says_is_looked_at(value in "[ -~]{0,80}(error|error_description)=\\PC{0,40}", said in "\\PC{0,60}") {
            for name in ["error", "error_description"] {
                let _ = parameter(&value, name);
            }
            let _ = scrubbed(&said, &url("https://ada:pass%20word@h/f?authz=%C3%A9%C3%A9%C3%A9%C3%A9"), &token());
        }
    }

    #[test]
    fn what_a_server_repeats_is_no_secret_any_more() {
        let at = url("https://ada:pass%20word@h/f?authz=Bearer%20aaa.bbb.ccc&x=1");
        let said = "pass word, pass%20word, Bearer aaa.bbb.ccc, Bearer%20aaa.bbb.ccc, aaa.bbb.ccc, aaa.bbb";
        let scrubbed = scrubbed(said, &at, &token());
        assert!(!scrubbed.contains("word") && !scrubbed.contains("aaa"), "{scrubbed}");
    }
}

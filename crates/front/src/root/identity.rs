//! The identity of a session's client, and of the requester of each of its requests.
//!
//! ```text
//! TLS' certificate ◀── else ── the login's token (ztn), chain (gsi), shared key (sss) or trusted name (unix) ◀── else ── authz=… in the CGI of a request's path
//! ```
//!
//! The proof of a login counts as if each request had it, so that it is over here when it is over elsewhere: at the end
//! of its time, when it is revoked, when its issuer's keys or the settings change. A request that is about an open file
//! goes on with the identity that has opened it.

use std::borrow::Cow;
use std::sync::Arc;

use gridlane_auth::{Cause, Identity, Refusal, sss, token};
use gridlane_core::{Secret, limits};
use gridlane_xrd::request::{About, FattrAbout};
use gridlane_xrd::server::TlsDemand;
use gridlane_xrd::{ErrorCode, QueryKind, Request, ztn};

use super::answer::Failure;
use super::context::Context;
use super::rounds::LoginProof;
use crate::auth;
use crate::auth::certificates::Judged;
use crate::auth::keys::now_s;
use crate::auth::presented::{self, Bad, Credential, Kind};
use crate::client::Client;
use crate::front::Front;
use crate::service::Service;
use crate::settings::{RootAuth, RootTls};

/// The methods of authentication of a server, by preference.
fn methods(front: &Front) -> &[RootAuth] {
    match &front.root.auth {
        Some(methods) => methods,
        None => by_default(front.auth_methods.takes_bearers(), takes_chains(front)),
    }
}

/// The methods of a server whose operator names none. XRootD's clients pass over what they have nothing for, and give up
/// when nothing is left. A token comes first: to look for one costs a client nothing, and where there is no proxy gsi's
/// asks for a passphrase.
pub fn by_default(takes_bearers: bool, takes_chains: bool) -> &'static [RootAuth] {
    match (takes_bearers, takes_chains) {
        (true, true) => &[RootAuth::Ztn, RootAuth::Gsi, RootAuth::Unix],
        (true, false) => &[RootAuth::Ztn, RootAuth::Unix],
        (false, true) => &[RootAuth::Gsi, RootAuth::Unix],
        (false, false) => &[],
    }
}

/// True if clients are asked for a proxy when they log in for a third-party copy.
pub fn takes_proxies(front: &Front) -> bool {
    front.root.takes_proxies && methods(front).contains(&RootAuth::Gsi) && takes_chains(front)
}

/// True if a client can log in by certificate.
fn takes_chains(front: &Front) -> bool {
    #[cfg(feature = "gsi")]
    return front.auth.trust.is_some() && front.auth.gsi_host.is_some();
    #[cfg(not(feature = "gsi"))]
    {
        let _ = front;
        false
    }
}

/// The clients that have to begin TLS before the login.
pub(crate) fn tls_demand(front: &Front) -> TlsDemand {
    match front.root.tls {
        Some(RootTls::Offered) => TlsDemand::Never,
        Some(RootTls::Capable) => TlsDemand::Capable,
        Some(RootTls::Login) => TlsDemand::Always,
        None => match methods(front) {
            [RootAuth::Ztn] => TlsDemand::Always,
            methods if methods.contains(&RootAuth::Ztn) => TlsDemand::Capable,
            _ => TlsDemand::Never,
        },
    }
}

/// The methods that a client is offered; none: it need not authenticate. Fails when there is one over TLS only.
pub(crate) fn offered(front: &Front, is_tls: bool) -> Result<Vec<RootAuth>, Failure> {
    let methods = methods(front);
    let offered = methods.iter().copied().filter(|method| match method {
        RootAuth::Ztn => is_tls,
        // Its operator may have named it, and a reload have taken the certificate away.
        RootAuth::Gsi => takes_chains(front),
        RootAuth::Host | RootAuth::Unix | RootAuth::Sss => true,
    });
    let offered: Vec<RootAuth> = offered.collect();
    if offered.is_empty() && methods.contains(&RootAuth::Ztn) {
        let what = "this server wants a token, over TLS only: use roots://";
        return Err(Failure::new(ErrorCode::TLS_REQUIRED, what).closing());
    }
    if offered.is_empty() && !methods.is_empty() {
        let what = "this server wants a certificate, and has none itself to log in with; ask its operator";
        return Err(Failure::new(ErrorCode::AUTH_FAILED, what).closing());
    }
    Ok(offered)
}

/// The same in the form of an answer to a login.
pub(crate) fn method_list(front: &Front, offered: &[RootAuth]) -> Vec<u8> {
    let one = |method: &RootAuth| match method {
        RootAuth::Ztn => format!("&P={},{}", method.name(), ztn::parameters()),
        RootAuth::Sss => format!("&P={},{}", method.name(), sss::offer()),
        #[cfg(feature = "gsi")]
        RootAuth::Gsi => match &front.auth.gsi_host {
            Some(host) => format!("&P={},{}", method.name(), host.parameters()),
            None => String::new(),
        },
        #[cfg(not(feature = "gsi"))]
        RootAuth::Gsi => String::new(),
        RootAuth::Host | RootAuth::Unix => format!("&P={}", method.name()),
    };
    #[cfg(not(feature = "gsi"))]
    let _ = front;
    offered.iter().map(one).collect::<String>().into_bytes()
}

/// The identity and the token that a login shows.
pub(crate) async fn prove(
    front: &Front,
    client: &Client,
    credentials: &[u8],
) -> Result<(Arc<Identity>, Secret), Failure> {
    let token = ztn::parse(credentials)?;
    match auth::bearer(front, &token, client.address).await {
        Ok(identity) => Ok((identity, token)),
        Err(refusal) => {
            front.data.metrics.auth.refused(kind_of(&token), refusal.cause);
            Err(Failure::new(code_of(refusal.cause, ErrorCode::AUTH_FAILED), refusal.message))
        }
    }
}

/// True if credentials in a request are looked at: it is about a path.
pub(crate) fn may_bring_credentials(request: &Request) -> bool {
    match request {
        Request::Statx(statx) => !statx.paths.is_empty(),
        Request::Prepare(prepare) => !prepare.lines.is_empty(),
        _ => !cgis(request).is_empty(),
    }
}

/// The client of a request, if that can be told without waiting.
pub(crate) fn identify_nowait<S: Service>(
    context: &Context<S>,
    request: &Request,
) -> Option<Result<Client, Failure>> {
    let claim = match claim(context, request) {
        Ok(Some(claim)) => claim,
        Ok(None) => return Some(of_login(context)),
        Err(failure) => return Some(Err(failure)),
    };
    let known = auth::bearer_nowait(context.front(), &claim.token, context.client.address)?;
    Some(settled(context, &claim, known))
}

/// The client of a request. Waits for the keys of a token's issuer when they are not known.
pub(crate) async fn identify<S: Service>(context: &Context<S>, request: &Request) -> Result<Client, Failure> {
    let Some(claim) = claim(context, request)? else { return of_login(context) };
    let outcome = auth::bearer(context.front(), &claim.token, context.client.address).await;
    settled(context, &claim, outcome)
}

/// A token that is to be looked at.
struct Claim<'a> {
    token: Cow<'a, Secret>,
    /// It is the login's, and not the request's own.
    is_of_login: bool,
}

fn claim<'a, S: Service>(context: &'a Context<S>, request: &Request) -> Result<Option<Claim<'a>>, Failure> {
    // Where no method is configured, clients' credentials are ignored.
    if !context.front().auth_methods.is_any() {
        return Ok(None);
    }
    let refused = |Bad { kind, refusal }: Bad| {
        context.front().data.metrics.auth.refused(kind, refusal.cause);
        failure(&refusal, "")
    };
    if let Some(token) = in_cgi(context, request).map_err(refused)? {
        return Ok(Some(Claim { token: Cow::Owned(token), is_of_login: false }));
    }
    Ok(match &context.proof {
        Some(LoginProof::Token(token)) => Some(Claim { token: Cow::Borrowed(token), is_of_login: true }),
        Some(LoginProof::Chain(_) | LoginProof::Standing(_)) | None => None,
    })
}

/// The client by the certificates of its login, or of its connection.
fn of_login<S: Service>(context: &Context<S>) -> Result<Client, Failure> {
    let Some(LoginProof::Chain(chain)) = &context.proof else { return Ok(of_connection(context)) };
    if !context.front().auth_methods.is_any() {
        return Ok(of_connection(context));
    }
    let metrics = &context.front().data.metrics.auth;
    match chain.identity(context.front(), now_s()) {
        Ok(Judged { identity, doubt }) => {
            metrics.came(&identity);
            let mut client = context.client.for_request();
            (client.identity, client.doubt) = (identity, doubt);
            Ok(client)
        }
        Err(refusal) => {
            metrics.refused(Kind::Certificate, refusal.cause);
            Err(failure(&refusal, LOG_IN_AGAIN))
        }
    }
}

/// What to do about a login that is over.
const LOG_IN_AGAIN: &str = "; log in again with another one";

/// The token in the CGI of a request.
fn in_cgi<S: Service>(context: &Context<S>, request: &Request) -> Result<Option<Secret>, Bad> {
    let mut found: Option<Secret> = None;
    for cgi in cgis(request) {
        let Some(presented) = presented::in_query(&String::from_utf8_lossy(cgi))? else { continue };
        if !context.client.is_secure {
            return Err(presented.in_clear("roots"));
        }
        let (kind, Credential::Bearer(token)) = (presented.kind, presented.credential) else { continue };
        if found.as_ref().is_some_and(|found| *found != token) {
            let what = "the paths of the request have different tokens";
            return Err(Bad { kind, refusal: Refusal::new(Cause::Malformed, what) });
        }
        found = Some(token);
    }
    Ok(found)
}

/// The client by its connection's credentials.
fn of_connection<S: Service>(context: &Context<S>) -> Client {
    let mut client = context.client.for_request();
    if let Some(LoginProof::Standing(standing)) = &context.proof {
        if let Some(doubt) = standing.doubt(context.front(), &client, now_s()) {
            (client.identity, client.doubt) =
                (Client::anonymous(client.address).identity, Some(doubt.into()));
        }
        context.front().data.metrics.auth.came(&client.identity);
        return client;
    }
    match context.front().auth_methods.is_any() {
        true => context.front().data.metrics.auth.came(&client.identity),
        // An identity by settings that are no longer those counts for nothing by these.
        false => (client.identity, client.doubt) = (Client::anonymous(client.address).identity, None),
    }
    client
}

fn settled<S: Service>(
    context: &Context<S>,
    claim: &Claim<'_>,
    outcome: Result<Arc<Identity>, Refusal>,
) -> Result<Client, Failure> {
    let metrics = &context.front().data.metrics.auth;
    match outcome {
        Ok(identity) => {
            metrics.came(&identity);
            let mut client = context.client.for_request();
            (client.identity, client.doubt) = (identity, None);
            Ok(client)
        }
        Err(refusal) => {
            metrics.refused(kind_of(&claim.token), refusal.cause);
            Err(failure(&refusal, if claim.is_of_login { LOG_IN_AGAIN } else { "" }))
        }
    }
}

fn failure(refusal: &Refusal, advice: &str) -> Failure {
    Failure::new(code_of(refusal.cause, ErrorCode::NOT_AUTHORIZED), format!("{refusal}{advice}"))
}

fn code_of(cause: Cause, otherwise: ErrorCode) -> ErrorCode {
    // Other credentials would fare no better, and the same may later.
    if cause == Cause::Unavailable { ErrorCode::OVERLOADED } else { otherwise }
}

fn kind_of(token: &Secret) -> Kind {
    if token::looks_like_one(token.expose()) { Kind::Token } else { Kind::Macaroon }
}

/// True if two sessions are one client's: the credentials may differ, since a client with new ones goes on with its
/// session.
pub(crate) fn is_same(one: &Identity, other: &Identity) -> bool {
    let issuer = |identity: &Identity| match identity {
        Identity::Token(token) => Some(token.issuer.clone()),
        _ => None,
    };
    one.method() == other.method() && one.name() == other.name() && issuer(one) == issuer(other)
}

/// The CGI of each path that a request is about; none if it is about nothing that has one.
fn cgis(request: &Request) -> Vec<&[u8]> {
    match request {
        Request::Open(open) => vec![&open.about.cgi],
        Request::Dirlist(dirlist) => vec![&dirlist.about.cgi],
        Request::Locate(locate) => vec![&locate.about.cgi],
        Request::Mkdir(mkdir) => vec![&mkdir.about.cgi],
        Request::Rm(rm) => vec![&rm.about.cgi],
        Request::Rmdir(rmdir) => vec![&rmdir.about.cgi],
        Request::Chmod(chmod) => vec![&chmod.about.cgi],
        Request::Mv(mv) => vec![&mv.from.cgi, &mv.to.cgi],
        Request::Statx(statx) => statx.paths.iter().map(|path| cgi_of(path)).collect(),
        Request::Prepare(prepare) => prepare.lines.iter().map(|line| cgi_of(line)).collect(),
        Request::Query(query) => match query.kind {
            QueryKind::CHECKSUM | QueryKind::SPACE | QueryKind::XATTR => vec![cgi_of(&query.argument)],
            // Behind the name of the request, a path in each line. Of more than may be asked about, none is looked at.
            QueryKind::PREPARE => {
                let paths = lines_of(&query.argument).skip(1);
                paths.take(limits::ROOT_PREPARED_PATHS_MAX + 1).map(cgi_of).collect()
            }
            // Keys and letters are no paths, and what is opaque may be anything.
            _ => Vec::new(),
        },
        Request::Fattr(fattr) => match &fattr.about {
            FattrAbout::Path(about) => vec![&about.cgi],
            FattrAbout::Handle(_) => Vec::new(),
        },
        Request::Stat(stat) => of_path(&stat.about),
        Request::Truncate(truncate) => of_path(&truncate.about),
        _ => Vec::new(),
    }
}

fn of_path(about: &About) -> Vec<&[u8]> {
    match about {
        About::Path(about) => vec![&about.cgi],
        About::Handle(_) => Vec::new(),
    }
}

/// The part behind the first question mark, up to a NUL.
fn cgi_of(path: &[u8]) -> &[u8] {
    let text = path.split(|byte| *byte == 0).next().unwrap_or_default();
    match text.iter().position(|byte| *byte == b'?') {
        Some(at) => &text[at + 1..],
        None => &[],
    }
}

/// The lines of a query for the state of a request: its name, and then its paths.
pub fn lines_of(argument: &[u8]) -> impl Iterator<Item = &[u8]> {
    let end = argument.iter().position(|byte| *byte == 0).unwrap_or(argument.len());
    argument[..end].split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null_service::{arg, context_of, token_of};
    use gridlane_auth::identity::{CertificateIdentity, TokenIdentity, UserIdentity};
    use gridlane_xrd::request::{Ping, Prepare, Query, Rm, Stat, Statx};

    fn stat(path: &str) -> Request {
        Stat { about: About::Path(arg(path)), is_vfs: false, wants: 0 }.into()
    }

    #[test]
    fn requests_that_are_about_paths() {
        let lines = |lines: &[&str]| lines.iter().map(|line| line.as_bytes().to_vec()).collect::<Vec<_>>();
        let options = gridlane_xrd::flags::PrepareOptions::NONE;
        let prepare =
            Prepare { options, priority: 0, port: 0, evicts: false, lines: lines(&["/a?b", "/c\0?d"]) };
        let cases: [(Request, &[&str]); 7] = [
            (Ping {}.into(), &[]),
            (stat("/a?b=c?d"), &["b=c?d"]),
            (Rm { about: arg("/a") }.into(), &[""]),
            (Query::new(QueryKind::CHECKSUM, "/a?cks.type=md5").into(), &["cks.type=md5"]),
            (Query::new(QueryKind::CONFIG, "a?b").into(), &[]),
            (Statx { paths: lines(&["/a?b", "/c"]) }.into(), &["b", ""]),
            (prepare.into(), &["b", ""]),
        ];
        for (request, expected) in cases {
            let found = cgis(&request);
            let expected: Vec<&[u8]> = expected.iter().map(|text| text.as_bytes()).collect();
            assert_eq!((&found, may_bring_credentials(&request)), (&expected, !expected.is_empty()));
        }
    }

    /// Empty lines hide nothing, and of a list that is too long only its beginning is looked at.
    #[test]
    fn a_query_about_many_paths_is_read_up_to_the_limit() {
        let ask = |argument: &str| Request::from(Query::new(QueryKind::PREPARE, argument));
        assert_eq!(cgis(&ask("\n\nx\n\n/a?b\n\n\n/c\0\n/d?e")), [&b"b"[..], b""]);
        assert!(!may_bring_credentials(&ask("x\n")));
        let many = format!("x{}", "\n/a?b".repeat(100_000));
        assert_eq!(cgis(&ask(&many)).len(), limits::ROOT_PREPARED_PATHS_MAX + 1);
    }

    #[test]
    fn no_login_is_asked_for_where_no_method_is_configured() {
        let context = context_of(|_| {});
        let Some(Ok(client)) = identify_nowait(&context, &stat("/d/f?authz=eyJ.a.b")) else { panic!() };
        assert!(client.identity.is_anonymous());
        assert_eq!(
            (offered(context.front(), true).unwrap(), tls_demand(context.front())),
            (vec![], TlsDemand::Never)
        );
    }

    #[test]
    fn methods_that_are_offered() {
        let of = |auth: Option<Vec<RootAuth>>, is_tls| {
            let context = context_of(|settings| settings.root.auth = auth);
            (
                offered(context.front(), is_tls).map(|offered| method_list(context.front(), &offered)),
                tls_demand(context.front()),
            )
        };
        let (list, demand) = of(Some(vec![RootAuth::Host, RootAuth::Ztn]), false);
        assert_eq!((list.unwrap(), demand), (b"&P=host".to_vec(), TlsDemand::Capable));
        let (list, demand) = of(Some(vec![RootAuth::Ztn]), false);
        assert_eq!((list.unwrap_err().code, demand), (ErrorCode::TLS_REQUIRED, TlsDemand::Always));
        assert!(of(Some(vec![RootAuth::Ztn]), true).0.unwrap().starts_with(b"&P=ztn,0:"));
    }

    #[test]
    fn the_same_user_with_other_credentials() {
        let token = |issuer: &str, subject: &str, expires_s| {
            Identity::Token(TokenIdentity { expires_s, ..token_of(issuer, subject) })
        };
        let (fqans, dn, user) = (Vec::new(), "ada".to_owned(), None);
        let certificate = Identity::Certificate(CertificateIdentity { dn, user, fqans, expires_s: 1 });
        assert!(is_same(&token("i", "ada", 1), &token("i", "ada", 2)));
        for other in [
            token("i", "eve", 1),
            token("j", "ada", 1),
            certificate,
            Identity::User(UserIdentity::by_password("ada")),
            Identity::Anonymous,
        ] {
            assert!(!is_same(&token("i", "ada", 1), &other), "{other:?}");
        }
    }
}

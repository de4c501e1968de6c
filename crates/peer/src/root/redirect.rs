//! Targets of redirects, and how a manager is told which servers failed.

use std::collections::HashSet;

use gridlane_core::limits::ROOT_REDIRECTS_MAX;
use gridlane_core::{Error, ErrorKind, Result, Scheme, Url};
use gridlane_xrd::answer::{Redirect, merge_cgi};
use gridlane_xrd::{ErrorCode, path};

/// Where a URL carries a token, over HTTP as over root://.
const TOKEN_KEY: &[u8] = b"authz";

/// The way of one request from server to server.
pub(super) struct Way {
    /// Where the request began.
    pub(super) origin: Url,
    /// The server that is asked now.
    pub(super) at: Url,
    /// The token for its login, if a redirect has one.
    pub(super) token: Option<Vec<u8>>,
    /// The server that redirected first.
    manager: Option<Url>,
    /// Servers that it led to and that failed, and why.
    tried: Vec<(Url, &'static str)>,
    /// The last failure that was not that a file is not there.
    failure: Option<Error>,
    seen: HashSet<String>,
    hops: usize,
}

impl Way {
    pub(super) fn new(url: Url) -> Way {
        let (token, manager, tried, failure, seen) = Default::default();
        Way { origin: url.clone(), at: url, token, manager, tried, failure, seen, hops: 0 }
    }

    /// Goes where a server has said. `may_carry` says of an endpoint whether it may see a token that the user has put
    /// into the URL; one that the server adds itself goes where it says.
    pub(super) fn follow(&mut self, redirect: &Redirect, may_carry: impl Fn(&Url) -> bool) -> Result<()> {
        if self.manager.is_none() {
            self.manager = Some(self.at.clone());
        }
        let led = target(&self.at, redirect).map_err(|error| error.endpoint(&self.at));
        let (mut next, mut token) = led?;
        if !next.same_endpoint(&self.at) && !may_carry(&next) && has_token(&self.at) {
            (next, token) = target(&without_token(&self.at)?, redirect)?;
        }
        // Back to a server that has failed: the manager does not listen.
        if self.tried.iter().any(|(tried, _)| tried.same_endpoint(&next)) {
            let loops = redirect_loop().endpoint(&self.at);
            return Err(self.failure.take().unwrap_or(loops));
        }
        (self.at, self.token) = (next, token);
        self.step()
    }

    /// A server failed: `Ok` when there is a manager to be asked for another one.
    pub(super) fn avoid(&mut self, error: Error, code: Option<ErrorCode>) -> Result<()> {
        let reason = match code {
            Some(ErrorCode::NOT_FOUND) => Some("enoent"),
            Some(ErrorCode::IO_ERROR) => Some("ioerr"),
            Some(ErrorCode::FS_ERROR) => Some("fserr"),
            Some(ErrorCode::SERVER_ERROR | ErrorCode::OVERLOADED | ErrorCode::NO_MEMORY) => Some("srverr"),
            Some(_) => None,
            None => matches!(error.kind(), ErrorKind::Network | ErrorKind::Timeout | ErrorKind::Protocol)
                .then_some("srverr"),
        };
        let is_at_manager = self.manager.as_ref().is_none_or(|manager| self.at.same_endpoint(manager));
        let (Some(manager), Some(reason), false) = (&self.manager, reason, is_at_manager) else {
            // A manager without further servers says that there is no such file; the server that failed knows better.
            return Err(match error.kind() {
                ErrorKind::NotFound if is_at_manager => self.failure.take().unwrap_or(error),
                _ => error,
            });
        };
        let cgi = self.at.cgi().unwrap_or_default();
        self.tried.push((self.at.clone(), reason));
        let hosts: Vec<&str> = self.tried.iter().map(|(tried, _)| tried.host()).collect();
        let reasons: Vec<&str> = self.tried.iter().map(|(_, reason)| *reason).collect();
        let tried = format!("tried={}&triedrc={}", hosts.join(","), reasons.join(","));
        let cgi = merge_cgi(cgi.as_bytes(), tried.as_bytes());
        let cgi = String::from_utf8_lossy(&cgi).into_owned();
        let mut at = Url::of_root(manager.scheme(), &authority(manager), &manager.wire_path(), Some(&cgi))?;
        if at.same_endpoint(&self.origin) {
            // The user's token has not gone along to the server that failed, or another one in its place.
            at = without_token(&at)?;
            at.take_secrets_of(&self.origin)?;
        }
        if reason != "enoent" || self.failure.is_none() && error.kind() != ErrorKind::NotFound {
            self.failure = Some(error);
        }
        (self.at, self.token) = (at, None);
        self.step()
    }

    /// True if a redirect has led to the server that is asked now.
    pub(super) fn was_led(&self) -> bool {
        self.manager.as_ref().is_some_and(|manager| !self.at.same_endpoint(manager))
    }

    /// True if no redirect has led it elsewhere: there is no manager that knows another server.
    pub(super) fn is_at_origin(&self) -> bool {
        self.at.same_endpoint(&self.origin)
    }

    fn step(&mut self) -> Result<()> {
        self.hops += 1;
        if self.hops > ROOT_REDIRECTS_MAX || !self.seen.insert(self.at.as_str().to_owned()) {
            let loops = redirect_loop().endpoint(&self.at);
            return Err(self.failure.take().unwrap_or(loops));
        }
        Ok(())
    }
}

/// True if the CGI of a URL has a token in it.
fn has_token(url: &Url) -> bool {
    path::pairs(url.cgi().unwrap_or_default().as_bytes()).any(|(key, _)| key.eq_ignore_ascii_case(TOKEN_KEY))
}

/// The same URL without that.
pub(super) fn without_token(url: &Url) -> Result<Url> {
    let cgi = url.cgi().unwrap_or_default();
    let is_token = |pair: &&str| {
        pair.split('=').next().is_some_and(|key| key.as_bytes().eq_ignore_ascii_case(TOKEN_KEY))
    };
    let kept: Vec<&str> = cgi.split('&').filter(|pair| !is_token(pair)).collect();
    Url::of_root(url.scheme(), &authority(url), &url.wire_path(), Some(&kept.join("&")))
}

/// The CGI that goes to servers: without what is for the client alone.
pub(super) fn cgi_for_servers(cgi: &str) -> Vec<u8> {
    let kept = cgi.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("xrdcl."));
    kept.collect::<Vec<_>>().join("&").into_bytes()
}

/// The target of a redirect from `from`, and the token for the login there. What was encrypted stays so.
fn target(from: &Url, redirect: &Redirect) -> Result<(Url, Option<Vec<u8>>)> {
    let own = from.cgi().unwrap_or_default().as_bytes();
    let text = |cgi: Vec<u8>| {
        String::from_utf8(cgi)
            .map_err(|_| Error::new(ErrorKind::Protocol, "it redirects with a CGI that is no text"))
    };
    match redirect {
        Redirect::Host { host, port, cgi, token } => {
            let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
            let user = from.credentials().map(|(user, _)| format!("{user}@")).unwrap_or_default();
            let mut cgi = merge_cgi(own, cgi);
            if !token.is_empty() {
                cgi = merge_cgi(&cgi, &[b"xrd.logintoken=", token.as_slice()].concat());
            }
            let authority = format!("{user}{host}:{port}");
            let url = Url::of_root(from.scheme(), &authority, &from.wire_path(), Some(&text(cgi)?));
            let url = url.map_err(|error| nowhere(&error))?;
            Ok((url, Some(token.clone()).filter(|token| !token.is_empty())))
        }
        Redirect::Url { url, .. } => {
            let to = Url::parse_absolute(url).map_err(|error| nowhere(&error))?;
            if !to.scheme().is_root() {
                let message = format!("it redirects to {to}, which is another protocol");
                return Err(
                    Error::new(ErrorKind::Unsupported, message).hint("use that URL yourself if it is right")
                );
            }
            let scheme = if from.scheme().is_encrypted() { Scheme::Roots } else { to.scheme() };
            let theirs = to.cgi().unwrap_or_default().as_bytes();
            let missing: Vec<Vec<u8>> = path::pairs(own)
                .filter(|(key, _)| path::pairs(theirs).all(|(known, _)| known != *key))
                .map(|(key, value)| if value.is_empty() { key.to_vec() } else { [key, b"=", value].concat() })
                .collect();
            let cgi = merge_cgi(theirs, &missing.join(&b'&'));
            let to = Url::of_root(scheme, &authority(&to), &to.wire_path(), Some(&text(cgi)?))?;
            Ok((to, None))
        }
    }
}

fn nowhere(error: &Error) -> Error {
    Error::new(ErrorKind::Protocol, format!("it redirects to nowhere: {}", error.message()))
}

/// `[user@]host:port` of a URL.
pub(super) fn authority(url: &Url) -> String {
    let user = url.credentials().map(|(user, _)| format!("{user}@")).unwrap_or_default();
    let zone = url.zone().map(|zone| format!("%25{zone}")).unwrap_or_default();
    match url.host().contains(':') {
        true => format!("{user}[{}{zone}]:{}", url.host(), url.port()),
        false => format!("{user}{}:{}", url.host(), url.port()),
    }
}

fn redirect_loop() -> Error {
    let message = format!("its redirects lead in a circle, or there are more than {ROOT_REDIRECTS_MAX}");
    Error::new(ErrorKind::Protocol, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse_absolute(text).unwrap()
    }

    fn host(host: &str, cgi: &str, token: &str) -> Redirect {
        Redirect::Host { host: host.into(), port: 1095, cgi: cgi.into(), token: token.into() }
    }

    fn complete(url: &str) -> Redirect {
        Redirect::Url { url: url.into(), flags: 0 }
    }

    fn led(from: &str, redirect: &Redirect) -> (String, Option<Vec<u8>>) {
        let (to, token) = target(&url(from), redirect).unwrap();
        (to.typed(), token)
    }

    #[test]
    fn what_travels_along() {
        let (to, token) = led("root://me@m//a b?k=v&x=1", &host("h", "x=2&y", ""));
        assert_eq!((to.as_str(), token), ("root://me@h:1095//a b?k=v&x=2&y", None));
        let (to, token) = led("roots://m//f", &host("::1", "x=2", "secret"));
        assert_eq!(to, "roots://[::1]:1095//f?x=2&xrd.logintoken=secret");
        assert_eq!(token.as_deref(), Some(&b"secret"[..]));
        // The keys of the request are added, those of the URL win; what was encrypted stays so.
        let (to, _) = led("roots://m//f?u=1&z=1", &complete("root://h//g?u=2"));
        assert_eq!(to, "roots://h//g?u=2&z=1");
        let (to, _) = led("root://m//f", &complete("roots://h//g"));
        assert_eq!(to, "roots://h//g");
        for wrong in ["http://h/f", "file:///etc/passwd", "root:///f", "nonsense"] {
            assert!(target(&url("root://m//f"), &complete(wrong)).is_err(), "{wrong}");
        }
        assert!(target(&url("root://m//f"), &host("h/x", "", "")).is_err());
        assert_eq!(cgi_for_servers("a=1&xrdcl.intent=tpc&&b"), b"a=1&b");
    }

    #[test]
    fn a_token_stays_where_the_user_sent_it() {
        let led = |redirect: &Redirect, may| {
            let mut way = Way::new(url("roots://m//f?authz=Bearer%20secret&k=v"));
            way.follow(redirect, |_| may).unwrap();
            way.at.typed()
        };
        assert_eq!(led(&host("h", "", ""), false), "roots://h:1095//f?k=v");
        assert_eq!(led(&host("h", "", ""), true), "roots://h:1095//f?authz=Bearer%20secret&k=v");
        assert_eq!(led(&host("h", "authz=theirs", ""), false), "roots://h:1095//f?k=v&authz=theirs");
        assert_eq!(led(&complete("roots://h//g"), false), "roots://h//g?k=v");
        assert_eq!(led(&complete("roots://m//g"), false), "roots://m//g?authz=Bearer%20secret&k=v");
    }

    #[test]
    fn a_way_has_an_end() {
        let mut way = Way::new(url("root://m//f"));
        for number in 0..ROOT_REDIRECTS_MAX {
            way.follow(&host(&format!("h{number}"), "", ""), |_| false).unwrap();
        }
        assert_eq!(way.follow(&host("h", "", ""), |_| false).unwrap_err().kind(), ErrorKind::Protocol);
        let mut way = Way::new(url("root://m//f"));
        way.follow(&host("a", "", ""), |_| false).unwrap();
        way.follow(&host("b", "", ""), |_| false).unwrap();
        way.follow(&host("a", "", ""), |_| false).unwrap_err();
        // Without a redirect there is no manager to go back to.
        let mut way = Way::new(url("root://m//f"));
        let error = || Error::new(ErrorKind::Network, "broken");
        way.avoid(error(), None).unwrap_err();
        // A failure that another server would have as well.
        way.follow(&host("a", "", ""), |_| false).unwrap();
        let denied = Error::new(ErrorKind::Denied, "no");
        way.avoid(denied, Some(ErrorCode::NOT_AUTHORIZED)).unwrap_err();
        way.avoid(error(), None).unwrap();
        assert_eq!(way.at.typed(), "root://m//f?tried=a&triedrc=srverr");
        // The manager sees what the user sent it, and not what it gave to the server that failed.
        for (cgi, led) in
            [("", "roots://a:1095//f?k=v"), ("authz=theirs", "roots://a:1095//f?k=v&authz=theirs")]
        {
            let mut way = Way::new(url("roots://m//f?authz=mine&k=v"));
            way.follow(&host("a", cgi, ""), |_| false).unwrap();
            assert_eq!(way.at.typed(), led);
            way.avoid(error(), None).unwrap();
            assert_eq!(way.at.typed(), "roots://m//f?k=v&tried=a&triedrc=srverr&authz=mine");
        }
        // Sent to the same one again, the first failure is what is told.
        assert_eq!(way.follow(&host("a", "", ""), |_| false).unwrap_err().message(), "broken");
    }
}

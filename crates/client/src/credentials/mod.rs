//! The credentials of a user, found where the field's programs look for them.
//!
//! Options first, then tokens (WLCG Bearer Token Discovery), then certificates (Globus, VOMS):
//!
//! ```text
//! --token-file or --login, --cert and --key
//! BEARER_TOKEN ▸ BEARER_TOKEN_FILE ▸ $XDG_RUNTIME_DIR/bt_u$UID ▸ /tmp/bt_u$UID
//! GRIDLANE_SSS_KEYTAB ▸ XrdSecSSSKT ▸ XrdSecsssKT ▸ ~/.xrd/sss.keytab, beside the others, for servers of root:// that ask for a shared key
//! X509_USER_PROXY ▸ /tmp/x509up_u$UID ▸ X509_USER_CERT and X509_USER_KEY ▸ ~/.globus/usercert.pem and userkey.pem
//! ```
//!
//! The first one that is there is used; a token leaves certificates unread. Variables that are not set and files that are
//! missing or empty are passed over. A credential that the user named and that cannot be used is an error: to go on with
//! another identity, or without one, would not be what was asked for. One that only lies in a usual place and cannot be
//! used is passed over with a warning: public files need none, and any user can put a file into /tmp, which its victim
//! could not even remove.
//!
//! The search sees the machine through [`Machine`] only. The servers that get the credentials are not decided here: see
//! `gridlane_peer::Credentials`.

mod claims;
mod lasting;
mod live;
mod login;
mod machine;
mod shared_keys;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gridlane_core::limits::CREDENTIAL_BYTES_MAX;
use gridlane_core::units::format_seconds;
use gridlane_core::{ChecksumKind, Error, ErrorKind, Fault, Hasher, Hint, Result, Secret, Url};
use gridlane_net::tls::ClientIdentity;
use gridlane_peer::{Certificate, Credentials, HostPattern, SharedKeys, TokenSource};

pub use claims::{Claims, TokenKind};
pub use lasting::Lasting;
pub(crate) use lasting::LastingWatch;
pub use machine::{Content, Machine, ThisMachine, Version};
pub use shared_keys::FoundKeys;

use crate::login::{LoginSource, Teller};

/// The options about credentials.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Send none, whatever lies around.
    pub nothing: bool,
    /// A token itself, which comes before everything else.
    pub token: Option<Secret>,
    /// A file with a token.
    pub token_file: Option<PathBuf>,
    /// A login whose tokens are wanted, by its name, or `oidc-agent:ACCOUNT`.
    pub login: Option<String>,
    /// Told when that is not renewed while its token is still good.
    pub teller: Teller,
    /// A PEM file with a certificate or a proxy.
    pub certificate: Option<PathBuf>,
    /// Its key; without it, in the same file.
    pub key: Option<PathBuf>,
    /// A file of keys that servers have as well.
    pub sss_keytab: Option<PathBuf>,
}

/// The credentials that were found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// A token.
    pub token: Option<FoundToken>,
    /// A certificate with its key.
    pub certificate: Option<FoundCertificate>,
    /// Keys that servers have as well.
    pub shared_keys: Option<FoundKeys>,
    /// Faults that do not keep them from being used.
    pub warnings: Vec<Warning>,
    /// Credentials that were passed over although they are there, with the reasons.
    pub passed_over: Vec<String>,
}

/// A fault that the user should know, with advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The fault.
    pub message: String,
    /// The advice.
    pub advice: Hint,
}

/// The origin of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The program that this is a part of.
    Caller,
    /// An environment variable.
    Variable(&'static str),
    /// A file.
    File(PathBuf),
    /// A login, by its name.
    Login(String),
}

/// A token, which its `Debug` does not show.
#[derive(Clone, Debug)]
pub struct FoundToken {
    /// The token itself.
    pub secret: Secret,
    /// Its origin.
    pub origin: Origin,
    /// Its claims, which are not verified.
    pub claims: Claims,
    /// The version of its file; `None`: it is read once only.
    version: Option<Version>,
    /// True if the user named the file: then root may use another user's, and it may be anything that can be read.
    is_named: bool,
    /// Renews the token of a login.
    login: Option<LoginSource>,
}

/// A certificate with its key, which its `Debug` does not show.
#[derive(Clone, Debug)]
pub struct FoundCertificate {
    /// The file with the certificate.
    pub file: PathBuf,
    /// The credentials for servers.
    pub identity: ClientIdentity,
    /// The file with the key, which may be the same.
    key: PathBuf,
    /// The versions of both files; `None`: they are read once only.
    version: Option<(Version, Version)>,
    /// True if the user named the file.
    is_named: bool,
}

impl Warning {
    /// Something that is there cannot be used, and the command goes on without it.
    pub fn unshown(error: &Error) -> Warning {
        let message = format!("{}; it is sent to no server", error.message());
        Warning { message, advice: "renew it, or remove it".into() }
    }

    /// A failure that ends nothing yet.
    pub fn of(error: &Error) -> Warning {
        let advice = error.advice().cloned().unwrap_or(Hint::LogIn);
        Warning { message: error.message().to_owned(), advice }
    }

    /// The same of what cannot even be read, whose error knows better what to do.
    fn unread(error: &Error) -> Warning {
        let unshown = Warning::unshown(error);
        Warning { advice: error.advice().cloned().unwrap_or(unshown.advice), ..unshown }
    }

    /// The user and password of a URL are not sent.
    pub fn unsent(url: &Url) -> Warning {
        let message = format!(
            "the user and password in the URL are not sent to {}: they could be read on the way",
            url.host_header()
        );
        Warning { message, advice: "write https:// if the server speaks it, or leave them out".into() }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Caller => f.write_str("the caller"),
            Origin::Variable(name) => f.write_str(name),
            Origin::File(path) => write!(f, "{}", path.display()),
            Origin::Login(name) => write!(f, "the login {name}"),
        }
    }
}

impl FoundToken {
    fn is_same(&self, other: &FoundToken) -> bool {
        let is_login = matches!(self.origin, Origin::Login(_));
        let is_read_again = is_login || self.version.is_some() && other.version.is_some();
        self.origin == other.origin && (is_read_again || self.secret == other.secret)
    }

    /// `the token of /tmp/bt_u1000`.
    pub fn name(&self) -> String {
        format!("the token of {}", self.origin)
    }
}

impl FoundCertificate {
    /// `the proxy of /tmp/x509up_u1000`.
    pub fn name(&self) -> String {
        let kind = if self.identity.facts().proxies > 0 { "proxy" } else { "certificate" };
        format!("the {kind} of {}", self.file.display())
    }

    /// It as connections show it.
    fn shown(&self) -> Certificate {
        Certificate { shown: self.identity.clone(), name: self.name() }
    }

    /// An error of kind `Denied` if it has ended at `now_s`, in seconds since 1970.
    fn refuse_ended(&self, now_s: i64) -> Result<()> {
        let facts = self.identity.facts();
        if facts.ends_s > now_s {
            return Ok(());
        }
        let renew = if facts.proxies > 0 { Hint::RenewProxy } else { Hint::RenewCertificate };
        Err(expired(&self.name(), &past(facts.ends_s, now_s), renew))
    }
}

/// The time since a moment, for people.
fn past(ends_s: i64, now_s: i64) -> String {
    format_seconds(now_s.saturating_sub(ends_s) as f64)
}

impl Found {
    /// The names of the credentials in messages.
    pub fn names(&self) -> Vec<String> {
        let token = self.token.iter().map(FoundToken::name);
        token.chain(self.certificate.iter().map(FoundCertificate::name)).collect()
    }

    /// True if servers see the same credentials. A token that is read again when its file changes is known by the file.
    pub(crate) fn is_same(&self, other: &Found) -> bool {
        let is_token = match (&self.token, &other.token) {
            (Some(one), Some(other)) => one.is_same(other),
            (one, other) => one.is_none() && other.is_none(),
        };
        let is_certificate = match (&self.certificate, &other.certificate) {
            (Some(one), Some(other)) => one.identity.is_same(&other.identity),
            (one, other) => one.is_none() && other.is_none(),
        };
        is_token && is_certificate && self.shared_keys == other.shared_keys
    }

    /// The user whom they name, without secrets: issuer and subject of the token, or the digest of one that only its issuer can
    /// read, and the certificate's name. Empty where there are none.
    pub fn user(&self) -> String {
        let token = self.token.as_ref().map(|token| {
            let Claims { issuer, subject, .. } = &token.claims;
            match (issuer, subject, &token.origin) {
                (Some(issuer), Some(subject), _) => format!("token {subject:?} of {issuer:?}"),
                // Its tokens change, and it does not.
                (_, _, Origin::Login(name)) => format!("login {name:?}"),
                _ => {
                    let mut hasher = Hasher::new(ChecksumKind::Sha256);
                    hasher.update(token.secret.expose().as_bytes());
                    format!("token {}", hasher.finish().hex())
                }
            }
        });
        let certificate =
            self.certificate.as_ref().map(|found| format!("certificate {:?}", found.identity.facts().dn));
        [token, certificate].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// An error of kind `Denied` if a credential is not valid at `now_s`, in seconds since 1970.
    pub fn refuse_invalid(&self, now_s: i64) -> Result<()> {
        if let Some(token) = &self.token
            && !matches!(token.origin, Origin::Login(_))
            && let Some(ends_s) = token.claims.ends_s.filter(|ends_s| *ends_s <= now_s)
        {
            return Err(expired(&token.name(), &past(ends_s, now_s), Hint::RenewToken));
        }
        let Some(certificate) = &self.certificate else { return Ok(()) };
        certificate.refuse_ended(now_s)?;
        let facts = certificate.identity.facts();
        if facts.begins_s > now_s {
            let wait = format_seconds(facts.begins_s.saturating_sub(now_s) as f64);
            let message = format!("{} is valid only in {wait}", certificate.name());
            return Err(denied(message).hint("is this machine's clock right (timedatectl)?"));
        }
        Ok(())
    }

    /// The credentials that are valid at `now_s`, in seconds since 1970. A named one that is not valid is an error: the user
    /// wants that identity. One that only lies around is passed over with a warning: public files need none.
    pub fn usable(mut self, now_s: i64) -> Result<Found> {
        let Err(error) = self.refuse_invalid(now_s) else { return Ok(self) };
        let token_named = self.token.as_ref().map(|token| match token.origin {
            Origin::Caller | Origin::Variable(_) | Origin::Login(_) => true,
            Origin::File(_) => token.is_named,
        });
        let is_named = token_named.or(self.certificate.as_ref().map(|certificate| certificate.is_named));
        if is_named != Some(false) {
            return Err(error);
        }
        (self.token, self.certificate) = (None, None);
        self.warnings.push(Warning::unshown(&error));
        Ok(self)
    }

    /// The credentials for clients of protocols: the token and the certificate, which are read again when their files
    /// change, or renewed where the token is that of a login; and shared keys. No endpoint gets them before it is named.
    pub fn credentials(&self, machine: Arc<dyn Machine>, forward_to: Vec<HostPattern>) -> Credentials {
        let shared_keys = self.shared_keys.clone().map(|keys| {
            Arc::new(shared_keys::LiveKeys { file: keys.file, machine: Arc::clone(&machine) })
                as Arc<dyn SharedKeys>
        });
        let token = self.token.clone().map(|token| match token.login.clone() {
            Some(login) => Box::new(login) as Box<dyn TokenSource>,
            None => Box::new(live::LiveToken::new(token, Arc::clone(&machine))) as Box<dyn TokenSource>,
        });
        let shown = self.certificate.as_ref().map(FoundCertificate::shown);
        let credentials = Credentials::with_shared_keys(token, shown, shared_keys, forward_to);
        match self.certificate.clone() {
            Some(found) => credentials.renewing(Box::new(live::LiveCertificate::new(found, machine))),
            None => credentials,
        }
    }

    /// The credential that ends first; `None` when there is none, or none states an end.
    pub fn lasting(&self) -> Option<Lasting> {
        // A login is renewed.
        let ends = self.token.as_ref().filter(|token| !token.is_renewed());
        let of_token = ends.and_then(|token| {
            let is_read_again = token.version.is_some();
            Some(Lasting { name: token.name(), ends_s: token.claims.ends_s?, is_read_again })
        });
        let of_certificate = self.certificate.as_ref().map(|certificate| Lasting {
            name: certificate.name(),
            ends_s: certificate.identity.facts().ends_s,
            is_read_again: certificate.version.is_some(),
        });
        of_token.into_iter().chain(of_certificate).min_by_key(|lasting| lasting.ends_s)
    }
}

/// True if credentials are sent to the server of a URL that the user names: it speaks TLS, and the URL has no credentials
/// of its own.
pub fn are_shown_to(url: &Url) -> bool {
    url.scheme().is_encrypted() && !url.has_secrets()
}

/// True if the server of a URL may turn out to get them: one of `root://` may begin TLS, and want a token at the login,
/// whatever the URL of a file has. Most do not, so that it is no error when there is none that is valid.
pub fn may_be_shown_to(url: &Url) -> bool {
    url.scheme().is_root()
}

/// Looks for credentials.
pub fn discover(wanted: &Wanted, machine: &dyn Machine) -> Result<Found> {
    let mut found = Found::default();
    if wanted.nothing {
        return Ok(found);
    }
    let search = Search { machine, user: machine.user() };
    // Beside the others: servers ask for it by name.
    found.shared_keys = match &wanted.sss_keytab {
        Some(file) => Some(FoundKeys { file: file.clone() }),
        None => search.shared_keys(),
    };
    if let Some(token) = &wanted.token {
        found.token = Some(read_token(token.expose().trim(), Origin::Caller, None)?);
    } else if let Some(path) = &wanted.token_file {
        found.token = search.token_in(path, true, &mut found.warnings)?;
        if found.token.is_none() {
            return Err(unusable(path, "it is empty"));
        }
    } else if let Some(name) = &wanted.login {
        found.token = Some(login::found(name, machine)?);
    }
    if let Some(path) = &wanted.certificate {
        let key = wanted.key.as_ref().unwrap_or(path);
        found.certificate = Some(search.certificate_in(path, key, true)?);
    }
    if found.token.is_some() || found.certificate.is_some() {
        return Ok(found);
    }
    found.token = search.token(&mut found.warnings)?;
    if found.token.is_none() {
        found.certificate = search.certificate(&mut found.passed_over, &mut found.warnings)?;
    }
    Ok(found)
}

struct Search<'a> {
    machine: &'a dyn Machine,
    user: u32,
}

impl Search<'_> {
    /// A variable that is set and not empty.
    fn path(&self, name: &str) -> Option<PathBuf> {
        self.machine.variable(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    fn token(&self, warnings: &mut Vec<Warning>) -> Result<Option<FoundToken>> {
        const VARIABLE: &str = "BEARER_TOKEN";
        if let Some(value) = self.machine.variable(VARIABLE) {
            let text = value.into_string().map_err(|_| malformed(VARIABLE))?;
            let text = text.trim();
            if !text.is_empty() {
                let origin = Origin::Variable(VARIABLE);
                return read_token(text, origin, None).map(Some);
            }
        }
        if let Some(path) = self.path("BEARER_TOKEN_FILE")
            && let Some(token) = self.token_in(&path, true, warnings)?
        {
            return Ok(Some(token));
        }
        let name = format!("bt_u{}", self.user);
        let places = [self.path("XDG_RUNTIME_DIR"), Some(PathBuf::from("/tmp"))];
        for path in places.into_iter().flatten().map(|dir| dir.join(&name)) {
            match self.token_in(&path, false, warnings) {
                Ok(None) => {}
                Ok(token) => return Ok(token),
                Err(error) => warnings.push(Warning::unread(&error)),
            }
        }
        Ok(None)
    }

    /// The token in a file; `None` when it is empty, or when a file that was not named is not there.
    fn token_in(
        &self,
        path: &Path,
        is_named: bool,
        warnings: &mut Vec<Warning>,
    ) -> Result<Option<FoundToken>> {
        let Some(content) = self.content(path, is_named)? else { return Ok(None) };
        if let Some(mode) = content.mode.filter(|mode| mode & 0o077 != 0) {
            warnings.push(Warning {
                message: format!("{} can be read or changed by others (mode {mode:03o})", path.display()),
                advice: format!("chmod 600 {}", path.display()).into(),
            });
        }
        token_of(&content, path, is_named)
    }

    fn certificate(
        &self,
        passed_over: &mut Vec<String>,
        warnings: &mut Vec<Warning>,
    ) -> Result<Option<FoundCertificate>> {
        if let Some(path) = self.path("X509_USER_PROXY") {
            return self.certificate_in(&path, &path, true).map(Some);
        }
        let proxy = PathBuf::from(format!("/tmp/x509up_u{}", self.user));
        match self.content(&proxy, false).map(|content| content.is_some()) {
            Ok(false) => {}
            is_there => match is_there.and_then(|_| self.certificate_in(&proxy, &proxy, false)) {
                Ok(found) => return Ok(Some(found)),
                Err(error) => warnings.push(Warning::unread(&error)),
            },
        }
        if let Some(path) = self.path("X509_USER_CERT") {
            let key = self.path("X509_USER_KEY").unwrap_or_else(|| path.clone());
            return self.certificate_in(&path, &key, true).map(Some);
        }
        let Some(globus) = self.path("HOME").map(|home| home.join(".globus")) else { return Ok(None) };
        let (path, key) = (globus.join("usercert.pem"), globus.join("userkey.pem"));
        let exists = |path| self.machine.read(path, false).is_ok_and(|content| content.is_some());
        if !exists(&path) || !exists(&key) {
            return Ok(None);
        }
        match self.certificate_in(&path, &key, false) {
            Ok(found) => Ok(Some(found)),
            // Most keys there are made to be used by voms-proxy-init, which asks for the passphrase.
            Err(error) if error.message().contains("encrypted") => {
                passed_over.push(format!("{}: {}", path.display(), error.message()));
                Ok(None)
            }
            Err(error) => {
                warnings.push(Warning::unread(&error));
                Ok(None)
            }
        }
    }

    fn certificate_in(&self, path: &Path, key: &Path, is_named: bool) -> Result<FoundCertificate> {
        let gone = |path: &Path| unusable(path, "it is not there any more");
        let of_key = self.content(key, is_named)?.ok_or_else(|| gone(key))?;
        // Certificates alone may be readable by all users.
        if path == key && !has_key(&of_key.bytes) {
            let message = format!("there is no private key in {}", key.display());
            return Err(Error::new(ErrorKind::Usage, message).fault(Fault::Caller).hint(Hint::NameKey));
        }
        if let Some(mode) = of_key.mode.filter(|mode| mode & 0o077 != 0) {
            let message = format!(
                "{} has a private key and can be read or changed by others (mode {mode:03o})",
                key.display()
            );
            return Err(
                denied(message).hint(format!("chmod 600 {}, if it has not been read yet", key.display()))
            );
        }
        let of_certificate = match path == key {
            true => None,
            false => Some(self.content(path, is_named)?.ok_or_else(|| gone(path))?),
        };
        let certificates = of_certificate.as_ref().unwrap_or(&of_key);
        let identity = ClientIdentity::from_pem(&certificates.bytes, &of_key.bytes);
        let identity = identity.map_err(|error| {
            let again =
                Error::new(error.kind(), format!("cannot use {}: {}", path.display(), error.message()));
            again.fault(Fault::Caller).hint(error.advice().cloned().unwrap_or(Hint::OtherCredentials))
        })?;
        let version = certificates.version.zip(of_key.version);
        Ok(FoundCertificate { file: path.to_path_buf(), identity, key: key.to_path_buf(), version, is_named })
    }

    /// A file; `None` when it was not named and is not there.
    fn content(&self, path: &Path, is_named: bool) -> Result<Option<Content>> {
        let failed = |cause: &std::io::Error| {
            denied(format!("cannot read {}: {cause}", path.display())).hint(Hint::OtherCredentials)
        };
        let content = self.machine.read(path, is_named).map_err(|cause| failed(&cause))?;
        let Some(content) = content else {
            return match is_named {
                true => {
                    Err(denied(format!("there is no file {}", path.display())).hint(Hint::OtherCredentials))
                }
                false => Ok(None),
            };
        };
        // In /tmp any user can put a file under this name: to take another identity without knowing it is no help.
        let is_own = content.owner == self.user || content.owner == 0 || (is_named && self.user == 0);
        if content.mode.is_some() && !is_own {
            let message = format!("{} belongs to another user ({})", path.display(), content.owner);
            return Err(denied(message).hint(Hint::OtherCredentials));
        }
        if content.bytes.len() > CREDENTIAL_BYTES_MAX {
            return Err(unusable(path, "it is larger than any credential"));
        }
        Ok(Some(content))
    }
}

/// True if PEM has a private key of any form.
fn has_key(pem: &[u8]) -> bool {
    const LABEL_END: &[u8] = b"PRIVATE KEY-----";
    pem.windows(LABEL_END.len()).any(|window| window == LABEL_END)
}

fn token_of(content: &Content, path: &Path, is_named: bool) -> Result<Option<FoundToken>> {
    let origin = Origin::File(path.to_path_buf());
    let text = std::str::from_utf8(&content.bytes).map_err(|_| malformed(&origin.to_string()))?.trim();
    if text.is_empty() {
        return Ok(None);
    }
    read_token(text, origin, content.version).map(|token| Some(FoundToken { is_named, ..token }))
}

/// A token of text without space around it (RFC 6750, 2.1: `b64token`).
fn read_token(text: &str, origin: Origin, version: Option<Version>) -> Result<FoundToken> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    if !text.bytes().all(is_plain) {
        return Err(malformed(&origin.to_string()));
    }
    let (secret, claims) = (Secret::new(text), Claims::read(text));
    Ok(FoundToken { secret, origin, claims, version, is_named: false, login: None })
}

fn malformed(of: &str) -> Error {
    Error::new(ErrorKind::Usage, format!("what {of} has is no token"))
        .fault(Fault::Caller)
        .hint("it is one word of letters, digits and -._~+/=, without \"Bearer\" in front")
}

fn unusable(path: &Path, why: &str) -> Error {
    Error::new(ErrorKind::Usage, format!("cannot use {}: {why}", path.display()))
        .fault(Fault::Caller)
        .hint(Hint::OtherCredentials)
}

fn denied(message: String) -> Error {
    Error::new(ErrorKind::Denied, message).fault(Fault::Caller)
}

fn expired(name: &str, ago: &str, renew: Hint) -> Error {
    denied(format!("{name} expired {ago} ago by this machine's clock")).hint(renew)
}

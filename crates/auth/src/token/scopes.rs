//! What scopes allow, and where.

use gridlane_core::limits;
use gridlane_dav::ResourcePath;

use super::{Issuer, Profile};
use crate::identity::Capability;
use crate::operation::{Grants, Operation};
use crate::refusal::{Cause, Refusal};

/// The sum of the scopes of a token.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Scopes {
    /// All, as they are written.
    pub(super) all: Vec<String>,
    /// The rights that they grant here.
    pub(super) capabilities: Vec<Capability>,
    /// True if there is any that says what may be done, here or elsewhere.
    pub(super) is_capability: bool,
}

impl Scopes {
    /// Reads `scope` (RFC 8693, 4.2): words with a space between them.
    pub(super) fn read(text: &str, profile: Profile, issuer: &Issuer) -> Result<Scopes, Refusal> {
        let mut scopes = Scopes::default();
        for scope in text.split(' ').filter(|scope| !scope.is_empty()) {
            // RFC 6749, 3.3. Nothing else can be in a header or a log by this.
            if !scope.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\')) {
                return Err(Refusal::new(
                    Cause::Malformed,
                    "a scope of the token has a character that none may have",
                ));
            }
            if scopes.all.len() == limits::TOKEN_SCOPES_MAX {
                let message = format!("the token has more than {} scopes", limits::TOKEN_SCOPES_MAX);
                return Err(Refusal::new(Cause::Unacceptable, message));
            }
            scopes.all.push(scope.to_owned());
            scopes.add(scope, profile, issuer)?;
        }
        Ok(scopes)
    }

    fn add(&mut self, scope: &str, profile: Profile, issuer: &Issuer) -> Result<(), Refusal> {
        let (name, path) = match scope.split_once(':') {
            Some((name, path)) => (name, Some(path)),
            None => (scope, None),
        };
        let Some(may) = granted(name, profile) else {
            // WLCG profile 2.2.3: any of them, "irrespective of their relevance to the service in question".
            self.is_capability |= name.starts_with("storage.") || name.starts_with("compute.");
            return Ok(());
        };
        self.is_capability = true;
        let under = match path {
            // SciTokens only; for `storage.*` the path is obligatory, and "the token MUST be rejected" (WLCG profile 2.2.1).
            None if !name.starts_with("storage.") => issuer.base.to_directory_form(),
            None => {
                return Err(Refusal::new(Cause::Malformed, format!("the token's scope {name} has no path")));
            }
            Some(path) => {
                let below =
                    read_path(path).map_err(|refusal| refusal.context(format_args!("scope {name}")))?;
                let under = below.names().fold(issuer.base.clone(), |under, name| under.join(name));
                if below.is_directory_form() { under.to_directory_form() } else { under }
            }
        };
        let may = match may.and(issuer.may) {
            // WLCG profile 2.2.1: whatever may be done, the file may be looked at.
            Grants::NONE if issuer.may.includes(Operation::Stat) => Grants::of(Operation::Stat),
            may => may,
        };
        if !may.is_empty() {
            self.capabilities.push(Capability { may, under });
        }
        Ok(())
    }
}

/// The operation that a scope of this name is about, if it is about storage.
fn granted(name: &str, profile: Profile) -> Option<Grants> {
    let modify = Grants::WRITE.with(Grants::DELETE);
    Some(match name {
        // Listing is postponed by the profile, "until further notice"; every server takes it as read.
        "storage.read" => Grants::READ.with(Grants::LIST),
        // A file may get its name when it is complete.
        "storage.create" => Grants::CREATE.with(Grants::of(Operation::Rename)),
        "storage.modify" => modify,
        // Since profile 1.2 it is not for reading, whatever `wlcg.ver` says.
        "storage.stage" => Grants::STAGE,
        "storage.poll" => Grants::of(Operation::Stat),
        "read" if profile.is_scitokens() => Grants::READ.with(Grants::LIST),
        "write" if profile.is_scitokens() => modify,
        _ => return None,
    })
}

/// A path of a scope: absolute, normalised (RFC 3986, 6) and percent-encoded. Others are of no issuer of tokens with
/// care, and could be read in more ways than one: the token is refused (WLCG profile 2.2.1 leaves that open).
fn read_path(text: &str) -> Result<ResourcePath, Refusal> {
    let refused = |what: &str| Err(Refusal::new(Cause::Malformed, format!("its path {what}")));
    let Some(names) = text.strip_prefix('/') else {
        return refused("does not begin with a slash");
    };
    if text.to_ascii_lowercase().contains("%2e") {
        return refused("has an encoded dot");
    }
    let mut names = names.split('/').peekable();
    while let Some(name) = names.next() {
        match name {
            "." | ".." => return refused("has a component '.' or '..'"),
            "" if names.peek().is_some() => return refused("has two slashes without a name between them"),
            _ => {}
        }
    }
    let path = match ResourcePath::parse(text) {
        Ok(path) => path,
        Err(rejection) => return refused(&format!("is not one: {}", rejection.message)),
    };
    for name in path.names() {
        if name.iter().any(|byte| byte.is_ascii_control() || *byte == b'\\') {
            return refused("has a name with a backslash or a control character");
        }
        let is_encoded = |three: &[u8]| three[0] == b'%' && three[1..].iter().all(u8::is_ascii_hexdigit);
        if name.windows(3).any(is_encoded) {
            return refused("is encoded more than once");
        }
    }
    Ok(path)
}

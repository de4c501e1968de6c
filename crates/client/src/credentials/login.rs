//! The token of a login, among the credentials that are found.

use gridlane_core::{Result, Secret};
use gridlane_net::Dialer;

use super::{Claims, Found, FoundToken, Machine, Origin, ThisMachine, Wanted};
use crate::login::{AGENT_PREFIX, Access, LoginSource, Store};

/// The login of this name, with the token that is stored with it. It may have ended; then another one is asked for when it is
/// needed. Of an account of oidc-agent nothing is known here.
pub(super) fn found(name: &str, machine: &dyn Machine) -> Result<FoundToken> {
    let mut token = FoundToken {
        secret: Secret::new(""),
        origin: Origin::Login(name.to_owned()),
        claims: Claims::default(),
        version: None,
        is_named: true,
        login: None,
    };
    if !name.starts_with(AGENT_PREFIX) {
        let login = Store::of(|variable| machine.variable(variable))?.read(name)?;
        if let Some(access) = login.access {
            token.took(access);
        }
    }
    Ok(token)
}

impl FoundToken {
    /// True if it is renewed before it ends.
    pub(super) fn is_renewed(&self) -> bool {
        self.login.as_ref().is_some_and(LoginSource::is_renewable)
    }

    fn took(&mut self, access: Access) {
        self.claims = Claims::read(access.secret.expose());
        // The issuer's word to the client: the token may be opaque.
        self.claims.ends_s = access.ends_s.or(self.claims.ends_s);
        self.secret = access.secret;
    }
}

impl Found {
    /// Has a login renew its token from now on; with `is_needed`, it has one that is good when this returns, which may take
    /// a question to the issuer. Blocks.
    pub(crate) fn signed_in(mut self, wanted: &Wanted, dialer: Dialer, is_needed: bool) -> Result<Found> {
        if let Some(token) = &mut self.token
            && let Origin::Login(name) = &token.origin
        {
            let variable = |name: &str| ThisMachine.variable(name);
            let source = LoginSource::new(name, variable, dialer, wanted.teller.clone())?;
            if is_needed {
                token.took(source.access()?);
            }
            token.login = Some(source);
        }
        Ok(self)
    }
}

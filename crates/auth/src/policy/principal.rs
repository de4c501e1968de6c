//! The clients that a rule is about.

use gridlane_core::Network;

use super::Asker;
use crate::dn::Pattern;
use crate::fqan::Fqan;
use crate::identity::Identity;

/// The clients that a rule is about. All that is said here has to be true of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Principal {
    /// Of which kind, when nothing else is said.
    pub class: Class,
    /// In one of these; empty: anywhere.
    pub networks: Vec<Network>,
    /// Subject of the end-entity certificate.
    pub dn: Option<Pattern>,
    /// The user of this site.
    pub user: Option<String>,
    /// A virtual organisation.
    pub vo: Option<String>,
    /// A group of it, `/atlas/production`; with `/*` at its end any group inside of it. A member of a group inside is
    /// not in it by that. Without `vo` and `issuer` it is the group of the VO that its name begins with.
    pub group: Option<String>,
    /// The role there.
    pub role: Option<String>,
    /// Issuer of the token.
    pub issuer: Option<String>,
    /// Its subject.
    pub subject: Option<String>,
    /// One of its scopes, as it is written.
    pub scope: Option<String>,
}

/// A kind of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// Every client, with or without a credential.
    Anyone,
    /// Every client with a credential that grants nothing by itself.
    #[default]
    Authenticated,
    /// Bearers of macaroons: a ceiling.
    Macaroons,
}

/// A group of a client, perhaps by a role; or only the VO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Membership<'a> {
    pub(super) vo: Option<&'a str>,
    pub(super) group: Option<&'a str>,
    pub(super) role: Option<&'a str>,
}

impl Principal {
    /// Every client, with or without a credential.
    pub fn anyone() -> Principal {
        Principal { class: Class::Anyone, ..Principal::default() }
    }

    /// True if it asks for no credential.
    pub(super) fn is_about_anyone(&self) -> bool {
        self.class == Class::Anyone
    }

    /// The condition that excludes a client, those about groups apart.
    pub(super) fn excludes(&self, asker: Asker<'_>) -> Option<&'static str> {
        let identity = asker.identity;
        let is_here = |network: &Network| network.contains(asker.address);
        if !self.networks.is_empty() && !self.networks.iter().any(is_here) {
            return Some("addresses");
        }
        match self.class {
            Class::Anyone => return None,
            Class::Authenticated if identity.is_anonymous() => return Some("who"),
            Class::Macaroons if !matches!(identity, Identity::Macaroon(_)) => return Some("who"),
            Class::Authenticated | Class::Macaroons => {}
        }
        let (dn, token) = match identity {
            Identity::Certificate(certificate) => (Some(certificate.dn.as_str()), None),
            Identity::Token(token) => (None, Some(token)),
            Identity::Anonymous | Identity::Macaroon(_) | Identity::User(_) => (None, None),
        };
        let differs = |wanted: &Option<String>, is: Option<&str>| {
            wanted.as_deref().is_some_and(|wanted| is != Some(wanted))
        };
        if self.dn.as_ref().is_some_and(|wanted| !dn.is_some_and(|dn| wanted.fits(dn))) {
            return Some("dn");
        }
        if differs(&self.user, identity.user()) {
            return Some("user");
        }
        if differs(&self.issuer, token.map(|token| token.issuer.as_str())) {
            return Some("issuer");
        }
        if differs(&self.subject, token.map(|token| token.subject.as_str())) {
            return Some("subject");
        }
        if let Some(scope) = &self.scope
            && !token.is_some_and(|token| token.scopes.contains(scope))
        {
            return Some("scope");
        }
        None
    }

    /// The memberships by which it may be about a client: one that says nothing when none is asked for.
    pub(super) fn memberships<'a>(&self, identity: &'a Identity, asks: bool) -> Vec<Membership<'a>> {
        let is_asked = asks || self.vo.is_some() || self.group.is_some() || self.role.is_some();
        if !is_asked {
            return vec![Membership::default()];
        }
        let of_issuer = match identity {
            Identity::Token(token) => token.vo.as_deref(),
            _ => None,
        };
        // An issuer speaks for one VO: what it calls groups are that VO's, however they are written. Where a rule says
        // neither whose group nor which issuer's, the name of the group has to: else one VO could fill another's groups.
        let is_own = |fqan: &&Fqan| {
            self.vo.is_some() || self.issuer.is_some() || of_issuer.is_none_or(|vo| vo == fqan.vo())
        };
        let of_fqans = identity.fqans().iter().filter(is_own).map(|fqan| Membership {
            vo: of_issuer.or(Some(fqan.vo())),
            group: Some(fqan.group()),
            role: fqan.role(),
        });
        let alone = of_issuer.map(|vo| Membership { vo: Some(vo), group: None, role: None });
        of_fqans.chain(alone).filter(|member| self.is_about(*member)).collect()
    }

    fn is_about(&self, member: Membership<'_>) -> bool {
        let group_fits = self.group.as_deref().is_none_or(|wanted| {
            member.group.is_some_and(|group| match wanted.strip_suffix("/*") {
                Some(parent) => group.strip_prefix(parent).is_some_and(|rest| rest.starts_with('/')),
                None => group == wanted,
            })
        });
        let is_same = |wanted: &Option<String>, is: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| is == Some(wanted))
        };
        group_fits && is_same(&self.vo, member.vo) && is_same(&self.role, member.role)
    }
}

//! Rules: the rights of clients by path, and what is decided by them.
//!
//! A rule grants; nothing forbids. What no rule grants is refused. A rule's grant holds for everything below its path, so
//! that the right to do something to a directory is that to do it to all that is inside.
//!
//! A client with a capability (a token with scopes about storage, a macaroon) may do what it says, where it says, and
//! beside that only what anyone may: its groups and its name grant nothing. Rules about macaroons are a ceiling: when
//! there are any, a macaroon is worth only what one of them grants as well.

mod principal;
mod template;

#[cfg(test)]
mod tests;

use std::fmt;
use std::net::IpAddr;

use gridlane_dav::ResourcePath;

use crate::identity::{Capability, Identity};
use crate::operation::{Grants, Operation};

pub use principal::{Class, Principal};
pub use template::Template;

/// Who asks, and from where.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// Who.
    pub identity: &'a Identity,
    /// Where the client is: what a trusted proxy says, or else the connection's other end.
    pub address: IpAddr,
}

/// Grants something to somebody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What it is called in logs and explanations: where it stands in the configuration.
    pub name: String,
    /// To whom.
    pub who: Principal,
    /// What.
    pub may: Grants,
    /// Where: this path of the server, and everything below it.
    pub under: Template,
}

/// Why a rule does not grant it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// It is about somebody else: which of its conditions does not hold.
    Principal(&'static str),
    /// It is about another place.
    Under,
    /// It grants other things.
    May,
}

/// What of a place is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// What is at a path.
    There,
    /// The same, or anything below it.
    ThereOrBelow,
}

/// What was decided, and by what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision<'a> {
    /// It may be done, since this rule grants it.
    ByRule(&'a Rule),
    /// It may be done, since the credential says so.
    ByCapability(&'a Capability),
    /// It may not be done.
    Refused(Reason),
}

/// Why something may not be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nobody in particular asks, and no rule lets anyone do it. Who has a credential may fare better.
    Anonymous,
    /// No rule grants it.
    NoRule,
    /// The token's scopes do not.
    BeyondScopes,
    /// The macaroon's caveats do not.
    BeyondCaveats,
    /// The macaroon does, and no rule about macaroons.
    BeyondCeiling,
}

impl Decision<'_> {
    /// Whether it may be done.
    pub fn is_granted(&self) -> bool {
        !matches!(self, Decision::Refused(_))
    }
}

/// What decided, for logs: `[[rule]] 3`, `scope`, or why not.
impl fmt::Display for Decision<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decision::ByRule(rule) => f.write_str(&rule.name),
            Decision::ByCapability(capability) => {
                write!(f, "credential: {} under {}", capability.may, capability.under)
            }
            Decision::Refused(reason) => fmt::Display::fmt(reason, f),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Anonymous => "no rule lets anyone do that here without a credential",
            Reason::NoRule => "no rule lets this client do that here",
            Reason::BeyondScopes => "the token's scopes do not allow that here",
            Reason::BeyondCaveats => "the macaroon's caveats do not allow that here",
            Reason::BeyondCeiling => "no rule about macaroons allows that here",
        })
    }
}

/// All rules of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
    has_ceiling: bool,
}

impl Policy {
    /// By these rules.
    pub fn new(rules: Vec<Rule>) -> Policy {
        let has_ceiling = rules.iter().any(|rule| rule.who.class == Class::Macaroons);
        Policy { rules, has_ceiling }
    }

    /// The rules, in their order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Whether somebody may do something to what is at a path of the server, given by its names.
    pub fn decide<'a, 'p>(
        &'a self,
        asker: Asker<'a>,
        operation: Operation,
        path: impl Iterator<Item = &'p [u8]> + Clone,
    ) -> Decision<'a> {
        self.decide_among(asker, operation, path, Extent::There, |_| true)
    }

    /// Whether somebody may do something to what is at a path, or could be anywhere below it. For a macaroon with a ceiling
    /// it may say yes where the two have nothing in common.
    pub fn reaches<'p>(
        &self,
        asker: Asker<'_>,
        operation: Operation,
        path: impl Iterator<Item = &'p [u8]> + Clone,
    ) -> bool {
        self.decide_among(asker, operation, path, Extent::ThereOrBelow, |_| true).is_granted()
    }

    /// By those rules alone for which `counts` says yes.
    fn decide_among<'a, 'p>(
        &'a self,
        asker: Asker<'a>,
        operation: Operation,
        path: impl Iterator<Item = &'p [u8]> + Clone,
        extent: Extent,
        counts: impl Fn(&Rule) -> bool,
    ) -> Decision<'a> {
        let granting = |wanted: fn(&Rule) -> bool| {
            let grants = |rule: &&Rule| rule.mismatch_in(asker, operation, path.clone(), extent).is_none();
            self.rules.iter().filter(|rule| wanted(rule) && counts(rule)).find(grants)
        };
        let Some(capabilities) = asker.identity.capabilities() else {
            return match granting(|rule| rule.who.class != Class::Macaroons) {
                Some(rule) => Decision::ByRule(rule),
                None if asker.identity.is_anonymous() => Decision::Refused(Reason::Anonymous),
                None => Decision::Refused(Reason::NoRule),
            };
        };
        let is_macaroon = matches!(asker.identity, Identity::Macaroon(_));
        let able =
            capabilities.iter().find(|capability| capability.allows_in(operation, path.clone(), extent));
        let ceiling_holds = || {
            !is_macaroon || !self.has_ceiling || granting(|rule| rule.who.class == Class::Macaroons).is_some()
        };
        match able {
            Some(capability) if ceiling_holds() => return Decision::ByCapability(capability),
            _ => {}
        }
        match granting(Rule::is_the_same_for_all) {
            Some(rule) => Decision::ByRule(rule),
            None if able.is_some() => Decision::Refused(Reason::BeyondCeiling),
            None if is_macaroon => Decision::Refused(Reason::BeyondCaveats),
            None => Decision::Refused(Reason::BeyondScopes),
        }
    }

    /// Everything that somebody may do to what is at a path, wherever they are: what a macaroon for it can be given. What a
    /// rule grants for where a client is does not count, since a macaroon can be used from anywhere.
    pub fn grants<'p>(&self, asker: Asker<'_>, path: impl Iterator<Item = &'p [u8]> + Clone) -> Grants {
        use Operation::{Admin, Create, Delete, List, Mkdir, Overwrite, Read, Rename, Stage};
        let counts = |rule: &Rule| rule.who.networks.is_empty() || rule.who.class == Class::Macaroons;
        let is_granted = |operation: &Operation| {
            self.decide_among(asker, *operation, path.clone(), Extent::There, counts).is_granted()
        };
        [Read, List, Create, Mkdir, Overwrite, Delete, Rename, Stage, Admin]
            .into_iter()
            .filter(is_granted)
            .fold(Grants::NONE, |all, operation| all.with(Grants::of(operation)))
    }
}

impl Rule {
    /// Why it does not grant this; `None` if it does.
    pub fn mismatch<'p>(
        &self,
        asker: Asker<'_>,
        operation: Operation,
        path: impl Iterator<Item = &'p [u8]> + Clone,
    ) -> Option<Mismatch> {
        self.mismatch_in(asker, operation, path, Extent::There)
    }

    /// Whether it grants the same to everybody: it asks for no credential, and its path says nothing of who asks.
    fn is_the_same_for_all(&self) -> bool {
        self.who.is_about_anyone() && !self.under.is_about_asker()
    }

    fn mismatch_in<'p>(
        &self,
        asker: Asker<'_>,
        operation: Operation,
        path: impl Iterator<Item = &'p [u8]> + Clone,
        extent: Extent,
    ) -> Option<Mismatch> {
        if !self.may.includes(operation) {
            return Some(Mismatch::May);
        }
        if let Some(condition) = self.who.excludes(asker) {
            return Some(Mismatch::Principal(condition));
        }
        let is_capability = asker.identity.capabilities().is_some();
        if is_capability && self.who.class != Class::Macaroons && !self.who.is_about_anyone() {
            return Some(Mismatch::Principal("a capability has only what it says, and what anyone may"));
        }
        let candidates = self.who.memberships(asker.identity, self.under.is_about_membership());
        if candidates.is_empty() {
            return Some(Mismatch::Principal("vo, group or role"));
        }
        let is_under = |member: &principal::Membership<'_>| {
            self.under.holds(asker.identity, *member, path.clone(), extent)
        };
        match candidates.iter().any(is_under) {
            true => None,
            false => Some(Mismatch::Under),
        }
    }
}

impl Capability {
    /// Whether it allows this. Directories that lead to its path may be looked at, and made when it may make any. A path
    /// that is written as a directory's is no place for a file (WLCG profile 2.2.1).
    pub fn allows<'p>(&self, operation: Operation, path: impl Iterator<Item = &'p [u8]> + Clone) -> bool {
        self.allows_in(operation, path, Extent::There)
    }

    fn allows_in<'p>(
        &self,
        operation: Operation,
        path: impl Iterator<Item = &'p [u8]> + Clone,
        extent: Extent,
    ) -> bool {
        if !self.may.includes(operation) {
            return false;
        }
        let leads_there = || {
            let mut under = self.under.names();
            path.clone().all(|name| under.next() == Some(name))
        };
        let is_file_there = || {
            operation == Operation::Create
                && self.under.is_directory_form()
                && path.clone().eq(self.under.names())
        };
        (is_under(path.clone(), &self.under) && !is_file_there())
            || (matches!(operation, Operation::Stat | Operation::Mkdir) && leads_there())
            || (extent == Extent::ThereOrBelow && leads_there())
    }
}

/// Whether a path is `base`, or below it.
fn is_under<'p>(mut path: impl Iterator<Item = &'p [u8]>, base: &ResourcePath) -> bool {
    base.names().all(|name| path.next() == Some(name))
}

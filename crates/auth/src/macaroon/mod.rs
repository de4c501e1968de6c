//! Macaroons: made by this site for clients that prove their identity, attenuated by any holder.
//!
//! A macaroon is an identifier, caveats, and a signature over both ([`Macaroon`], [`Caveat`]). A holder can add
//! caveats, offline, and hand on something that may do less. Those of XRootD and dCache are of the same form and have the
//! same caveats; servers that share a secret accept each other's.
//!
//! [`mint`] makes one, [`verify`] says what one is worth, [`request`] reads what clients ask for.

mod activity;
mod caveat;
mod chain;
mod keys;
mod packets;
pub mod request;

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::net::IpAddr;

use gridlane_core::{Network, Secret, limits};
use gridlane_dav::ResourcePath;

use crate::identity::{Capability, MacaroonIdentity};
use crate::operation::Grants;
use crate::refusal::{Cause, Refusal};

pub use activity::{grants_of, is_known, words_of};
pub use caveat::Caveat;
pub use keys::Keys;
pub use packets::Macaroon;

/// The terms of a new macaroon.
#[derive(Clone, Debug)]
pub struct Terms<'a> {
    /// The name of the site: servers that share a secret have the same one.
    pub location: &'a str,
    /// The name of its owner: a DN, a subject, a user.
    pub name: &'a str,
    /// All rights of the owner at the path.
    pub rights: Grants,
    /// The path that it is for.
    pub path: &'a ResourcePath,
    /// Its end, in seconds since 1970.
    pub expires_s: i64,
    /// The rights that were asked for, if any were: fewer ones.
    pub asked: Option<Grants>,
    /// Networks that it may be used from: all of these hold.
    pub networks: &'a [Vec<Network>],
}

/// A new macaroon.
#[derive(Clone, Debug)]
pub struct Minted {
    /// The macaroon itself.
    pub text: Secret,
    /// Its identifier in logs, by which it is revoked.
    pub id: String,
}

/// Makes a macaroon with the first of the keys. `random` makes its identifier: it has to be unpredictable, and never the
/// same twice. Caveats are in XRootD's order: name, all rights, the rights that were asked for, path, end; others behind them. Fails
/// for a name or a path that caveats cannot have, and for what would be too long.
pub fn mint(keys: &Keys, random: [u8; 16], terms: &Terms<'_>) -> Result<Minted, Refusal> {
    let id = uuid(random);
    let signature = chain::first(keys.newest(), id.as_bytes());
    let macaroon = Macaroon {
        location: terms.location.as_bytes().to_vec(),
        identifier: id.clone().into_bytes(),
        caveats: Vec::new(),
        signature,
    };
    let caveats = [
        Some(Caveat::Name(terms.name.to_owned())),
        Some(Caveat::Activity(terms.rights)),
        terms.asked.map(Caveat::Activity),
        Some(Caveat::Path(terms.path.clone())),
        Some(Caveat::Before(terms.expires_s)),
    ];
    let networks = terms.networks.iter().cloned().map(Caveat::Ip);
    let macaroon = caveats.into_iter().flatten().chain(networks).try_fold(macaroon, |macaroon, caveat| {
        let bytes = caveat.to_bytes();
        // What we would refuse to read is better not written.
        Caveat::parse(&bytes)?;
        macaroon.with_caveat(&bytes)
    })?;
    Ok(Minted { text: macaroon.to_text(), id })
}

/// The site and the moment that a macaroon is verified for.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    /// The site's keys.
    pub keys: &'a Keys,
    /// The name of the site.
    pub location: &'a str,
    /// Identifiers of revoked macaroons.
    pub revoked: &'a HashSet<String>,
    /// The client's address. A macaroon may be good for some addresses only, so a result for one address is not to be
    /// remembered for another.
    pub address: IpAddr,
    /// The time, in seconds since 1970.
    pub now_s: i64,
}

/// Verifies a macaroon, and returns the rights that it grants. Every caveat has to be understood and to hold; several about
/// the same thing leave what all of them allow. It has to state activities, a path and an end.
///
/// Fails when it is not of this site, changed, revoked or over, or has a caveat that does not hold. Caveats about
/// activities and paths never fail: they leave less, or nothing.
pub fn verify(text: &str, check: &Check<'_>) -> Result<MacaroonIdentity, Refusal> {
    let macaroon = Macaroon::parse(text)?;
    if macaroon.location != check.location.as_bytes() {
        let what = format!("the macaroon is of {:?}, and this is {:?}", macaroon.location(), check.location);
        return Err(Refusal::new(Cause::WrongAudience, what));
    }
    let is_ours = |key| chain::holds(key, &macaroon.identifier, &macaroon.caveats, &macaroon.signature);
    if !check.keys.all().any(is_ours) {
        let what = "the macaroon is not of this site, or was changed, or the secret it was made with is gone";
        return Err(Refusal::new(Cause::BadSignature, what));
    }
    let id = macaroon.id();
    if check.revoked.contains(&id) {
        return Err(Refusal::new(Cause::Revoked, format!("the macaroon {id} was revoked")));
    }
    let (mut name, mut may, mut under, mut expires_s) = (None::<String>, None, None, None);
    for caveat in macaroon.caveats() {
        match Caveat::parse(caveat)? {
            // A holder can add a name, but not change the one that is there.
            Caveat::Name(other) if name.as_ref().is_some_and(|name| *name != other) => {
                let what = format!("the macaroon has the names {:?} and {other:?}", name.unwrap_or_default());
                return Err(Refusal::new(Cause::Unacceptable, what));
            }
            Caveat::Name(other) => name = Some(other),
            Caveat::Activity(grants) => may = Some(may.map_or(grants, |may: Grants| may.and(grants))),
            Caveat::Path(path) => under = Some(deeper(under, path)),
            Caveat::Before(end_s) => expires_s = Some(expires_s.map_or(end_s, |old: i64| old.min(end_s))),
            Caveat::Ip(networks) if !caveat::is_from(check.address, &networks) => {
                let what = format!("the macaroon must not be used from {}", check.address);
                return Err(Refusal::new(Cause::Unacceptable, what));
            }
            Caveat::Ip(_) => {}
        }
    }
    let lacks = |what: &str| {
        Refusal::new(Cause::Unacceptable, format!("the macaroon does not say {what}, and is worth nothing"))
    };
    let expires_s = expires_s.ok_or_else(|| lacks("until when it is good"))?;
    if check.now_s >= expires_s {
        let what = format!("the macaroon expired {}", caveat::moment_text(expires_s));
        return Err(Refusal::new(Cause::Expired, what));
    }
    let may = may.ok_or_else(|| lacks("what may be done"))?;
    let capability = match under.ok_or_else(|| lacks("where"))? {
        Reach::Under(under) => Capability { may, under },
        Reach::Nowhere => Capability { may: Grants::NONE, under: ResourcePath::root() },
    };
    Ok(MacaroonIdentity { name: name.unwrap_or_else(|| "unnamed".to_owned()), id, capability, expires_s })
}

/// Adds caveats to a macaroon, as a holder does before handing it on.
pub fn attenuate(text: &str, caveats: &[Caveat]) -> Result<Secret, Refusal> {
    let macaroon = Macaroon::parse(text)?;
    let all = caveats.iter().try_fold(macaroon, |macaroon, caveat| {
        let bytes = caveat.to_bytes();
        Caveat::parse(&bytes)?;
        macaroon.with_caveat(&bytes)
    })?;
    Ok(all.to_text())
}

/// The paths at which all caveats about paths allow something.
enum Reach {
    Under(ResourcePath),
    Nowhere,
}

/// The paths below two paths: the deeper one when it is below the other, else none.
fn deeper(before: Option<Reach>, path: ResourcePath) -> Reach {
    let Some(before) = before else { return Reach::Under(path) };
    let Reach::Under(under) = before else { return Reach::Nowhere };
    if is_below(&path, &under) {
        Reach::Under(path)
    } else if is_below(&under, &path) {
        Reach::Under(under)
    } else {
        Reach::Nowhere
    }
}

/// True if a path is `base`, or below it.
pub(crate) fn is_below(path: &ResourcePath, base: &ResourcePath) -> bool {
    let mut names = path.names();
    base.names().all(|name| names.next() == Some(name))
}

/// A random identifier (RFC 9562, 5.4), as XRootD's are.
fn uuid(mut random: [u8; 16]) -> String {
    random[6] = random[6] & 0x0f | 0x40;
    random[8] = random[8] & 0x3f | 0x80;
    let mut text = String::with_capacity(36);
    for (at, byte) in random.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// The lifetime of a new macaroon, in seconds: the one that was asked for, at most `max_s`, and no longer than the credential
/// that it is issued for; 0 when that is over.
pub fn lifetime_s(asked_s: Option<u64>, max_s: u64, credential_expires_s: Option<i64>, now_s: i64) -> u64 {
    let asked_s = asked_s.unwrap_or(limits::MACAROON_DEFAULT.as_secs()).min(max_s);
    let left_s = credential_expires_s.map_or(i64::MAX, |end_s| end_s.saturating_sub(now_s));
    asked_s.min(u64::try_from(left_s).unwrap_or(0))
}

//! What a path from a leaf to a trusted root has to keep to (RFC 5280, 6; RFC 3820, 4), once its signatures are right.

use std::time::{Duration, UNIX_EPOCH};

use gridlane_core::limits;
use gridlane_dav::timestamp;

use super::certificate::{Certificate, KeyUsage, Language, ProxyInfo, shown};
use super::signature::Key;
use super::trust::{OutdatedLists, Trust};
use super::verify::{Purpose, is_legacy_proxy_name};
use crate::refusal::{Cause, Refusal};

/// Advice for a user with an old proxy.
const MAKE_ANOTHER: &str = "make an RFC 3820 proxy: voms-proxy-init -rfc";

/// Judges a path: proxies, one end-entity certificate, authorities, the last of them a root that is trusted. The
/// caller has checked that each was signed by the next. Tells until when that holds, in seconds since 1970: what ends first
/// of the certificates and of the revocation lists that they were held against.
pub(super) fn check(
    path: &[&Certificate],
    trust: &Trust,
    purpose: Purpose,
    now_s: i64,
) -> Result<i64, Refusal> {
    let proxies = path.iter().take_while(|certificate| certificate.is_proxy()).count();
    let part = |index: usize| match () {
        () if index < proxies && proxies == 1 => "the proxy certificate".to_owned(),
        () if index < proxies => format!("the proxy certificate {}", shown(path[index].subject())),
        () if index == proxies => format!("the certificate of {}", shown(path[index].subject())),
        () => format!("the certificate of the authority {}", shown(path[index].subject())),
    };
    for (index, certificate) in path.iter().enumerate() {
        check_one(certificate, index + 1 == path.len()).map_err(|refusal| refusal.context(part(index)))?;
        check_time(certificate, now_s, &part(index))?;
    }
    for (depth, pair) in path.windows(2).take(proxies).enumerate() {
        check_proxy(pair[0], pair[1], depth).map_err(|refusal| refusal.context(part(depth)))?;
    }
    check_end_entity(path[proxies], proxies > 0, purpose)
        .map_err(|refusal| refusal.context(part(proxies)))?;
    if purpose == Purpose::Client && path[0].profile.key_usage.is_some_and(|usage| !usage.may_sign()) {
        return Err(unacceptable("its key is not for signatures (keyUsage)").context(part(0)));
    }
    check_authorities(path, proxies).map_err(|(index, refusal)| refusal.context(part(index)))?;
    if purpose == Purpose::Client {
        for (index, certificate) in path.iter().enumerate() {
            if certificate.profile.may_be_client == Some(false) {
                return Err(unacceptable("it is not for clients (extendedKeyUsage)").context(part(index)));
            }
        }
    }
    check_constraints(path, proxies).map_err(|(index, refusal)| refusal.context(part(index)))?;
    let mut until_s = path.iter().map(|part| part.not_after_s()).min().unwrap_or(i64::MIN);
    for index in proxies..path.len() {
        let issuer = path.get(index + 1).unwrap_or(&path[index]);
        check_policy(path[index], &path[index + 1..], trust)
            .map_err(|refusal| refusal.context(part(index)))?;
        let next_update_s = check_lists(path[index], issuer, trust, now_s, &part(index))?;
        until_s = next_update_s.map_or(until_s, |next_update_s| until_s.min(next_update_s));
    }
    Ok(until_s)
}

/// True if a certificate counts at this time. As OpenSSL has it, the second in which it ends is no longer its.
pub(super) fn is_in_time(certificate: &Certificate, now_s: i64) -> bool {
    (certificate.not_before_s()..certificate.not_after_s()).contains(&now_s)
}

/// The reason why no issuer of a certificate can be found.
pub(super) fn no_issuer(made: &Certificate, presented: &[Certificate], trust: &Trust) -> Refusal {
    let subject = shown(made.subject());
    let issuer = shown(made.issuer());
    let named = presented.iter().find(|certificate| certificate.subject() == made.issuer());
    if made.is_proxy() {
        let named = named.or(trust.named(made.issuer()).map(|authority| &authority.certificate).next());
        return match named {
            Some(issuer) if issuer.is_authority() => unacceptable(format!(
                "the proxy certificate {subject} is made by an authority, which makes none"
            )),
            Some(_) => Refusal::new(
                Cause::BadSignature,
                format!("the proxy certificate {subject} is made with another key than that of {issuer}"),
            ),
            None => Refusal::new(
                Cause::Untrusted,
                format!("the certificate of {issuer}, which made the proxy {subject}, was not sent along"),
            ),
        };
    }
    if made.profile.is_draft_proxy {
        return unacceptable(format!("{subject} is a proxy as Globus Toolkit 3 made them; {MAKE_ANOTHER}"));
    }
    if is_legacy_proxy_name(made.subject(), made.issuer()) {
        return unacceptable(format!("{subject} is a proxy as Globus Toolkit 2 made them; {MAKE_ANOTHER}"));
    }
    if made.is_self_issued() {
        return Refusal::new(Cause::Untrusted, format!("{subject} is self-signed and not trusted here"));
    }
    match named {
        Some(_) => {
            unacceptable(format!("{issuer}, the issuer of the certificate of {subject}, is no authority"))
        }
        None => Refusal::new(
            Cause::Untrusted,
            format!("the authority {issuer}, which made the certificate of {subject}, is not trusted here"),
        ),
    }
}

/// Checks that every part of a path has to pass.
fn check_one(certificate: &Certificate, is_root: bool) -> Result<(), Refusal> {
    if let Some(oid) = &certificate.profile.not_honoured {
        return Err(unacceptable(format!("it has the critical extension {oid}, which is not known here")));
    }
    if certificate.profile.is_draft_proxy {
        return Err(unacceptable(format!("it is a proxy as Globus Toolkit 3 made them; {MAKE_ANOTHER}")));
    }
    if certificate.version() > 2 || certificate.version() != 2 && !certificate.extensions().is_empty() {
        return Err(unacceptable("its version is not 3"));
    }
    // RFC 5280, 4.1.2.2: 20 bytes; DER adds one for the sign.
    let serial = certificate.serial();
    let serial = serial.strip_prefix(&[0]).filter(|rest| !rest.is_empty()).unwrap_or(serial);
    if serial.len() > limits::CERTIFICATE_SERIAL_BYTES_MAX {
        return Err(unacceptable("its serial number is longer than 20 bytes"));
    }
    // A certificate without another issuer is the root's own; its key is as important as any.
    Key::from_spki(certificate.spki()).map_err(|what| unacceptable(format!("it has {what}")))?;
    if !is_root && certificate.subject().is_empty() {
        return Err(unacceptable("it has no subject"));
    }
    Ok(())
}

fn check_time(certificate: &Certificate, now_s: i64, part: &str) -> Result<(), Refusal> {
    if now_s < certificate.not_before_s() {
        let when = shown_time(certificate.not_before_s());
        return Err(Refusal::new(Cause::NotYetValid, format!("{part} is not valid before {when}")));
    }
    if now_s >= certificate.not_after_s() {
        let when = shown_time(certificate.not_after_s());
        return Err(Refusal::new(Cause::Expired, format!("{part} expired {when}")));
    }
    Ok(())
}

/// A proxy, by its issuer, with `depth` others below (RFC 3820, 3 and 4.1.3).
fn check_proxy(proxy: &Certificate, issuer: &Certificate, depth: usize) -> Result<(), Refusal> {
    let Some(info) = &proxy.profile.proxy else { return Ok(()) };
    if !info.is_critical {
        return Err(unacceptable("proxyCertInfo is not critical"));
    }
    if !proxy.subject().is_proxy_of(issuer.subject()) {
        return Err(unacceptable("its subject is not that of its issuer with exactly one CN more"));
    }
    if proxy.is_authority() || issuer.is_authority() {
        return Err(unacceptable("neither it nor its issuer may be an authority"));
    }
    if proxy.profile.has_alternative_names {
        return Err(unacceptable("proxies have no alternative names"));
    }
    if issuer.profile.key_usage.is_some_and(|usage| !usage.may_sign()) {
        return Err(unacceptable(
            "its issuer's key is not for signatures (keyUsage), so it makes no proxies",
        ));
    }
    if let Some(path_len) = info.path_len.filter(|path_len| depth > *path_len as usize) {
        return Err(unacceptable(format!("{depth} proxies were made from it, and it allows {path_len}")));
    }
    check_language(info)
}

fn check_language(info: &ProxyInfo) -> Result<(), Refusal> {
    match &info.language {
        // RFC 3820, 3.8.2: there is nothing to say beside these.
        Language::InheritAll | Language::Limited if info.has_policy => {
            Err(unacceptable("it has a policy where none may be"))
        }
        Language::InheritAll | Language::Limited => Ok(()),
        // It would have no right of the one whose name it has. There is nothing to give it here, and
        // to take them for that one would be wrong.
        Language::Independent => Err(unacceptable(
            "it is an independent proxy, which has no rights of its holder; use one that inherits them",
        )),
        Language::Other(oid) => {
            Err(unacceptable(format!("its rights are said in a language that is not known here ({oid})")))
        }
    }
}

fn check_end_entity(certificate: &Certificate, has_proxies: bool, purpose: Purpose) -> Result<(), Refusal> {
    if certificate.is_authority() && (has_proxies || purpose == Purpose::Client) {
        return Err(unacceptable("it is of an authority, where one of a person or a host should be"));
    }
    Ok(())
}

/// RFC 5280, 6.1.4 (k) to (n).
fn check_authorities(path: &[&Certificate], proxies: usize) -> Result<(), (usize, Refusal)> {
    // Authorities between this one and the end-entity certificate, those not counted that changed their key.
    let mut below = 0;
    for (index, authority) in path.iter().enumerate().skip(proxies + 1) {
        let is_root = index + 1 == path.len();
        let may_be = authority.is_authority() || is_root && authority.is_old_authority();
        if !may_be {
            return Err((index, unacceptable("it is of no authority (basicConstraints)")));
        }
        if authority.profile.key_usage.is_some_and(|usage| !KeyUsage::may_sign_certificates(usage)) {
            return Err((index, unacceptable("its key is not for signing certificates (keyUsage)")));
        }
        let path_len = authority.profile.basic.and_then(|basic| basic.path_len);
        if let Some(path_len) = path_len.filter(|path_len| below > *path_len) {
            let message = format!("there are {below} authorities below it, and it allows {path_len}");
            return Err((index, unacceptable(message)));
        }
        if !authority.is_self_issued() {
            below += 1;
        }
    }
    Ok(())
}

/// RFC 5280, 6.1.4 (g). Names of proxies lie below those of their issuers, and need no look.
fn check_constraints(path: &[&Certificate], proxies: usize) -> Result<(), (usize, Refusal)> {
    for (index, authority) in path.iter().enumerate().skip(proxies + 1) {
        let Some(constraints) = &authority.profile.constraints else { continue };
        for (below, certificate) in path[..index].iter().enumerate().skip(proxies) {
            // Authorities that changed their key count not (6.1.3 (b)), but for the end of the path.
            if certificate.is_self_issued() && below != proxies {
                continue;
            }
            if let Some(what) = constraints.objection(certificate) {
                let message = format!("it is not allowed to sign for {what} (nameConstraints)");
                return Err((index, unacceptable(message)));
            }
        }
    }
    Ok(())
}

/// True if its issuer, the first of those above, may make certificates for this name.
///
/// A policy is about a name. So it counts as well for another certificate of the same authority, which the peer may have
/// sent along (cross-signed). For an authority that is not in the directory, and so has no policy there, that of the next
/// one above counts: else one that is confined could get out by making another authority.
fn check_policy(made: &Certificate, above: &[&Certificate], trust: &Trust) -> Result<(), Refusal> {
    let Some(authority) = above.iter().find(|authority| trust.named(authority.subject()).next().is_some())
    else {
        // What a root says of itself needs no leave.
        return Ok(());
    };
    let mut policies = trust.named(authority.subject()).filter_map(|authority| authority.policy.as_ref());
    if policies.all(|policy| policy.allows(authority.subject(), made.subject())) {
        return Ok(());
    }
    let authority = shown(authority.subject());
    let message = format!("the authority {authority} may not sign for this name here (signing_policy)");
    Err(Refusal::new(Cause::Untrusted, message))
}

/// Refuses a revoked certificate. No list is no objection: trust directories often lack some. Tells when the lists
/// that it was held against are over their time, if that matters.
fn check_lists(
    made: &Certificate,
    issuer: &Certificate,
    trust: &Trust,
    now_s: i64,
    part: &str,
) -> Result<Option<i64>, Refusal> {
    let mut lists = trust.lists_by(issuer);
    if let Some(since_s) = lists.iter().find_map(|list| list.revoked_since_s(made)) {
        let when = shown_time(since_s);
        return Err(Refusal::new(Cause::Revoked, format!("{part} was revoked {when}")));
    }
    if trust.outdated_lists() == OutdatedLists::Use {
        return Ok(None);
    }
    lists.retain(|list| !list.is_delta);
    let is_over =
        |next_update_s: Option<i64>| next_update_s.is_some_and(|next_update_s| now_s >= next_update_s);
    let is_current =
        |list: &super::crl::RevocationList| list.this_update_s <= now_s && !is_over(list.next_update_s);
    let Some(latest) = lists.iter().max_by_key(|list| list.this_update_s) else { return Ok(None) };
    let mut current = lists.iter().filter(|list| is_current(list)).peekable();
    if current.peek().is_some() {
        // One without an end has none.
        return Ok(current.map(|list| list.next_update_s.unwrap_or(i64::MAX)).max());
    }
    // The fault is the site's, or the authority's; the client can only wait.
    Err(match latest.next_update_s.filter(|next_update_s| now_s >= *next_update_s) {
        Some(next_update_s) => {
            let message = format!("{} expired {}", latest.shown(), shown_time(next_update_s));
            Refusal::new(Cause::Expired, message)
        }
        None => {
            let message =
                format!("{} is not valid before {}", latest.shown(), shown_time(latest.this_update_s));
            Refusal::new(Cause::NotYetValid, message)
        }
    })
}

fn unacceptable(message: impl Into<String>) -> Refusal {
    Refusal::new(Cause::Unacceptable, message)
}

/// `2026-01-02T03:04:05Z`.
fn shown_time(time_s: i64) -> String {
    let since = Duration::from_secs(time_s.unsigned_abs());
    let time = if time_s < 0 { UNIX_EPOCH.checked_sub(since) } else { UNIX_EPOCH.checked_add(since) };
    time.map_or_else(|| format!("{time_s} s since 1970"), timestamp::format)
}

//! An attribute certificate that a server has given to a user, before it goes into a proxy.
//!
//! Servers of data would refuse what is not right in it, hours later and far away, so it is looked at here as they do.

use gridlane_core::limits;

use super::ac::AttributeCertificate;
use super::dir::Signers;
use super::request::AttributeRequest;
use super::{Check, Claim, VomsDir};
use crate::fqan::Fqan;
use crate::refusal::{Cause, Refusal};
use crate::x509::{Certificate, Trust};

/// An attribute certificate that may go into the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// What it says.
    pub claim: Claim,
    /// Why its signer could not be checked; `None` when it is one that is trusted here.
    pub unchecked: Option<Refusal>,
    /// True if it ends clearly before what was asked for.
    pub is_short: bool,
    /// True if its primary group or role is not the one that was asked for first.
    pub is_reordered: bool,
}

/// Checks the answer of a server: it is about the end-entity certificate `holder` (DER), of the VO that was asked, has all the
/// groups and roles that were, and counts at `now_s`.
///
/// Its signature and signer are checked where `signers` has those of the VO. A machine of a user often has none of these
/// files; then the reason stands in the result, and the user may go on.
///
/// # Errors
/// What is wrong, by the name of the VO.
pub fn check_given(
    attribute_certificate: &[u8],
    asked: &AttributeRequest,
    holder: &[u8],
    signers: Option<(&VomsDir, &Trust)>,
    now_s: i64,
) -> Result<Given, Refusal> {
    let of = |refusal: Refusal| refusal.context(format!("the attribute certificate of {}", asked.vo));
    let holder = Certificate::from_der(holder)?;
    let ac = AttributeCertificate::read(attribute_certificate).map_err(of)?;
    if ac.vo != asked.vo {
        let what = format!("it is of {}, which was not asked for", ac.vo);
        return Err(of(Refusal::new(Cause::Untrusted, what)));
    }
    if let Some(missing) = asked.fqans.iter().find(|fqan| !ac.fqans.contains(fqan)) {
        let has: Vec<String> = ac.fqans.iter().take(FQANS_TOLD).map(Fqan::to_string).collect();
        let what = format!("{missing} was asked for, and it has {} only", has.join(", "));
        return Err(of(Refusal::new(Cause::Unacceptable, what)));
    }
    let (no_voms, no_trust) = (VomsDir::default(), Trust::default());
    let (voms, trust) = signers.unwrap_or((&no_voms, &no_trust));
    let check = Check { holder: &holder, voms, trust, host_names: &[], now_s };
    check.check_time(&ac).and_then(|()| check.check_holder(&ac)).map_err(of)?;
    let is_known = voms.vos().any(|vo| vo == ac.vo)
        || matches!(voms.signers(ac.vo, ac.host), Signers::Known(known) if !known.is_empty());
    let unchecked = match check.check_signer(&ac) {
        Err(refusal) if is_known => return Err(of(refusal)),
        outcome => outcome.err(),
    };
    let wanted_s = now_s.saturating_add(asked.lifetime_s);
    let is_short = ac.not_after_s.saturating_add(limits::VOMS_SHORTER_S) < wanted_s;
    let is_reordered = ac.fqans.first() != asked.fqans.first();
    let claim = Claim {
        vo: ac.vo.to_owned(),
        host: ac.host.to_owned(),
        fqans: ac.fqans,
        not_before_s: ac.not_before_s,
        not_after_s: ac.not_after_s,
    };
    Ok(Given { claim, unchecked, is_short, is_reordered })
}

/// Groups that are told of one that has others than were asked for.
const FQANS_TOLD: usize = 8;

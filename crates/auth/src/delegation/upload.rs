//! What a client uploads in answer to a request, judged.

use gridlane_core::{limits, text::printable};

use crate::make::pem;
use crate::refusal::{Cause, Refusal};
use crate::x509::{self, Certificate, Trust, Verified, shown};

/// A proxy that was delegated, and is believed.
#[derive(Clone, Debug)]
pub struct Delegated {
    /// The proxy, then the certificate of its issuer, and so on, as it was uploaded; in DER.
    pub chain: Vec<Vec<u8>>,
    /// When the first of them ends, in seconds since 1970: what cannot be used later than this.
    pub ends_s: i64,
    /// The findings about it: its owner, whether it is limited; [`crate::voms`] reads attributes from it.
    pub verified: Verified,
}

/// Judges an upload: certificates in PEM, the new proxy first and each followed by its issuer's. `spki` is the key that the
/// proxy was asked for, `owner_dn` the user that uploads, as [`Verified::dn`] has it.
///
/// # Errors
/// Why it is not taken, in words for the client: not two certificates, wrong order, another key, another user, no proxy,
/// expired, or anything for which [`x509::verify`] refuses a chain.
pub fn accept(
    upload: &[u8],
    spki: &[u8],
    owner_dn: &str,
    trust: &Trust,
    now_s: i64,
) -> Result<Delegated, Refusal> {
    judge(upload, spki, owner_dn, trust, now_s).map_err(|refusal| refusal.context("the delegated proxy"))
}

fn judge(
    upload: &[u8],
    spki: &[u8],
    owner_dn: &str,
    trust: &Trust,
    now_s: i64,
) -> Result<Delegated, Refusal> {
    let refused = |cause: Cause, message: String| Err(Refusal::new(cause, message));
    let chain = certificates_of(upload)?;
    if chain.len() < 2 {
        let count = chain.len();
        let what = format!("{count} certificates came; the new proxy and that of its issuer are needed");
        return refused(Cause::Malformed, what);
    }
    if chain.len() > limits::CHAIN_CERTIFICATES_MAX {
        let count = chain.len();
        return refused(Cause::Unacceptable, format!("{count} certificates are more than are accepted"));
    }
    let certificates: Vec<Certificate> =
        chain.iter().map(|der| Certificate::from_der(der)).collect::<Result<_, _>>()?;
    check_order(&certificates)?;
    let leaf = &certificates[0];
    if leaf.spki() != spki {
        let is_swapped = certificates.iter().any(|certificate| certificate.spki() == spki);
        let what = match is_swapped {
            true => "the certificate for the key that was asked for is not the first one",
            false => OTHER_KEY,
        };
        return refused(Cause::Untrusted, what.to_owned());
    }
    if !leaf.is_proxy() {
        return Err(no_proxy(leaf));
    }
    let verified = x509::verify(&chain, trust, now_s)?;
    if verified.dn() != owner_dn {
        let (theirs, owner) = (printable(verified.dn()), printable(owner_dn));
        return refused(Cause::Untrusted, format!("it is a proxy of {theirs}, and came from {owner}"));
    }
    let ends_s = certificates.iter().map(Certificate::not_after_s).min().unwrap_or(i64::MIN);
    if ends_s <= now_s {
        return refused(Cause::Expired, "a certificate that was sent along has expired".to_owned());
    }
    Ok(Delegated { chain, ends_s, verified })
}

const OTHER_KEY: &str =
    "it is for another key than the one that was asked for; ask for a new request and sign that";

fn no_proxy(leaf: &Certificate) -> Refusal {
    Refusal::new(Cause::Unacceptable, format!("{} is no proxy (RFC 3820)", shown(leaf.subject())))
}

/// Judges a proxy (PEM) that came over a session whose client has just proved to hold the key of `chain`: certificates in
/// DER, that one first, which are believed already. `spki` is the key that the proxy was asked for. The whole chain, the
/// proxy first, in DER.
///
/// The session says from whom it is. A signature with RSA and SHA-1, as XRootD's clients before 5.6 make it, is not looked at:
/// whether it is good enough is for the servers to say that the proxy is shown to.
///
/// # Errors
/// Why it is not taken, in words for the client: not one certificate, another key, no proxy of this client, over.
pub fn accept_of_session(
    proxy: &[u8],
    spki: &[u8],
    chain: &[impl AsRef<[u8]>],
    now_s: i64,
) -> Result<Vec<Vec<u8>>, Refusal> {
    let judged = judge_of_session(proxy, spki, chain, now_s);
    judged.map_err(|refusal| refusal.context("the delegated proxy"))
}

fn judge_of_session(
    proxy: &[u8],
    spki: &[u8],
    chain: &[impl AsRef<[u8]>],
    now_s: i64,
) -> Result<Vec<Vec<u8>>, Refusal> {
    let refused = |cause: Cause, message: String| Err(Refusal::new(cause, message));
    let sent = certificates_of(proxy)?;
    let ([der], Some(issuer)) = (&sent[..], chain.first()) else {
        let count = sent.len();
        return refused(
            Cause::Malformed,
            format!("{count} certificates came; the new proxy alone is needed"),
        );
    };
    let (leaf, issuer) = (Certificate::from_der(der)?, Certificate::from_der(issuer.as_ref())?);
    if leaf.spki() != spki {
        return refused(Cause::Untrusted, OTHER_KEY.to_owned());
    }
    if !leaf.is_proxy() {
        return Err(no_proxy(&leaf));
    }
    if leaf.issuer() != issuer.subject() {
        let (said, holder) = (shown(leaf.issuer()), shown(issuer.subject()));
        return refused(Cause::Untrusted, format!("it is a proxy of {said}, and came from {holder}"));
    }
    if !leaf.is_signed_with_sha1() {
        leaf.check_signature(issuer.spki())?;
    }
    if leaf.not_after_s() <= now_s {
        return refused(Cause::Expired, "it has expired".to_owned());
    }
    let rest = chain.iter().map(|der| der.as_ref().to_vec());
    Ok(std::iter::once(der.clone()).chain(rest).collect())
}

/// The certificates of an upload, in DER.
fn certificates_of(upload: &[u8]) -> Result<Vec<Vec<u8>>, Refusal> {
    if upload.len() > limits::PROXY_UPLOAD_BYTES_MAX {
        let bytes = upload.len();
        let what = format!("{bytes} bytes are longer than is accepted");
        return Err(Refusal::new(Cause::Unacceptable, what));
    }
    let malformed = |what: &str| Refusal::new(Cause::Malformed, what);
    let blocks = pem::decode(upload).map_err(|error| malformed(&printable(error.message())))?;
    // A user's whole proxy file: the key in it has been seen by this service now, and the user should know.
    if blocks.iter().any(|block| block.label.ends_with(pem::PRIVATE_KEY)) {
        let what =
            "a private key was sent along; only certificates are wanted, and the key should be replaced";
        return Err(Refusal::new(Cause::Unacceptable, what));
    }
    pem::certificates(upload).map_err(|error| malformed(&printable(error.message())))
}

/// Each is followed by the one that made it: what is kept is shown to servers as it is, and some take no other order.
fn check_order(certificates: &[Certificate]) -> Result<(), Refusal> {
    for pair in certificates.windows(2) {
        let (made, maker) = (&pair[0], &pair[1]);
        if made.issuer() != maker.subject() {
            let (made, maker) = (shown(made.subject()), shown(maker.subject()));
            let what =
                format!("the certificate behind that of {made} is not its issuer's, but that of {maker}");
            return Err(Refusal::new(Cause::Malformed, what));
        }
        made.check_signature(maker.spki())?;
    }
    Ok(())
}

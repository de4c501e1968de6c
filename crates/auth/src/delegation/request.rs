//! A request for a proxy, and the answer of the one whose proxy it shall be.

use gridlane_core::text::printable;
use gridlane_core::{Error, ErrorKind, Fault, Result as CoreResult, limits};
use ring::rand::SecureRandom;

use super::KeyKind;
use crate::make::{Credential, Extension, Name, ProxyPolicy, ProxyTerms, Text, pem, proxy_chain};
use crate::refusal::{Cause, Refusal};
use crate::x509::der::{Der, tag, whole_bits};
use crate::x509::signature::{self, Algorithm};

/// The subject of our requests, FTS3's: the signer writes the real one.
pub fn request_subject() -> CoreResult<Name> {
    Name::parse("/O=Dummy", Text::Utf8)
}

/// A request for a certificate (PKCS #10, RFC 2986) whose signature is right: its maker has the key.
#[derive(Clone, Debug)]
pub struct Request {
    spki: Vec<u8>,
    kind: KeyKind,
}

impl Request {
    /// Reads a request in PEM or DER, and looks at its signature. Subject and attributes are of no concern: a proxy's
    /// subject follows from its issuer.
    ///
    /// # Errors
    /// It is none, its key is of no use (RSA below 2048 bits, another curve), or its signature is wrong or made with what
    /// proves nothing.
    pub fn read(bytes: &[u8]) -> Result<Request, Refusal> {
        Request::read_with(bytes, |fields| fields.check())
    }

    /// The same of one that has come from somebody who has proved to be who is meant, on a way on which nobody can change it: its
    /// signature is not looked at. XRootD (5.5.3) makes it with SHA-1.
    pub fn read_from_proved(bytes: &[u8]) -> Result<Request, Refusal> {
        Request::read_with(bytes, |_| Ok(()))
    }

    fn read_with(bytes: &[u8], check: Check) -> Result<Request, Refusal> {
        let place = "the request for a proxy";
        if bytes.len() > limits::PROXY_REQUEST_BYTES_MAX {
            let message = format!("it has {} bytes, which is longer than is accepted", bytes.len());
            return Err(Refusal::new(Cause::Unacceptable, message).context(place));
        }
        let malformed = |what: &str| Refusal::new(Cause::Malformed, what).context(place);
        if bytes.first() == Some(&tag::SEQUENCE) {
            return Request::from_der(bytes, check).map_err(|refusal| refusal.context(place));
        }
        let blocks = pem::decode(bytes).map_err(|error| malformed(&printable(error.message())))?;
        let is_request = |label: &str| [pem::REQUEST, "NEW CERTIFICATE REQUEST"].contains(&label);
        let mut requests = blocks.iter().filter(|block| is_request(&block.label));
        let request = requests.next().ok_or_else(|| malformed("there is no certificate request in it"))?;
        if requests.next().is_some() {
            return Err(malformed("there are several in it"));
        }
        Request::from_der(&request.der, check).map_err(|refusal| refusal.context(place))
    }

    fn from_der(der: &[u8], check: Check) -> Result<Request, Refusal> {
        let fields = Fields::read(der)
            .ok_or_else(|| Refusal::new(Cause::Malformed, "it is no certificate request (PKCS #10)"))?;
        let kind = KeyKind::of(fields.spki)
            .map_err(|what| Refusal::new(Cause::Unacceptable, format!("it is for {what}")))?;
        check(&fields)?;
        Ok(Request { spki: fields.spki.to_vec(), kind })
    }

    /// The key that a proxy is wanted for, `SubjectPublicKeyInfo` as DER.
    pub fn spki(&self) -> &[u8] {
        &self.spki
    }

    /// Kind and size of that key.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// The certificates of a proxy of `issuer` for the key of the request: the new one, then those of the issuer. A proxy
    /// of a limited one is limited as well.
    ///
    /// Fails for an issuer that can make none at this time: its time is over, it is an authority, or a proxy that allows no
    /// further one.
    pub fn sign(
        &self,
        issuer: &Credential,
        mut terms: ProxyTerms,
        now_s: i64,
        random: &dyn SecureRandom,
    ) -> CoreResult<Vec<Vec<u8>>> {
        let cannot = |what: &str| {
            Error::new(ErrorKind::Denied, format!("no proxy can be made of this credential: {what}"))
                .fault(Fault::Caller)
        };
        let contents = issuer.contents()?;
        let authority = Extension::basic_constraints(true, None);
        // `SEQUENCE { TRUE, … }`, whatever follows.
        let is_authority = contents
            .extension(&authority.oid)
            .is_some_and(|der| der.get(2..5) == Some(&[tag::BOOLEAN, 1, 0xff]));
        if is_authority {
            return Err(cannot("it is that of an authority"));
        }
        if contents.proxy_path_len()? == Some(0) {
            return Err(cannot("it is a proxy that allows no further one"));
        }
        for der in &issuer.chain {
            let validity = crate::make::Contents::read(der)?.validity;
            terms.validity = terms.validity.within(validity);
        }
        if terms.validity.not_after_s <= now_s {
            return Err(cannot("its time is over").hint("make a new proxy, or get a new certificate"));
        }
        if contents.proxy_policy()? == Some(ProxyPolicy::Limited) {
            terms.policy = ProxyPolicy::Limited;
        }
        proxy_chain(issuer, self.spki.clone(), &terms, random)
    }
}

/// Looks at the signature of a request.
type Check = fn(&Fields<'_>) -> Result<(), Refusal>;

/// The parts of a request.
struct Fields<'a> {
    signed: &'a [u8],
    spki: &'a [u8],
    algorithm: &'a [u8],
    signature: &'a [u8],
}

impl Fields<'_> {
    /// Refuses a request that was not signed with its own key.
    fn check(&self) -> Result<(), Refusal> {
        let algorithm = Algorithm::from_der(self.algorithm).ok_or_else(|| {
            Refusal::new(Cause::Unacceptable, "it is signed with an algorithm that is not accepted")
        })?;
        signature::verify(self.spki, algorithm, self.signed, self.signature)
    }
}

impl<'a> Fields<'a> {
    /// `SEQUENCE { SEQUENCE { 0, subject, key, [0] attributes }, algorithm, signature }`.
    fn read(der: &'a [u8]) -> Option<Fields<'a>> {
        let sequence = |(found, whole): (u8, &'a [u8])| (found == tag::SEQUENCE).then_some(whole);
        let mut outer = Der::new(der);
        let mut request = outer.enter(tag::SEQUENCE)?;
        outer.end()?;
        let signed = sequence(request.whole()?)?;
        let algorithm = sequence(request.whole()?)?;
        let signature = whole_bits(request.take(tag::BIT_STRING)?)?;
        request.end()?;
        let mut body = Der::new(signed).enter(tag::SEQUENCE)?;
        Some(()).filter(|()| body.take(tag::INTEGER) == Some(&[0]))?;
        body.take(tag::SEQUENCE)?;
        let spki = sequence(body.whole()?)?;
        // Some programs leave the empty set out.
        body.optional(tag::composed(0))?;
        body.end()?;
        Some(Fields { signed, spki, algorithm, signature })
    }
}

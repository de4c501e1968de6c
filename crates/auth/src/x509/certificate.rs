//! One certificate, read, not yet believed.

use std::fmt;

use gridlane_core::limits;
use x509_parser::asn1_rs::FromDer;
use x509_parser::time::ASN1Time;

use super::constraints::{NameConstraints, general_name};
use super::der::{Der, dotted, tag, whole_bits};
use super::name::Name;
use super::signature::Algorithm;
use crate::refusal::{Cause, Refusal};

/// A certificate (RFC 5280, 4.1).
#[derive(Clone)]
pub struct Certificate {
    der: Vec<u8>,
    /// The part that is signed.
    signed: Vec<u8>,
    /// `None` if it proves nothing here.
    algorithm: Option<Algorithm>,
    algorithm_name: String,
    signature: Vec<u8>,
    version: u32,
    serial: Vec<u8>,
    issuer: Name,
    subject: Name,
    not_before_s: i64,
    not_after_s: i64,
    spki: Vec<u8>,
    extensions: Vec<Extension>,
    pub(super) profile: Profile,
}

/// An extension as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// The contents of its object identifier.
    pub oid: Vec<u8>,
    /// True if it must not be passed over.
    pub is_critical: bool,
    /// Its value, as DER.
    pub value: Vec<u8>,
}

/// The contents of the extensions by which paths are judged.
#[derive(Clone, Debug, Default)]
pub(super) struct Profile {
    pub(super) basic: Option<BasicConstraints>,
    pub(super) key_usage: Option<KeyUsage>,
    /// Extended key usages: whether for clients of TLS; `None` if it says nothing.
    pub(super) may_be_client: Option<bool>,
    pub(super) proxy: Option<ProxyInfo>,
    pub(super) constraints: Option<NameConstraints>,
    /// Subject alternative names: tags and contents.
    pub(super) alternative_names: Vec<(u8, Vec<u8>)>,
    /// True if it has alternative names, of subject or issuer.
    pub(super) has_alternative_names: bool,
    pub(super) authority_key: Option<Vec<u8>>,
    pub(super) subject_key: Option<Vec<u8>>,
    pub(super) is_draft_proxy: bool,
    /// A critical extension that is not honoured here.
    pub(super) not_honoured: Option<String>,
}

/// RFC 5280, 4.2.1.9.
#[derive(Clone, Copy, Debug)]
pub(super) struct BasicConstraints {
    pub(super) is_authority: bool,
    pub(super) path_len: Option<u32>,
}

/// RFC 5280, 4.2.1.3.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyUsage(u8);

impl KeyUsage {
    pub(super) fn may_sign(self) -> bool {
        self.0 & 0x80 != 0
    }

    pub(super) fn may_sign_certificates(self) -> bool {
        self.0 & 0x04 != 0
    }

    pub(super) fn may_sign_lists(self) -> bool {
        self.0 & 0x02 != 0
    }
}

/// ProxyCertInfo (RFC 3820, 3.8).
#[derive(Clone, Debug)]
pub(super) struct ProxyInfo {
    pub(super) is_critical: bool,
    /// Number of proxies that may follow.
    pub(super) path_len: Option<u32>,
    pub(super) language: Language,
    pub(super) has_policy: bool,
}

/// The rights of a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Language {
    /// All that its issuer may do.
    InheritAll,
    /// Nothing by itself.
    Independent,
    /// Globus: no new jobs; files as before.
    Limited,
    /// Something that we cannot tell.
    Other(String),
}

const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 19];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 37];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 17];
const ISSUER_ALT_NAME: &[u8] = &[0x55, 0x1d, 18];
const NAME_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 30];
const AUTHORITY_KEY: &[u8] = &[0x55, 0x1d, 35];
const SUBJECT_KEY: &[u8] = &[0x55, 0x1d, 14];
const CERTIFICATE_POLICIES: &[u8] = &[0x55, 0x1d, 32];
const LIST_POINTS: &[u8] = &[0x55, 0x1d, 31];
const INHIBIT_ANY_POLICY: &[u8] = &[0x55, 0x1d, 54];
const CLIENT_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 2];
const PROXY_CERT_INFO: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 14];
/// Of the draft that became RFC 3820: Globus Toolkit 3 (1.3.6.1.4.1.3536.1.222).
const PROXY_CERT_INFO_DRAFT: &[u8] = &[0x2b, 6, 1, 4, 1, 0x9b, 0x50, 1, 0x81, 0x5e];
const INHERIT_ALL: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 21, 1];
const INDEPENDENT: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 21, 2];
const LIMITED: &[u8] = &[0x2b, 6, 1, 4, 1, 0x9b, 0x50, 1, 1, 1, 9];

impl Certificate {
    /// Reads a certificate, with nothing behind it.
    ///
    /// # Errors
    /// [`Cause::Malformed`] when it is none, or when something in it that would have to be honoured cannot be read.
    pub fn from_der(der: &[u8]) -> Result<Certificate, Refusal> {
        let malformed = |what: &str| Refusal::new(Cause::Malformed, format!("{what} cannot be read"));
        let fields = Fields::read(der).ok_or_else(|| malformed("a certificate"))?;
        let subject = Name::from_der(fields.subject).ok_or_else(|| malformed("a certificate's subject"))?;
        let of = |what: &str| malformed(&format!("{what} of the certificate of {}", shown(&subject)));
        let issuer = Name::from_der(fields.issuer).ok_or_else(|| of("the issuer"))?;
        if fields.extensions.len() > limits::CERTIFICATE_EXTENSIONS_MAX {
            let what =
                format!("the certificate of {} has more extensions than are accepted", shown(&subject));
            return Err(Refusal::new(Cause::Unacceptable, what));
        }
        let mut profile = Profile::default();
        for (index, extension) in fields.extensions.iter().enumerate() {
            let oid = || dotted(&extension.oid).unwrap_or_else(|| "of no kind".to_owned());
            if fields.extensions[..index].iter().any(|other| other.oid == extension.oid) {
                return Err(of(&format!("the extension {}, which is there twice,", oid())));
            }
            profile.read(extension).ok_or_else(|| of(&format!("the extension {}", oid())))?;
        }
        let mut algorithm =
            Der::new(fields.algorithm).enter(tag::SEQUENCE).ok_or_else(|| of("the signature"))?;
        Ok(Certificate {
            der: der.to_vec(),
            signed: fields.signed.to_vec(),
            algorithm: Algorithm::from_der(fields.algorithm),
            algorithm_name: algorithm.take(tag::OID).and_then(dotted).unwrap_or_default(),
            signature: fields.signature.to_vec(),
            version: fields.version,
            serial: fields.serial.to_vec(),
            not_before_s: fields.not_before_s,
            not_after_s: fields.not_after_s,
            spki: fields.spki.to_vec(),
            extensions: fields.extensions,
            issuer,
            subject,
            profile,
        })
    }

    /// Its bytes.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Its subject.
    pub fn subject(&self) -> &Name {
        &self.subject
    }

    /// Its issuer.
    pub fn issuer(&self) -> &Name {
        &self.issuer
    }

    /// The contents of its serial number, as DER has them.
    pub fn serial(&self) -> &[u8] {
        &self.serial
    }

    /// The key of its holder, `SubjectPublicKeyInfo` as DER.
    pub fn spki(&self) -> &[u8] {
        &self.spki
    }

    /// When it begins to be valid, in seconds since 1970.
    pub fn not_before_s(&self) -> i64 {
        self.not_before_s
    }

    /// When it stops to be valid, in seconds since 1970.
    pub fn not_after_s(&self) -> i64 {
        self.not_after_s
    }

    /// The key in a certificate of which nothing else is asked yet; `None` where [`Certificate::from_der`] would fail for
    /// its form, so that both speak of the same key.
    pub fn spki_of(der: &[u8]) -> Option<&[u8]> {
        Fields::read(der).map(|fields| fields.spki)
    }

    /// Its extensions, in its order.
    pub fn extensions(&self) -> &[Extension] {
        &self.extensions
    }

    /// The value of the extension with this object identifier (contents of its DER).
    pub fn extension(&self, oid: &[u8]) -> Option<&[u8]> {
        self.extensions.iter().find(|extension| extension.oid == oid).map(|extension| &extension.value[..])
    }

    /// True if it is a proxy by RFC 3820.
    pub fn is_proxy(&self) -> bool {
        self.profile.proxy.is_some()
    }

    /// The identifier of its key, if it says one (RFC 5280, 4.2.1.2).
    pub fn subject_key(&self) -> Option<&[u8]> {
        self.profile.subject_key.as_deref()
    }

    /// True if subject and issuer have the same name.
    pub fn is_self_issued(&self) -> bool {
        self.subject == self.issuer
    }

    /// True if it may make certificates, as far as its extensions say. Before version 3 there was no way to say it,
    /// which is good enough only where an operator has put it among the trusted ones.
    pub(super) fn is_authority(&self) -> bool {
        self.profile.basic.is_some_and(|basic| basic.is_authority)
    }

    /// The same for one that an operator has put among the trusted ones: OpenSSL takes these too.
    pub(super) fn is_old_authority(&self) -> bool {
        let may_sign = self.profile.key_usage.is_some_and(KeyUsage::may_sign_certificates);
        self.profile.basic.is_none() && (self.version == 0 && self.is_self_issued() || may_sign)
    }

    pub(super) fn version(&self) -> u32 {
        self.version
    }

    /// True if its signature is made with RSA and SHA-1, which proves nothing by itself.
    pub(crate) fn is_signed_with_sha1(&self) -> bool {
        /// sha1WithRSAEncryption (RFC 8017, A.2.4).
        const RSA_SHA1: &str = "1.2.840.113549.1.1.5";
        self.algorithm_name == RSA_SHA1
    }

    /// True if the holder of this key has made it.
    ///
    /// # Errors
    /// [`Cause::Unacceptable`] for what proves nothing, else [`Cause::BadSignature`].
    pub fn check_signature(&self, spki: &[u8]) -> Result<(), Refusal> {
        let of = |refusal: Refusal| {
            Refusal::new(
                refusal.cause,
                format!("the signature of the certificate of {}: {refusal}", shown(&self.subject)),
            )
        };
        let algorithm = self.algorithm.ok_or_else(|| {
            let name = &self.algorithm_name;
            of(Refusal::new(Cause::Unacceptable, format!("it is made with {name}, which is not accepted")))
        })?;
        super::signature::verify(spki, algorithm, &self.signed, &self.signature).map_err(of)
    }
}

/// The parts of a certificate.
struct Fields<'a> {
    signed: &'a [u8],
    algorithm: &'a [u8],
    signature: &'a [u8],
    version: u32,
    serial: &'a [u8],
    issuer: &'a [u8],
    not_before_s: i64,
    not_after_s: i64,
    subject: &'a [u8],
    spki: &'a [u8],
    extensions: Vec<Extension>,
}

impl<'a> Fields<'a> {
    /// Strictly by DER, also outside of what is signed, where x509-parser takes other forms as well.
    fn read(der: &'a [u8]) -> Option<Fields<'a>> {
        let sequence = |(found, whole): (u8, &'a [u8])| (found == tag::SEQUENCE).then_some(whole);
        let mut outer = Der::new(der);
        let mut certificate = outer.enter(tag::SEQUENCE)?;
        outer.end()?;
        let signed = sequence(certificate.whole()?)?;
        let algorithm = sequence(certificate.whole()?)?;
        let signature = whole_bits(certificate.take(tag::BIT_STRING)?)?;
        certificate.end()?;

        let mut inner = Der::new(signed).enter(tag::SEQUENCE)?;
        let version = match inner.optional(tag::composed(0))? {
            None => 0,
            Some(version) => {
                let mut version = Der::new(version);
                let number = version.optional_number()??;
                version.end()?;
                number
            }
        };
        // It is compared byte by byte, so there is one way to write it.
        let serial = inner.take(tag::INTEGER)?;
        let is_padded = matches!(serial, [0, 0..=0x7f, ..] | [0xff, 0x80..=0xff, ..]);
        Some(()).filter(|()| !serial.is_empty() && !is_padded)?;
        // RFC 5280, 4.1.1.2: the same as outside of what is signed.
        Some(()).filter(|()| inner.whole().is_some_and(|(_, whole)| whole == algorithm))?;
        let issuer = sequence(inner.whole()?)?;
        let mut validity = inner.enter(tag::SEQUENCE)?;
        let (not_before_s, not_after_s) = (time_s(&mut validity)?, time_s(&mut validity)?);
        validity.end()?;
        let subject = sequence(inner.whole()?)?;
        let spki = sequence(inner.whole()?)?;
        // Unique identifiers of issuer and subject: they are not in use.
        inner.optional(tag::context(1))?;
        inner.optional(tag::context(2))?;
        let mut extensions = Vec::new();
        if let Some(list) = inner.optional(tag::composed(3))? {
            let mut outer = Der::new(list);
            let mut list = outer.enter(tag::SEQUENCE)?;
            outer.end()?;
            while !list.is_empty() {
                let mut extension = list.enter(tag::SEQUENCE)?;
                let oid = extension.take(tag::OID)?.to_vec();
                let is_critical = extension.flag()?;
                let value = extension.take(tag::OCTET_STRING)?.to_vec();
                extension.end()?;
                extensions.push(Extension { oid, is_critical, value });
            }
        }
        inner.end()?;
        Some(Fields {
            signed,
            algorithm,
            signature,
            version,
            serial,
            issuer,
            not_before_s,
            not_after_s,
            subject,
            spki,
            extensions,
        })
    }
}

/// The next element as a time (RFC 5280, 4.1.2.5), in seconds since 1970.
fn time_s(fields: &mut Der<'_>) -> Option<i64> {
    let (_, whole) =
        fields.whole().filter(|(tag, _)| matches!(*tag, tag::UTC_TIME | tag::GENERALIZED_TIME))?;
    let (rest, time) = ASN1Time::from_der(whole).ok()?;
    rest.is_empty().then(|| time.timestamp())
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate({})", shown(&self.subject))
    }
}

/// A name in a message.
pub(crate) fn shown(name: &Name) -> String {
    shortened(&name.to_string())
}

/// Something in a message: not longer than a reader bears.
pub(super) fn shortened(text: &str) -> String {
    const CHARACTERS_MAX: usize = 256;
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

impl Profile {
    /// Takes in an extension; `None` if its value is not what it should be.
    fn read(&mut self, extension: &Extension) -> Option<()> {
        let mut value = Der::new(&extension.value);
        dotted(&extension.oid)?;
        match extension.oid.as_slice() {
            BASIC_CONSTRAINTS => {
                let mut fields = value.enter(tag::SEQUENCE)?;
                let basic =
                    BasicConstraints { is_authority: fields.flag()?, path_len: fields.optional_number()? };
                fields.end()?;
                self.basic = Some(basic);
            }
            KEY_USAGE => {
                let bits = value.take(tag::BIT_STRING)?;
                let (unused, bits) = bits.split_first().filter(|(unused, _)| **unused < 8)?;
                self.key_usage = Some(KeyUsage(match bits {
                    [] => 0,
                    // What is said to be unused says nothing, as for OpenSSL.
                    [only] => only >> unused << unused,
                    [first, _] => *first,
                    _ => return None,
                }));
            }
            EXTENDED_KEY_USAGE => {
                let mut usages = value.enter(tag::SEQUENCE)?;
                let mut may_be_client = false;
                while !usages.is_empty() {
                    may_be_client |= usages.take(tag::OID)? == CLIENT_AUTH;
                }
                self.may_be_client = Some(may_be_client);
            }
            SUBJECT_ALT_NAME => {
                self.has_alternative_names = true;
                let mut names = value.enter(tag::SEQUENCE)?;
                while !names.is_empty() {
                    let (tag, contents) = general_name(&mut names)?;
                    self.alternative_names.push((tag, contents.to_vec()));
                }
            }
            ISSUER_ALT_NAME => {
                self.has_alternative_names = true;
                value.enter(tag::SEQUENCE)?;
                self.honour_not(extension);
            }
            NAME_CONSTRAINTS => self.constraints = Some(NameConstraints::read(value.enter(tag::SEQUENCE)?)?),
            AUTHORITY_KEY => {
                let mut fields = value.enter(tag::SEQUENCE)?;
                self.authority_key = fields.optional(tag::context(0))?.map(<[u8]>::to_vec);
                // Issuer and serial number of the issuer's certificate: the signature tells better.
                let has_issuer = fields.optional(tag::composed(1))?.is_some();
                let has_serial = fields.optional(tag::context(2))?.is_some();
                fields.end().filter(|()| has_issuer == has_serial)?;
            }
            SUBJECT_KEY => self.subject_key = Some(value.take(tag::OCTET_STRING)?.to_vec()),
            PROXY_CERT_INFO => {
                self.proxy = Some(ProxyInfo::read(value.enter(tag::SEQUENCE)?, extension.is_critical)?);
            }
            PROXY_CERT_INFO_DRAFT => {
                self.is_draft_proxy = true;
                return Some(());
            }
            // No policies are asked for here, so whatever these say is good (RFC 5280, 6.1.1). Lists are looked at
            // wherever they are from.
            CERTIFICATE_POLICIES | LIST_POINTS => {
                let mut list = value.enter(tag::SEQUENCE)?;
                while !list.is_empty() {
                    list.enter(tag::SEQUENCE)?;
                }
            }
            INHIBIT_ANY_POLICY => drop(value.optional_number()??),
            _ => {
                self.honour_not(extension);
                return Some(());
            }
        }
        value.end()
    }

    fn honour_not(&mut self, extension: &Extension) {
        if extension.is_critical && self.not_honoured.is_none() {
            self.not_honoured = Some(dotted(&extension.oid).unwrap_or_default());
        }
    }
}

impl ProxyInfo {
    fn read(mut fields: Der<'_>, is_critical: bool) -> Option<ProxyInfo> {
        let path_len = fields.optional_number()?;
        let mut policy = fields.enter(tag::SEQUENCE)?;
        fields.end()?;
        let language = match policy.take(tag::OID)? {
            INHERIT_ALL => Language::InheritAll,
            INDEPENDENT => Language::Independent,
            LIMITED => Language::Limited,
            other => Language::Other(dotted(other)?),
        };
        let has_policy = policy.optional(tag::OCTET_STRING)?.is_some();
        policy.end()?;
        Some(ProxyInfo { is_critical, path_len, language, has_policy })
    }
}

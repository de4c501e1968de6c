//! One certificate, read, not yet believed.

use x509_parser::certificate::X509CertificateParser;
use x509_parser::nom::Parser;

use super::constraints::NameConstraints;
use super::der::{Der, dotted, tag};
use super::name::Name;
use super::signature::Algorithm;
use crate::refusal::{Cause, Refusal};

/// A certificate (RFC 5280, 4.1).
#[derive(Clone, Debug)]
pub struct Certificate {
    der: Vec<u8>,
    /// What is signed.
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
    /// Whether nobody may pass over it.
    pub is_critical: bool,
    /// Its value, as DER.
    pub value: Vec<u8>,
}

/// What the extensions say that paths are judged by.
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
    /// Whether it has alternative names, of subject or issuer.
    pub(super) has_alternative_names: bool,
    pub(super) authority_key: Option<Vec<u8>>,
    pub(super) subject_key: Option<Vec<u8>>,
    pub(super) is_draft_proxy: bool,
    /// A critical extension that nobody here honours.
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
    /// How many proxies may follow.
    pub(super) path_len: Option<u32>,
    pub(super) language: Language,
    pub(super) has_policy: bool,
}

/// What a proxy is worth.
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
        let mut parser = X509CertificateParser::new().with_deep_parse_extensions(false);
        let (rest, read) = parser.parse(der).map_err(|_| malformed("a certificate"))?;
        let inner = &read.tbs_certificate;
        let subject =
            Name::from_der(inner.subject().as_raw()).ok_or_else(|| malformed("a certificate's subject"))?;
        let of = |what: &str| malformed(&format!("{what} of the certificate of {}", shown(&subject)));
        if !rest.is_empty() {
            return Err(of("what is behind the end"));
        }
        if inner.signature != read.signature_algorithm || read.signature_value.unused_bits != 0 {
            return Err(of("the signature"));
        }
        let mut extensions = Vec::with_capacity(inner.extensions().len());
        for extension in inner.extensions() {
            let oid = extension.oid.as_bytes().to_vec();
            if extensions.iter().any(|other: &Extension| other.oid == oid) {
                return Err(of("an extension that is there twice, in the extensions"));
            }
            extensions.push(Extension {
                oid,
                is_critical: extension.critical,
                value: extension.value.to_vec(),
            });
        }
        let issuer = Name::from_der(inner.issuer().as_raw()).ok_or_else(|| of("the issuer"))?;
        let mut profile = Profile::default();
        for extension in &extensions {
            profile.read(extension).ok_or_else(|| {
                of(&format!("the extension {}", dotted(&extension.oid).unwrap_or_default()))
            })?;
        }
        Ok(Certificate {
            der: der.to_vec(),
            signed: inner.as_ref().to_vec(),
            algorithm: Algorithm::of(&read.signature_algorithm),
            algorithm_name: read.signature_algorithm.algorithm.to_id_string(),
            signature: read.signature_value.data.to_vec(),
            version: inner.version().0,
            serial: inner.raw_serial().to_vec(),
            issuer,
            not_before_s: inner.validity().not_before.timestamp(),
            not_after_s: inner.validity().not_after.timestamp(),
            spki: inner.public_key().raw.to_vec(),
            subject,
            extensions,
            profile,
        })
    }

    /// As it stands.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Of whom it speaks.
    pub fn subject(&self) -> &Name {
        &self.subject
    }

    /// Who made it.
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

    /// Its extensions, in its order.
    pub fn extensions(&self) -> &[Extension] {
        &self.extensions
    }

    /// The value of the extension with this object identifier (contents of its DER).
    pub fn extension(&self, oid: &[u8]) -> Option<&[u8]> {
        self.extensions.iter().find(|extension| extension.oid == oid).map(|extension| &extension.value[..])
    }

    /// Whether it is a proxy by RFC 3820.
    pub fn is_proxy(&self) -> bool {
        self.profile.proxy.is_some()
    }

    /// The identifier of its key, if it says one (RFC 5280, 4.2.1.2).
    pub fn subject_key(&self) -> Option<&[u8]> {
        self.profile.subject_key.as_deref()
    }

    /// Whether subject and issuer have the same name.
    pub fn is_self_issued(&self) -> bool {
        self.subject == self.issuer
    }

    /// Whether it may make certificates, as far as its extensions say. Before version 3 there was no way to say it, which
    /// is good enough only where somebody has put it among the trusted ones.
    pub(super) fn is_authority(&self) -> bool {
        self.profile.basic.is_some_and(|basic| basic.is_authority)
    }

    /// The same for one that somebody has put among the trusted ones: OpenSSL takes these too.
    pub(super) fn is_old_authority(&self) -> bool {
        let may_sign = self.profile.key_usage.is_some_and(KeyUsage::may_sign_certificates);
        self.profile.basic.is_none() && (self.version == 0 && self.is_self_issued() || may_sign)
    }

    pub(super) fn version(&self) -> u32 {
        self.version
    }

    /// Whether the holder of this key has made it.
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

/// A name in a message: not longer than anybody reads.
pub(super) fn shown(name: &Name) -> String {
    const CHARACTERS_MAX: usize = 256;
    let text = name.to_string();
    // It is ASCII.
    match text.get(..CHARACTERS_MAX) {
        Some(start) if text.len() > CHARACTERS_MAX => format!("{start}…"),
        _ => text,
    }
}

impl Profile {
    /// Takes in an extension; `None` if its value is not what it should be.
    fn read(&mut self, extension: &Extension) -> Option<()> {
        let mut value = Der::new(&extension.value);
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
                let (unused, bits) = bits.split_first()?;
                Some(()).filter(|()| *unused < 8 && bits.len() <= 2)?;
                self.key_usage = Some(KeyUsage(bits.first().copied().unwrap_or_default()));
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
                    let (tag, contents) = names.any()?;
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
            CERTIFICATE_POLICIES | INHIBIT_ANY_POLICY | LIST_POINTS => return Some(()),
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

//! What an attribute certificate says (RFC 5755 section 4, as VOMS writes it). Nothing here is believed yet.

use gridlane_core::limits;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

use crate::fqan::Fqan;
use crate::refusal::{Cause, Refusal};
use crate::x509::Name;
use crate::x509::der::{Der, dotted, tag, whole_bits};

/// An attribute certificate, as it is written.
#[derive(Debug)]
pub(super) struct AttributeCertificate<'a> {
    /// The part that is signed.
    pub(super) signed: &'a [u8],
    /// With which algorithm: an `AlgorithmIdentifier` as DER.
    pub(super) algorithm: &'a [u8],
    /// The signature.
    pub(super) signature: &'a [u8],
    /// Its holder.
    pub(super) holder: Holder<'a>,
    /// Its signer.
    pub(super) issuer: Name,
    /// When it begins, in seconds since 1970.
    pub(super) not_before_s: i64,
    /// When it ends, in seconds since 1970.
    pub(super) not_after_s: i64,
    /// The virtual organisation that speaks.
    pub(super) vo: &'a str,
    /// The host of its VOMS server.
    pub(super) host: &'a str,
    /// The attributes of the holder, the primary one first; all of them are of its VO.
    pub(super) fqans: Vec<Fqan>,
    /// The certificates to check the signature with, the signer's own first.
    pub(super) certificates: Vec<&'a [u8]>,
    /// Where alone it counts; `None` if anywhere.
    pub(super) targets: Option<Vec<&'a str>>,
    /// The identifier of the signer's key.
    pub(super) key_id: Option<&'a [u8]>,
}

/// The holder of an attribute certificate. At least one of the two is there, and what is there has to be right.
#[derive(Debug)]
pub(super) struct Holder<'a> {
    /// A name and the serial number of the holder's certificate. The name is that of its issuer, or (older VOMS) of its
    /// subject.
    pub(super) certificate: Option<(Name, &'a [u8])>,
    /// The subject of the holder's certificate.
    pub(super) subject: Option<Name>,
}

/// The attribute certificates in the value of the proxy's extension, each still to be [read](AttributeCertificate::read).
///
/// `SEQUENCE OF SEQUENCE OF AttributeCertificate`.
pub(super) fn split(extension: &[u8]) -> Result<Vec<&[u8]>, Refusal> {
    let refused = || malformed("the VOMS extension");
    let mut outer = Der::new(extension);
    let mut lists = outer.enter(tag::SEQUENCE).ok_or_else(refused)?;
    outer.end().ok_or_else(refused)?;
    let mut found = Vec::new();
    while !lists.is_empty() {
        let mut list = lists.enter(tag::SEQUENCE).ok_or_else(refused)?;
        while !list.is_empty() {
            found.push(list.whole().ok_or_else(refused)?.1);
            if found.len() > limits::VOMS_CERTIFICATES_MAX {
                return Err(too_many("attribute certificates"));
            }
        }
    }
    Ok(found)
}

impl<'a> AttributeCertificate<'a> {
    /// Reads the bytes of one.
    pub(super) fn read(bytes: &'a [u8]) -> Result<AttributeCertificate<'a>, Refusal> {
        let ([signed, algorithm], signature) = read_signed(bytes).ok_or_else(|| malformed("it"))?;
        let mut info = Der::new(signed).enter(tag::SEQUENCE).ok_or_else(|| malformed("it"))?;

        // v2 is 1, and there is no other: v1 was withdrawn.
        if info.take(tag::INTEGER) != Some(&[1]) {
            return Err(Refusal::new(Cause::Unacceptable, "its version is not 2"));
        }
        let holder =
            info.enter(tag::SEQUENCE).and_then(Holder::read).ok_or_else(|| malformed("its holder"))?;
        let issuer = read_issuer(&mut info).ok_or_else(|| malformed("its issuer"))?;
        // The algorithm stands inside of what is signed too, and has to be the same (section 4.2.4).
        if info.whole().is_none_or(|(_, inside)| inside != algorithm) {
            return Err(malformed("the algorithm of its signature"));
        }
        if info.take(tag::INTEGER).is_none_or(|serial| !(1..=SERIAL_BYTES_MAX).contains(&serial.len())) {
            return Err(malformed("its serial number"));
        }
        let (not_before_s, not_after_s) =
            info.enter(tag::SEQUENCE).and_then(read_validity).ok_or_else(|| malformed("its validity"))?;
        let attributes = info.enter(tag::SEQUENCE).ok_or_else(|| malformed("its attributes"))?;
        let (authority, fqans) = read_attributes(attributes)?;
        let (vo, host) = read_authority(authority)?;
        if let Some(foreign) = fqans.iter().find(|fqan| fqan.vo() != vo) {
            return Err(Refusal::new(
                Cause::Untrusted,
                format!("{foreign} is not a group of {vo}, which says so"),
            ));
        }
        // issuerUniqueID is a thing of the past: it would name the signer, and the signature does that better.
        info.optional(tag::BIT_STRING).ok_or_else(|| malformed("its issuer"))?;
        let extensions = match info.is_empty() {
            true => Extensions::default(),
            false => Extensions::read(info.enter(tag::SEQUENCE).ok_or_else(|| malformed("its extensions"))?)?,
        };
        info.end().ok_or_else(|| malformed("it"))?;
        Ok(AttributeCertificate {
            signed,
            algorithm,
            signature,
            holder,
            issuer,
            not_before_s,
            not_after_s,
            vo,
            host,
            fqans,
            certificates: extensions.certificates,
            targets: extensions.targets,
            key_id: extensions.key_id,
        })
    }
}

/// The part that is signed, the algorithm, and the signature.
fn read_signed(bytes: &[u8]) -> Option<([&[u8]; 2], &[u8])> {
    let mut outer = Der::new(bytes);
    let mut certificate = outer.enter(tag::SEQUENCE)?;
    outer.end()?;
    let (_, signed) = certificate.whole()?;
    let (_, algorithm) = certificate.whole()?;
    let signature = whole_bits(certificate.take(tag::BIT_STRING)?)?;
    certificate.end()?;
    Some(([signed, algorithm], signature))
}

impl<'a> Holder<'a> {
    fn read(mut holder: Der<'a>) -> Option<Holder<'a>> {
        let certificate = match holder.optional(tag::composed(0))? {
            Some(id) => {
                let mut id = Der::new(id);
                let issuer = only_directory_name(id.enter(tag::SEQUENCE)?)?;
                let serial = id.take(tag::INTEGER)?;
                // A unique identifier of the issuer would have to be compared too; no certificate has them.
                id.end()?;
                Some((issuer, serial))
            }
            None => None,
        };
        let subject = match holder.optional(tag::composed(1))? {
            Some(names) => Some(only_directory_name(Der::new(names))?),
            None => None,
        };
        // What may follow is the digest of some object.
        holder.end()?;
        (certificate.is_some() || subject.is_some()).then_some(Holder { certificate, subject })
    }
}

/// `V2Form` with nothing but the one name that section 4.2.3 asks for.
fn read_issuer(info: &mut Der<'_>) -> Option<Name> {
    let mut form = info.enter(tag::composed(0))?;
    let name = only_directory_name(form.enter(tag::SEQUENCE)?)?;
    form.end()?;
    Some(name)
}

/// When it begins and ends, in seconds since 1970.
fn read_validity(mut validity: Der<'_>) -> Option<(i64, i64)> {
    let mut moment = || {
        let (_, bytes) = validity.whole()?;
        let (_, time) = ASN1Time::from_der(bytes).ok()?;
        time.is_generalizedtime().then_some(time.timestamp())
    };
    let period = (moment()?, moment()?);
    validity.end()?;
    Some(period)
}

/// The groups and roles, with the authority that says so: the one attribute of VOMS, which has one value.
fn read_attributes(mut attributes: Der<'_>) -> Result<(&str, Vec<Fqan>), Refusal> {
    let refused = || malformed("its attributes");
    let (mut found, mut count) = (None, 0);
    while !attributes.is_empty() {
        count += 1;
        if count > limits::VOMS_ELEMENTS_MAX {
            return Err(too_many("attributes"));
        }
        let mut attribute = attributes.enter(tag::SEQUENCE).ok_or_else(refused)?;
        let kind = attribute.take(tag::OID).ok_or_else(refused)?;
        let mut values = attribute.enter(tag::SET).ok_or_else(refused)?;
        attribute.end().ok_or_else(refused)?;
        if kind != FQANS {
            continue;
        }
        let value = values.enter(tag::SEQUENCE).ok_or_else(refused)?;
        values.end().ok_or_else(refused)?;
        if found.replace(read_fqans(value)?).is_some() {
            return Err(Refusal::new(Cause::Malformed, "it has the attribute of VOMS twice"));
        }
    }
    found.ok_or_else(|| Refusal::new(Cause::Malformed, "it has no attribute of VOMS"))
}

/// `IetfAttrSyntax`: VOMS writes names as octet strings, and its authority as a URI.
fn read_fqans(mut value: Der<'_>) -> Result<(&str, Vec<Fqan>), Refusal> {
    let refused = || malformed("its authority");
    let mut names = value.enter(tag::composed(0)).ok_or_else(refused)?;
    let authority = names.take(URI).and_then(as_text).ok_or_else(refused)?;
    names.end().ok_or_else(refused)?;
    let refused = || malformed("a group");
    let mut values = value.enter(tag::SEQUENCE).ok_or_else(refused)?;
    value.end().ok_or_else(refused)?;
    let mut fqans = Vec::new();
    while !values.is_empty() {
        let text = values.take(tag::OCTET_STRING).ok_or_else(refused)?;
        if text.len() > limits::VOMS_FQAN_BYTES_MAX {
            return Err(Refusal::new(Cause::Unacceptable, "the name of a group is too long"));
        }
        fqans.push(as_text(text).ok_or_else(refused)?.parse()?);
        if fqans.len() > limits::VOMS_FQANS_MAX {
            return Err(too_many("groups"));
        }
    }
    match fqans.is_empty() {
        true => Err(Refusal::new(Cause::Malformed, "no group is in it")),
        false => Ok((authority, fqans)),
    }
}

/// VO and host of `atlas://voms.example.org:15001`.
fn read_authority(uri: &str) -> Result<(&str, &str), Refusal> {
    let refused = || Refusal::new(Cause::Malformed, "its authority is not written VO://HOST:PORT");
    let (vo, server) = uri.split_once("://").ok_or_else(refused)?;
    let (host, port) = server.rsplit_once(':').ok_or_else(refused)?;
    let is_name = |text: &str| {
        !text.is_empty()
            && !text.starts_with('.')
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    match is_name(vo) && is_name(host) && port.parse::<u16>().is_ok() {
        true => Ok((vo, host)),
        false => Err(refused()),
    }
}

/// The extensions that mean something here.
#[derive(Debug, Default)]
struct Extensions<'a> {
    certificates: Vec<&'a [u8]>,
    targets: Option<Vec<&'a str>>,
    key_id: Option<&'a [u8]>,
}

impl<'a> Extensions<'a> {
    fn read(mut list: Der<'a>) -> Result<Extensions<'a>, Refusal> {
        let mut found = Extensions::default();
        let mut seen = Vec::new();
        while !list.is_empty() {
            let (kind, is_critical, value) =
                read_extension(&mut list).ok_or_else(|| malformed("an extension"))?;
            if seen.contains(&kind) {
                return Err(Refusal::new(Cause::Malformed, "it has an extension twice"));
            }
            seen.push(kind);
            if seen.len() > limits::VOMS_ELEMENTS_MAX {
                return Err(too_many("extensions"));
            }
            // No other organisation may say that something has to be understood (section 4.3). What is not known
            // beside these is of no use here: generic attributes; and that it cannot be revoked, which nothing is.
            if is_critical && kind != TARGETS {
                let kind = dotted(kind).unwrap_or_default();
                return Err(Refusal::new(Cause::Unacceptable, format!("its extension {kind} is critical")));
            }
            match kind {
                CERTIFICATES => found.certificates = read_certificates(value)?,
                TARGETS => found.targets = Some(read_targets(value)?),
                KEY_ID => found.key_id = read_key_id(value).ok_or_else(|| malformed("its key identifier"))?,
                _ => {}
            }
        }
        Ok(found)
    }
}

fn read_extension<'a>(list: &mut Der<'a>) -> Option<(&'a [u8], bool, &'a [u8])> {
    let mut extension = list.enter(tag::SEQUENCE)?;
    let found = (extension.take(tag::OID)?, extension.flag()?, extension.take(tag::OCTET_STRING)?);
    extension.end()?;
    Some(found)
}

/// `SEQUENCE OF SEQUENCE OF Certificate`, of which the outer has one.
fn read_certificates(value: &[u8]) -> Result<Vec<&[u8]>, Refusal> {
    let refused = || malformed("the list of its issuer's certificates");
    let mut all = Der::new(value);
    let mut outer = all.enter(tag::SEQUENCE).ok_or_else(refused)?;
    all.end().ok_or_else(refused)?;
    let mut list = outer.enter(tag::SEQUENCE).ok_or_else(refused)?;
    outer.end().ok_or_else(refused)?;
    let mut certificates = Vec::new();
    while !list.is_empty() {
        certificates.push(list.whole().ok_or_else(refused)?.1);
        if certificates.len() > limits::VOMS_ISSUERS_MAX {
            return Err(too_many("certificates of its issuer"));
        }
    }
    Ok(certificates)
}

/// The names of hosts in `SEQUENCE OF SEQUENCE OF Target` (section 4.3.2). VOMS puts each target in a sequence of its own.
/// A target that is no name of a host names no server.
fn read_targets(value: &[u8]) -> Result<Vec<&str>, Refusal> {
    let refused = || malformed("its targets");
    let mut all = Der::new(value);
    let mut lists = all.enter(tag::SEQUENCE).ok_or_else(refused)?;
    all.end().ok_or_else(refused)?;
    let (mut targets, mut count) = (Vec::new(), 0);
    while !lists.is_empty() {
        let mut list = lists.enter(tag::SEQUENCE).ok_or_else(refused)?;
        while !list.is_empty() {
            count += 1;
            if count > limits::VOMS_ELEMENTS_MAX {
                return Err(too_many("targets"));
            }
            let (kind, target) = match list.any().ok_or_else(refused)? {
                (tag::SEQUENCE, []) => continue,
                (tag::SEQUENCE, target) => Der::new(target).any().ok_or_else(refused)?,
                target => target,
            };
            // Groups and certificates are other choices.
            if kind != tag::composed(0) {
                continue;
            }
            if let Some((URI | DNS_NAME, name)) = Der::new(target).any() {
                targets.push(as_text(name).ok_or_else(refused)?);
            }
        }
    }
    Ok(targets)
}

/// The identifier in `AuthorityKeyIdentifier`, if it has one.
fn read_key_id(value: &[u8]) -> Option<Option<&[u8]>> {
    let mut all = Der::new(value);
    let mut fields = all.enter(tag::SEQUENCE)?;
    all.end()?;
    fields.optional(tag::context(0))
}

/// The one directory name in `GeneralNames`.
fn only_directory_name(mut names: Der<'_>) -> Option<Name> {
    let name = names.take(DIRECTORY_NAME)?;
    names.end()?;
    Name::from_der(name)
}

fn as_text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| text.is_ascii())
}

fn malformed(what: &str) -> Refusal {
    Refusal::new(Cause::Malformed, format!("{what} cannot be read"))
}

fn too_many(what: &str) -> Refusal {
    Refusal::new(Cause::Unacceptable, format!("there are too many {what}"))
}

/// In bytes: what RFC 5755 section 4.2.5 lets issuers have.
const SERIAL_BYTES_MAX: usize = 20;

/// Choices of `GeneralName` (RFC 5280 section 4.2.1.6).
const DNS_NAME: u8 = tag::context(2);
const DIRECTORY_NAME: u8 = tag::composed(4);
const URI: u8 = tag::context(6);

/// The extension of a proxy that has the attribute certificates: 1.3.6.1.4.1.8005.100.100.5.
pub(super) const IN_PROXY: &[u8] = &[0x2b, 6, 1, 4, 1, 0xbe, 0x45, 100, 100, 5];
/// The attribute that has groups and roles: …4.
const FQANS: &[u8] = &[0x2b, 6, 1, 4, 1, 0xbe, 0x45, 100, 100, 4];
/// The extension that has the certificates of the issuer: …10.
const CERTIFICATES: &[u8] = &[0x2b, 6, 1, 4, 1, 0xbe, 0x45, 100, 100, 10];
/// 2.5.29.55.
const TARGETS: &[u8] = &[0x55, 29, 55];
/// 2.5.29.35.
const KEY_ID: &[u8] = &[0x55, 29, 35];

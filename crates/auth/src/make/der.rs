//! What several of the structures have in common: times, algorithms, and how they are signed.

use gridlane_core::{Error, ErrorKind, Fault, Result};
use ring::rand::SecureRandom;
use x509_parser::time::ASN1Time;
use yasna::models::ObjectIdentifier;
use yasna::{DERWriter, Tag};

use super::key::Key;

/// An identifier of numbers below 2^64.
pub(super) fn oid(numbers: &[u64]) -> ObjectIdentifier {
    ObjectIdentifier::from_slice(numbers)
}

/// Seconds since 1970 as `UTCTime` up to 2049, else as `GeneralizedTime` (RFC 5280, 4.1.2.5).
pub(super) fn write_time(to: DERWriter<'_>, time_s: i64) -> Result<()> {
    let (year, rest) = digits(time_s)?;
    match (1950..2050).contains(&year) {
        true => to.write_tagged_implicit(tag::UTC_TIME, |to| {
            to.write_bytes(format!("{:02}{rest}", year % 100).as_bytes());
        }),
        false => generalized(to, year, &rest),
    }
    Ok(())
}

/// Seconds since 1970 as `GeneralizedTime` in any case (RFC 5755, 4.2.6).
pub(super) fn write_generalized_time(to: DERWriter<'_>, time_s: i64) -> Result<()> {
    let (year, rest) = digits(time_s)?;
    generalized(to, year, &rest);
    Ok(())
}

fn generalized(to: DERWriter<'_>, year: i32, rest: &str) {
    to.write_tagged_implicit(tag::GENERALIZED_TIME, |to| {
        to.write_bytes(format!("{year:04}{rest}").as_bytes())
    });
}

/// The year, and everything behind it: `1122085336Z`.
fn digits(time_s: i64) -> Result<(i32, String)> {
    let time = ASN1Time::from_timestamp(time_s).map(|time| time.to_datetime());
    let time = time.ok().filter(|time| (0..10_000).contains(&time.year()));
    let time = time.ok_or_else(|| unusable(format!("{time_s} s since 1970 has no year of four digits")))?;
    let (month, day) = (u8::from(time.month()), time.day());
    let (hour, minute, second) = time.to_hms();
    Ok((time.year(), format!("{month:02}{day:02}{hour:02}{minute:02}{second:02}Z")))
}

/// `SEQUENCE { body, algorithm, signature }`: certificates, their lists, and attribute certificates.
pub(super) fn signed(body: &[u8], key: &Key, random: &dyn SecureRandom) -> Result<Vec<u8>> {
    let signature = key.sign(body, random)?;
    Ok(yasna::construct_der(|to| {
        to.write_sequence(|to| {
            to.next().write_der(body);
            key.write_signature_algorithm(to.next());
            to.next().write_bitvec_bytes(&signature, signature.len() * 8);
        });
    }))
}

/// A number of any length, most significant byte first.
pub(super) fn write_serial(to: DERWriter<'_>, serial: &[u8]) {
    to.write_bigint_bytes(serial, true);
}

/// Something that was given to us cannot be used.
pub(super) fn unusable(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Usage, message).fault(Fault::Caller)
}

pub(super) mod tag {
    use yasna::Tag;

    pub(crate) const UTC_TIME: Tag = universal(23);
    pub(crate) const GENERALIZED_TIME: Tag = universal(24);

    const fn universal(tag_number: u64) -> Tag {
        Tag { tag_class: yasna::TagClass::Universal, tag_number }
    }
}

/// The tag `[number]` of a structure.
pub(super) fn context(number: u64) -> Tag {
    Tag::context(number)
}

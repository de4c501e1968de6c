//! Certificates as authorities make them: of themselves, of hosts, of people.

use gridlane_core::Result;
use ring::rand::SecureRandom;

use super::certificate::{Contents, Validity, serial};
use super::credential::Credential;
use super::extension::{AlternativeName, Extension, KeyUsage, key_id};
use super::key::Key;
use super::name::Name;

/// An authority that vouches for itself.
pub fn authority(name: &Name, key: Key, validity: Validity, random: &dyn SecureRandom) -> Result<Credential> {
    let contents = authority_contents(name, &key, name, &key.public_key(), validity, random)?;
    Ok(Credential { chain: vec![contents.sign(&key, random)?], key })
}

/// An authority below another one.
pub fn intermediate(
    above: &Credential,
    name: &Name,
    key: Key,
    validity: Validity,
    random: &dyn SecureRandom,
) -> Result<Credential> {
    let public = above.key.public_key();
    let contents = authority_contents(name, &key, &above.subject()?, &public, validity, random)?;
    below(above, contents, key, random)
}

/// A server under its names; it may be a client as well, as in a copy between servers.
pub fn host(
    authority: &Credential,
    name: &Name,
    names: &[AlternativeName],
    key: Key,
    validity: Validity,
    random: &dyn SecureRandom,
) -> Result<Credential> {
    let mut contents = end_entity(authority, name, &key, validity, random)?;
    contents.extensions.push(Extension::server_and_client());
    if !names.is_empty() {
        contents.extensions.push(Extension::alternative_names(names));
    }
    below(authority, contents, key, random)
}

/// A person.
pub fn user(
    authority: &Credential,
    name: &Name,
    key: Key,
    validity: Validity,
    random: &dyn SecureRandom,
) -> Result<Credential> {
    let mut contents = end_entity(authority, name, &key, validity, random)?;
    contents.extensions.push(Extension::client());
    below(authority, contents, key, random)
}

/// Properties that [`host`] and [`user`] have in common, for certificates that differ from both.
pub fn end_entity(
    authority: &Credential,
    name: &Name,
    key: &Key,
    validity: Validity,
    random: &dyn SecureRandom,
) -> Result<Contents> {
    let public_key = key.public_key();
    let extensions = vec![
        Extension::basic_constraints(false, None),
        Extension::key_usage(KeyUsage::DIGITAL_SIGNATURE | KeyUsage::KEY_ENCIPHERMENT),
        Extension::subject_key_id(&key_id(&public_key)?),
        Extension::authority_key_id(&authority.key_id()?),
    ];
    Ok(Contents {
        subject: name.clone(),
        issuer: authority.subject()?,
        serial: serial(random)?,
        validity,
        public_key,
        extensions,
    })
}

fn authority_contents(
    name: &Name,
    key: &Key,
    issuer: &Name,
    issuer_public_key: &[u8],
    validity: Validity,
    random: &dyn SecureRandom,
) -> Result<Contents> {
    let public_key = key.public_key();
    let extensions = vec![
        Extension::basic_constraints(true, None),
        Extension::key_usage(KeyUsage::CERTIFICATE_SIGN | KeyUsage::CRL_SIGN),
        Extension::subject_key_id(&key_id(&public_key)?),
        Extension::authority_key_id(&key_id(issuer_public_key)?),
    ];
    Ok(Contents {
        subject: name.clone(),
        issuer: issuer.clone(),
        serial: serial(random)?,
        validity,
        public_key,
        extensions,
    })
}

/// Signed by an authority; what vouches for the authority, unless it does so itself, is in the chain.
fn below(
    authority: &Credential,
    contents: Contents,
    key: Key,
    random: &dyn SecureRandom,
) -> Result<Credential> {
    let mut chain = vec![contents.sign(&authority.key, random)?];
    let issuer = authority.contents()?;
    if issuer.issuer != issuer.subject {
        chain.extend(authority.chain.iter().cloned());
    }
    Ok(Credential { chain, key })
}

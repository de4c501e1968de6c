//! Requests for a certificate (PKCS #10, RFC 2986).

use gridlane_core::Result;
use ring::rand::SecureRandom;

use super::der::{context, oid, signed};
use super::extension::{Extension, ProxyPolicy};
use super::key::Key;
use super::name::{Name, Text};
use super::proxy::proxy_number;

/// A request for a certificate of this key, signed with it. The subject is what is asked for; who signs a proxy writes
/// another one.
pub fn request(subject: &Name, key: &Key, random: &dyn SecureRandom) -> Result<Vec<u8>> {
    request_with(subject, key, &[], random)
}

/// A request for a proxy below a certificate with this subject, as XRootD's clients want it: with the subject that the proxy
/// would have, and saying that it is to be one.
pub fn proxy_request(issuer: &Name, key: &Key, random: &dyn SecureRandom) -> Result<Vec<u8>> {
    let number = proxy_number(random)?;
    let subject = issuer.clone().with("CN", &number.to_string(), Text::Printable)?;
    request_with(&subject, key, &[Extension::proxy(&ProxyPolicy::InheritAll, None)], random)
}

fn request_with(
    subject: &Name,
    key: &Key,
    extensions: &[Extension],
    random: &dyn SecureRandom,
) -> Result<Vec<u8>> {
    let body = yasna::construct_der(|to| {
        to.write_sequence(|to| {
            // Version 1.
            to.next().write_u8(0);
            subject.write(to.next());
            to.next().write_der(&key.public_key());
            // OpenSSL reads nothing without the set of attributes, empty or not.
            to.next().write_tagged_implicit(context(0), |to| {
                to.write_set_of(|to| {
                    if extensions.is_empty() {
                        return;
                    }
                    // RFC 2985, 5.4.2: the extensions that are asked for.
                    to.next().write_sequence(|to| {
                        to.next().write_oid(&oid(EXTENSION_REQUEST));
                        to.next().write_set_of(|to| {
                            to.next().write_sequence(|to| extensions.iter().for_each(|one| one.write(to)));
                        });
                    });
                });
            });
        });
    });
    signed(&body, key, random)
}

const EXTENSION_REQUEST: &[u64] = &[1, 2, 840, 113549, 1, 9, 14];

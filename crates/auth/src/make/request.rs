//! Requests for a certificate (PKCS #10, RFC 2986).

use gridlane_core::Result;
use ring::rand::SecureRandom;

use super::der::{context, signed};
use super::key::Key;
use super::name::Name;

/// A request for a certificate of this key, signed with it. The subject is what is asked for; who signs a proxy writes
/// another one.
pub fn request(subject: &Name, key: &Key, random: &dyn SecureRandom) -> Result<Vec<u8>> {
    let body = yasna::construct_der(|to| {
        to.write_sequence(|to| {
            // Version 1.
            to.next().write_u8(0);
            subject.write(to.next());
            to.next().write_der(&key.public_key());
            // No attributes; OpenSSL reads nothing without the empty set of them.
            to.next().write_tagged_implicit(context(0), |to| to.write_set_of(|_| {}));
        });
    });
    signed(&body, key, random)
}

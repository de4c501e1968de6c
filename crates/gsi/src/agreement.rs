//! The agreement on a key: Diffie and Hellman's, over a finite field.
//!
//! ```text
//! -----BEGIN DH PARAMETERS-----
//! …                                  prime and generator (PKCS#3)
//! -----END DH PARAMETERS-----
//! ---BPUB---1F…---EPUB---            the public value in hexadecimal
//! ```
//!
//! The server chooses the field. XRootD's servers since 5.6 have one of 3072 bits, whose prime is a safe one: `(p - 1) / 2` is
//! prime as well, so that an exponent of twice the strength of the key is enough, and takes a tenth of the time. Servers before
//! that make one of 512 bits at each start. A key that was agreed in such a field can be found by a third party within hours, which
//! can then pass for that server to clients that believe it; so no proxy is ever given in one.
//!
//! A field is more than a strength. A client signs its public value, whatever the field, and nothing that it signs names the
//! server: in a field that a server has made for that purpose the value could be one whose logarithm the server knows in
//! another server's field, where it would then pass for the client. So a client checks that the prime of a field is a safe one and
//! the generator generates, and a server that the client's value is of the server's own field.

use gridlane_auth::{Cause, Refusal};
use openssl::bn::{BigNum, BigNumContext, BigNumRef, MsbOption};
use openssl::dh::Dh;
use openssl::pkey::Params;

use crate::exchange::{failed, malformed};

const BEFORE: &[u8] = b"---BPUB---";
const BEHIND: &[u8] = b"---EPUB---";

/// Bytes of the public part: a field of [`PRIME_BITS_MAX`] and a value in it, as text, take a quarter of it.
const PUBLIC_BYTES_MAX: usize = 8 * 1024;

/// The smallest field that a server may choose: of servers before 5.6.
const PRIME_BITS_MIN: i32 = 512;
/// The largest: a greater one would keep a client busy.
const PRIME_BITS_MAX: i32 = 4096;
/// The smallest in which a proxy is given.
const DELEGATION_BITS_MIN: i32 = 2048;
/// Rounds of Miller and Rabin's test: a number that somebody has made to pass them passes each with one quarter at most.
const PRIME_CHECKS: i32 = 64;
/// Bits of an exponent in the usual field: twice the strength that 3072 bits have, and some.
const EXPONENT_BITS: i32 = 320;

/// The field of XRootD's servers, which all clients take without a check; with the generator 5.
const USUAL_PRIME: &str = "\
CDC1007F7642926D05C492E029DD58A13D7A1E27AD97B415F1580935CE4260A991BBF80ACA5C53315649AAD526A21D88BC51C27DB4C612\
664CE4B7556997CC2D07FBC978DE720D274869256197904373F4AAC8452DB23DBB7CF55E111E09B1193EAF38596C1769C480031C30451A\
CDE67B218006AFAAFC83886362F86A98A6A18F6FD244DFC477189E751533EEB5996F42F13272309B8F26A386922D041F97BC88D68F6190\
CAF8BE72A0745AB3D002CC4238FAC14C264B3A333435F27B3D07E5970DD10D07AFDAED50F91B7C43249C250085523FD25A8C69C36C9DA5\
6760024AEA4E675562B7AFC790285C4E76715202F307CEC5A689E1C0699C9BA2DD8D2365C3908F416D0B4C1FE16701A479CB2C1CCA48E4\
306F1B6C584F0B92C90F9F0C2BBA9FC7A968A6145838D1B0BD1792E6DC24C309BE399AD941C62DC3C9D21B44B1611808E52B3577B3D1B7\
A291F0C1F817A457F7FB383B34F577835FFF1CB8160AFA283AF32A68EF97EFE9577332492CC69F11A6AB700C9A2B2A3C3C628800E46B\
";
const USUAL_GENERATOR: u32 = 5;

/// One side of an agreement. It has no `Debug`.
pub(crate) struct Agreement {
    field: Dh<Params>,
    exponent: BigNum,
    public: BigNum,
}

impl Agreement {
    /// A server's: in the usual field.
    pub(crate) fn new() -> Result<Agreement, Refusal> {
        let what = "preparing the key exchange";
        let prime = BigNum::from_hex_str(USUAL_PRIME).map_err(failed(what))?;
        let generator = BigNum::from_u32(USUAL_GENERATOR).map_err(failed(what))?;
        Agreement::within(Dh::from_pqg(prime, None, generator).map_err(failed(what))?)
    }

    fn within(field: Dh<Params>) -> Result<Agreement, Refusal> {
        let what = "preparing the key exchange";
        let bits = match is_usual(&field)? {
            true => EXPONENT_BITS,
            // Of another field it is not known whether less is enough.
            false => field.prime_p().num_bits() - 1,
        };
        let mut exponent = BigNum::new_secure().map_err(failed(what))?;
        exponent.rand(bits, MsbOption::ONE, false).map_err(failed(what))?;
        exponent.set_const_time();
        let public = power(field.generator(), &exponent, field.prime_p())?;
        Ok(Agreement { field, exponent, public })
    }

    /// A client's answer to a server's part, and the secret that they have in common.
    pub(crate) fn answer(theirs: &[u8], pads: bool) -> Result<(Agreement, Vec<u8>), Refusal> {
        let (pem, public) = parts(theirs)?;
        let field = read_field(pem)?;
        let bits = field.prime_p().num_bits();
        if !(PRIME_BITS_MIN..=PRIME_BITS_MAX).contains(&bits) {
            let what = format!("gsi: the server wants to agree on a key in a field of {bits} bits");
            return Err(Refusal::new(Cause::Unacceptable, what));
        }
        check(&field)?;
        let ours = Agreement::within(field)?;
        let secret = ours.secret_of(&public, pads)?;
        Ok((ours, secret))
    }

    /// The secret in common with a client that has answered, in the field that it was sent.
    pub(crate) fn secret(&self, theirs: &[u8], pads: bool) -> Result<Vec<u8>, Refusal> {
        let (pem, public) = parts(theirs)?;
        let field = read_field(pem)?;
        if *field.prime_p() != *self.field.prime_p() || *field.generator() != *self.field.generator() {
            let what = "gsi: the client has agreed on a key in another field than this server's";
            return Err(Refusal::new(Cause::BadSignature, what));
        }
        self.secret_of(&public, pads)
    }

    /// True if the field is large enough for a proxy to be given in it.
    pub(crate) fn may_delegate(&self) -> bool {
        self.field.prime_p().num_bits() >= DELEGATION_BITS_MIN
    }

    fn secret_of(&self, public: &BigNumRef, pads: bool) -> Result<Vec<u8>, Refusal> {
        let what = "agreeing on a key";
        let prime = self.field.prime_p();
        let mut last = prime.to_owned().map_err(failed(what))?;
        last.sub_word(1).map_err(failed(what))?;
        let one = BigNum::from_u32(1).map_err(failed(what))?;
        // With these the secret would be known to everyone (NIST SP 800-56A, 5.6.2.3.1).
        if *public <= *one || *public >= *last {
            return Err(Refusal::new(
                Cause::Unacceptable,
                "gsi: the other end's part of the key exchange gives no secret",
            ));
        }
        let secret = power(public, &self.exponent, prime)?;
        match pads {
            true => secret.to_vec_padded(prime.num_bytes()).map_err(failed(what)),
            false => Ok(secret.to_vec()),
        }
    }

    /// The public part, as it is sent.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, Refusal> {
        let what = "writing the key exchange";
        let mut out = self.field.params_to_pem().map_err(failed(what))?;
        out.extend_from_slice(BEFORE);
        out.extend_from_slice(self.public.to_hex_str().map_err(failed(what))?.as_bytes());
        out.extend_from_slice(BEHIND);
        Ok(out)
    }
}

fn power(base: &BigNumRef, exponent: &BigNumRef, prime: &BigNumRef) -> Result<BigNum, Refusal> {
    let what = "agreeing on a key";
    let mut context = BigNumContext::new_secure().map_err(failed(what))?;
    let mut out = BigNum::new_secure().map_err(failed(what))?;
    out.mod_exp(base, exponent, prime, &mut context).map_err(failed(what))?;
    Ok(out)
}

fn read_field(pem: &[u8]) -> Result<Dh<Params>, Refusal> {
    Dh::params_from_pem(pem).map_err(|_| malformed("the field of the key exchange cannot be read"))
}

/// Checks a field that a server has chosen: both `p` and `(p - 1) / 2` are primes, so that the powers of every other number than 1
/// and -1 are half of all numbers at least.
fn check(field: &Dh<Params>) -> Result<(), Refusal> {
    if is_usual(field)? {
        return Ok(());
    }
    let what = "checking the field of the key exchange";
    let unusable = || {
        let what = "gsi: the server wants to agree on a key in a field that is none: it could pass for you elsewhere";
        Err(Refusal::new(Cause::Unacceptable, what))
    };
    let mut context = BigNumContext::new().map_err(failed(what))?;
    let prime = field.prime_p();
    let one = BigNum::from_u32(1).map_err(failed(what))?;
    let mut last = prime.to_owned().map_err(failed(what))?;
    last.sub_word(1).map_err(failed(what))?;
    if *field.generator() <= *one || *field.generator() >= *last {
        return unusable();
    }
    let mut half = BigNum::new().map_err(failed(what))?;
    half.rshift1(prime).map_err(failed(what))?;
    for number in [prime, &half] {
        if !number.is_prime(PRIME_CHECKS, &mut context).map_err(failed(what))? {
            return unusable();
        }
    }
    Ok(())
}

fn is_usual(field: &Dh<Params>) -> Result<bool, Refusal> {
    let prime = BigNum::from_hex_str(USUAL_PRIME).map_err(failed("preparing the key exchange"))?;
    let generator = BigNum::from_u32(USUAL_GENERATOR).map_err(failed("preparing the key exchange"))?;
    Ok(*field.prime_p() == *prime && *field.generator() == *generator)
}

/// The field in PEM and the public value of a part.
fn parts(bytes: &[u8]) -> Result<(&[u8], BigNum), Refusal> {
    let bad = || malformed("the other end's part of the key exchange cannot be read");
    if bytes.len() > PUBLIC_BYTES_MAX {
        return Err(bad());
    }
    let find = |sign: &[u8]| bytes.windows(sign.len()).position(|window| window == sign).ok_or_else(bad);
    let (begin, end) = (find(BEFORE)?, find(BEHIND)?);
    let hex = bytes.get(begin + BEFORE.len()..end).filter(|hex| hex.iter().all(u8::is_ascii_hexdigit));
    let hex =
        hex.filter(|hex| !hex.is_empty()).and_then(|hex| std::str::from_utf8(hex).ok()).ok_or_else(bad)?;
    Ok((&bytes[..begin], BigNum::from_hex_str(hex).map_err(|_| bad())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_have_one_secret() {
        let server = Agreement::new().unwrap();
        for pads in [true, false] {
            let (client, secret) = Agreement::answer(&server.to_bytes().unwrap(), pads).unwrap();
            assert_eq!(server.secret(&client.to_bytes().unwrap(), pads).unwrap(), secret);
            assert!(if pads { secret.len() == 384 } else { secret.len() <= 384 });
        }
        let other = Agreement::new().unwrap();
        assert!(other.to_bytes().unwrap() != server.to_bytes().unwrap());
    }

    #[test]
    fn the_usual_field_has_a_safe_prime() {
        let mut context = BigNumContext::new().unwrap();
        let mut prime = BigNum::from_hex_str(USUAL_PRIME).unwrap();
        assert_eq!(prime.num_bits(), 3072);
        assert!(prime.is_prime(16, &mut context).unwrap());
        prime.sub_word(1).unwrap();
        prime.div_word(2).unwrap();
        assert!(prime.is_prime(16, &mut context).unwrap());
    }

    /// In a field whose numbers repeat soon, the logarithm of what the client signs would be known; and in one of another server
    /// that server would be met.
    #[test]
    fn fields_that_are_none_are_refused() {
        let mut context = BigNumContext::new().unwrap();
        let number = |value: u32| BigNum::from_u32(value).unwrap();
        // (5^1299 - 1) / 4: 5 has the order 1299.
        let mut prime = BigNum::new().unwrap();
        prime.exp(&number(5), &number(1299), &mut context).unwrap();
        prime.sub_word(1).unwrap();
        prime.div_word(4).unwrap();
        let usual = || BigNum::from_hex_str(USUAL_PRIME).unwrap();
        let mut last = usual();
        last.sub_word(1).unwrap();
        let mut even = usual();
        even.sub_word(1).unwrap();
        for (prime, generator) in
            [(prime, number(5)), (usual(), number(1)), (usual(), last), (even, number(5))]
        {
            // The public part is of no account: the field is looked at before.
            let public = number(25);
            let field = Dh::from_pqg(prime, None, generator).unwrap();
            let server = Agreement { field, exponent: number(2), public };
            let refusal = Agreement::answer(&server.to_bytes().unwrap(), true).err().unwrap();
            assert!(refusal.message.contains("a field that is none"), "{refusal}");
        }
        let other = Agreement::within(Dh::generate_params(512, 5).unwrap()).unwrap();
        let (client, _) = Agreement::answer(&other.to_bytes().unwrap(), true).unwrap();
        assert!(!client.may_delegate());
        let refusal = Agreement::new().unwrap().secret(&client.to_bytes().unwrap(), true).unwrap_err();
        assert!(refusal.message.contains("another field"), "{refusal}");
    }

    /// As servers before 5.6 have it, whose field has 512 bits.
    #[test]
    fn other_fields_work() {
        let field = Dh::generate_params(512, 5).unwrap();
        let server = Agreement::within(field).unwrap();
        let (client, secret) = Agreement::answer(&server.to_bytes().unwrap(), true).unwrap();
        assert_eq!(server.secret(&client.to_bytes().unwrap(), true).unwrap(), secret);
    }

    #[test]
    fn parts_that_give_no_secret_are_refused() {
        let server = Agreement::new().unwrap();
        let whole = server.to_bytes().unwrap();
        let end = whole.windows(BEFORE.len()).position(|window| window == BEFORE).unwrap();
        let with = |hex: &str| [&whole[..end], BEFORE, hex.as_bytes(), BEHIND].concat();
        let mut last = BigNum::from_hex_str(USUAL_PRIME).unwrap();
        last.sub_word(1).unwrap();
        let last = last.to_hex_str().unwrap().to_string();
        for bad in ["00", "01", &last, USUAL_PRIME, "", "xyz", "-1"] {
            assert!(server.secret(&with(bad), true).is_err(), "{bad}");
            assert!(Agreement::answer(&with(bad), true).is_err(), "{bad}");
        }
        assert!(server.secret(&with("02"), true).is_ok());
        for bad in [&b""[..], BEFORE, &[BEHIND, BEFORE].concat(), &[BEFORE, b"02", BEHIND].concat()] {
            assert!(Agreement::answer(bad, true).is_err());
        }
    }
}

//! Certificates with one byte changed before they were signed: whatever of them we believe, OpenSSL believes as well.

use gridlane_auth::make::*;
use x509_parser::extensions::ParsedExtension;

use crate::world::*;

/// Number of accepted chains that OpenSSL is asked about.
const SHOWN: usize = 150;

fn element(tag: u8, contents: &[u8]) -> Vec<u8> {
    let len = contents.len();
    let head = match len {
        0..=0x7f => vec![tag, len as u8],
        0x80..=0xff => vec![tag, 0x81, len as u8],
        _ => vec![tag, 0x82, (len >> 8) as u8, len as u8],
    };
    [head, contents.to_vec()].concat()
}

/// The signed part of a certificate.
fn signed_part(certificate: &[u8]) -> Vec<u8> {
    let (_, read) = x509_parser::parse_x509_certificate(certificate).unwrap();
    read.tbs_certificate.as_ref().to_vec()
}

fn sign(contents: &[u8], key: usize) -> Vec<u8> {
    let algorithm = [0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
    let signature = [&[0], &keys()[key].sign(contents, random()).unwrap()[..]].concat();
    element(0x30, &[contents, &algorithm, &element(3, &signature)].concat())
}

/// The same numbers in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// True if a certificate says of its issuer's key what that does not say of itself. Of a proxy we believe that, as XRootD does,
/// whose clients make such proxies; OpenSSL finds no issuer then. The signature is looked at all the same.
fn names_another_key(world: &World) -> bool {
    let key_ids = |der: &[u8]| {
        let (_, read) = x509_parser::parse_x509_certificate(der).unwrap();
        let (mut own, mut issuers) = (None, None);
        for extension in read.extensions() {
            match extension.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(id) => own = Some(id.0.to_vec()),
                ParsedExtension::AuthorityKeyIdentifier(said) => {
                    issuers = said.key_identifier.as_ref().map(|id| id.0.to_vec());
                }
                _ => {}
            }
        }
        (own, issuers)
    };
    world.presented.windows(2).any(|pair| {
        let ((_, said), (own, _)) = (key_ids(&pair[0]), key_ids(&pair[1]));
        matches!((said, own), (Some(said), Some(own)) if said != own)
    })
}

#[test]
fn what_we_believe_of_changed_certificates() {
    let mut parts = parts(1, 2);
    let names =
        [AlternativeName::Dns("node.example.org".into()), AlternativeName::Email("ada@example.org".into())];
    parts[2].set(Extension::alternative_names(&names));
    parts[3].set(Extension::proxy(&ProxyPolicy::Limited, Some(2)));
    let host = element(0x30, &element(0x82, b"example.org"));
    let constraints = element(0x30, &element(0xa0, &host));
    parts[1].set(Extension::raw(&[2, 5, 29, 30], true, constraints));
    let good = World::of(&parts);
    let keys: Vec<Vec<u8>> = parts.iter().map(|part| part.contents.public_key.clone()).collect();

    let mut numbers = Numbers(7);
    let mut believed = Vec::new();
    for turn in 0.. {
        if believed.len() == SHOWN {
            break;
        }
        let level = 1 + turn % (parts.len() - 1);
        let mut world = good.clone();
        let index = parts.len() - 1 - level;
        let mut contents = signed_part(&world.presented[index]);
        let at = numbers.below(contents.len());
        let before = contents[at];
        contents[at] = match numbers.below(3) {
            0 => numbers.below(256) as u8,
            1 => before ^ 1 << numbers.below(8),
            _ => before.wrapping_add(1),
        };
        // The leaf's key is not used by us; whether the peer has it is seen in the handshake.
        let key = contents.windows(keys[level].len()).position(|bytes| bytes == keys[level]);
        if contents[at] == before || key.is_none() {
            continue;
        }
        let what = format!("level {level}, byte {at}: {before:#04x} is {:#04x}", contents[at]);
        world.presented[index] = sign(&contents, parts[level].signer);
        if world.by_us().is_ok() && !names_another_key(&world) {
            believed.push((what, world));
        }
    }
    let wrong = believed.iter().filter_map(|(what, world)| {
        let dir = tempfile::TempDir::new().unwrap();
        let (is_good, said) = world.by_openssl(dir.path());
        (!is_good).then(|| format!("{what}: {said}"))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

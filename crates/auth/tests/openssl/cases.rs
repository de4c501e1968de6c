//! The chains.

use gridlane_auth::make::*;

use crate::authorities::{authorities, constraints, lists, ways};
use crate::proxies::{proxy_depth, proxy_languages, proxy_names, proxy_rules};
use crate::world::*;

/// A chain, and what has to come out.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) world: World,
    /// Good, or what has to be in the words of the refusal.
    pub(crate) expected: Result<(), &'static str>,
    /// Its owner, if it is good.
    pub(crate) dn: &'static str,
}

pub(crate) type Expected = Result<(), &'static str>;

#[derive(Default)]
pub(crate) struct Cases(Vec<Case>);

impl Cases {
    pub(crate) fn add(&mut self, name: impl Into<String>, world: World, expected: Expected) {
        self.0.push(Case { name: name.into(), world, expected, dn: USER });
    }

    /// The owner in the last case, if it is not that of all the others.
    pub(crate) fn last_dn(&mut self, dn: &'static str) {
        self.0.last_mut().unwrap().dn = dn;
    }

    /// A root, so many authorities and proxies, with something changed before they are signed.
    pub(crate) fn changed(
        &mut self,
        name: impl Into<String>,
        (intermediates, proxies): (usize, usize),
        expected: Expected,
        change: impl FnOnce(&mut Vec<Part>),
    ) {
        let mut parts = parts(intermediates, proxies);
        change(&mut parts);
        self.add(name, World::of(&parts), expected);
    }
}

pub(crate) const UNKNOWN: &[u64] = &[1, 3, 6, 1, 4, 1, 99999, 1];
pub(crate) const PROXY_INFO: &[u64] = &[1, 3, 6, 1, 5, 5, 7, 1, 14];
pub(crate) const BASIC: &[u64] = &[2, 5, 29, 19];
pub(crate) const KEY_USAGE: &[u64] = &[2, 5, 29, 15];
pub(crate) const EXTENDED: &[u64] = &[2, 5, 29, 37];
pub(crate) const AUTHORITY_KEY: &[u64] = &[2, 5, 29, 35];
pub(crate) const SUBJECT_KEY: &[u64] = &[2, 5, 29, 14];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Cases::default();
    for shape in [(0, 0), (0, 1), (0, 3), (1, 0), (2, 0), (1, 1), (2, 2)] {
        every_level(&mut cases, shape);
    }
    order(&mut cases);
    times(&mut cases);
    proxy_depth(&mut cases);
    proxy_languages(&mut cases);
    proxy_names(&mut cases);
    proxy_rules(&mut cases);
    end_entities(&mut cases);
    authorities(&mut cases);
    constraints(&mut cases);
    lists(&mut cases);
    ways(&mut cases);
    compared_names(&mut cases);
    algorithms(&mut cases);
    cases.0
}

/// Faults at each level of a chain.
fn every_level(cases: &mut Cases, shape: (usize, usize)) {
    let (intermediates, proxies) = shape;
    let title = |what: &str, level: usize| format!("{intermediates}+{proxies}: {what} at {level}");
    cases.changed(format!("{intermediates}+{proxies}: good"), shape, Ok(()), |_| ());
    for level in 0..=intermediates + 1 + proxies {
        cases.changed(title("expired", level), shape, Err("expired 2027-01-15T07:59:59Z"), |parts| {
            parts[level].contents.validity.not_after_s = NOW_S - 1;
        });
        cases.changed(
            title("not yet valid", level),
            shape,
            Err("is not valid before 2027-01-15T08:00:01Z"),
            |parts| {
                parts[level].contents.validity.not_before_s = NOW_S + 1;
            },
        );
        // The signature of a root proves nothing, and is not looked at.
        let expected = if level == 0 { Ok(()) } else { Err("the signature is wrong") };
        cases.changed(title("wrong key", level), shape, expected, |parts| parts[level].signer = STRANGER);
        cases.changed(
            title("unknown critical extension", level),
            shape,
            Err("1.3.6.1.4.1.99999.1"),
            |parts| {
                parts[level].set(Extension::raw(UNKNOWN, true, vec![5, 0]));
            },
        );
        if level > 0 && level < intermediates + 1 + proxies {
            let mut world = World::of(&parts(intermediates, proxies));
            let from_leaf = intermediates + 1 + proxies - level;
            world.presented.remove(from_leaf);
            let words = if level > intermediates { "was not sent along" } else { "is not trusted here" };
            cases.add(title("missing", level), world, Err(words));
        }
    }
}

fn order(cases: &mut Cases) {
    let full = World::of(&parts(2, 3));
    for (name, order) in
        [("turned round", [5, 4, 3, 2, 1]), ("mixed", [3, 1, 5, 2, 4]), ("mixed again", [2, 5, 1, 4, 3])]
    {
        let mut world = full.clone();
        world.presented = [0].iter().chain(&order).map(|index| full.presented[*index].clone()).collect();
        cases.add(format!("order: {name}"), world, Ok(()));
    }
    let mut world = full.clone();
    world.presented.push(world.trusted[0].clone());
    cases.add("order: with the root", world, Ok(()));
    let mut world = full.clone();
    world.presented.extend(full.presented[1..].iter().cloned());
    cases.add("order: everything twice", world, Ok(()));
    let mut world = full.clone();
    let other = name("/DC=org/DC=example/CN=Somebody else");
    world.presented.insert(1, authority(other.clone(), STRANGER, other, STRANGER, 9).make());
    cases.add("order: with somebody else", world, Ok(()));
    for trusted in 1..=2 {
        let mut world = full.clone();
        for _ in 0..trusted {
            world.trusted.push(world.presented.pop().unwrap());
        }
        cases.add(format!("order: {trusted} authorities in the directory"), world, Ok(()));
    }
    let mut world = full.clone();
    world.trusted.extend(full.presented[4..].iter().cloned());
    cases.add("order: authorities in the directory and presented", world, Ok(()));
    let mut world = full.clone();
    world.trusted = vec![full.presented[4].clone()];
    cases.add("order: an authority trusted, its root not", world, Err("is not trusted here"));
    let mut world = full.clone();
    world.presented.push(world.trusted.remove(0));
    cases.add("order: the root presented and not trusted", world, Err("is not trusted here"));
    let mut world = full.clone();
    world.trusted.clear();
    cases.add("order: nobody trusted", world, Err("is not trusted here"));
}

fn times(cases: &mut Cases) {
    for (name, validity, expected) in [
        ("the last second", Validity { not_before_s: NOW_S - 9, not_after_s: NOW_S + 1 }, Ok(())),
        ("the second of the end", Validity { not_before_s: NOW_S - 9, not_after_s: NOW_S }, Err("expired")),
        ("the second of the begin", Validity { not_before_s: NOW_S, not_after_s: NOW_S + 1 }, Ok(())),
        ("beyond 2050", Validity { not_before_s: NOW_S - 9, not_after_s: 3_000_000_000 }, Ok(())),
        (
            "the last year there is",
            Validity { not_before_s: NOW_S - 9, not_after_s: 253_402_300_799 },
            Ok(()),
        ),
        ("before 1970", Validity { not_before_s: -500_000_000, not_after_s: NOW_S + 9 }, Ok(())),
        ("ended before 1970", Validity { not_before_s: -500_000_000, not_after_s: -1 }, Err("expired")),
        (
            "ends before it begins",
            Validity { not_before_s: NOW_S + 9, not_after_s: NOW_S - 9 },
            Err("not valid before"),
        ),
    ] {
        cases.changed(format!("times: {name}"), (0, 1), expected, |parts| {
            parts[2].contents.validity = validity
        });
        cases.changed(format!("times of the user: {name}"), (0, 0), expected, |parts| {
            parts[1].contents.validity = validity
        });
    }
    cases.changed("times: a proxy that outlives its user", (0, 1), Ok(()), |parts| {
        parts[2].contents.validity.not_after_s = NOW_S + 1000 * HOUR_S;
    });
}

fn end_entities(cases: &mut Cases) {
    for (title, oids, expected) in [
        ("servers", vec![&[1, 3, 6, 1, 5, 5, 7, 3, 1][..]], Err("extendedKeyUsage")),
        ("any use", vec![&[2, 5, 29, 37, 0]], Err("extendedKeyUsage")),
        ("mail", vec![&[1, 3, 6, 1, 5, 5, 7, 3, 4]], Err("extendedKeyUsage")),
        ("servers and clients", vec![&[1, 3, 6, 1, 5, 5, 7, 3, 1], &[1, 3, 6, 1, 5, 5, 7, 3, 2]], Ok(())),
    ] {
        for proxies in [0, 1] {
            cases.changed(
                format!("end entity: for {title}, {proxies} proxies"),
                (0, proxies),
                expected,
                |parts| {
                    parts[1].set(Extension::extended_key_usage(&oids));
                },
            );
        }
    }
    cases.changed("end entity: for nothing in particular", (0, 1), Ok(()), |parts| parts[1].remove(EXTENDED));
    cases.changed("end entity: without extensions", (0, 0), Ok(()), |parts| {
        parts[1].contents.extensions.clear()
    });
    cases.changed("end entity: without extensions, with a proxy", (0, 1), Ok(()), |parts| {
        parts[1].contents.extensions.clear();
    });
    cases.changed("end entity: key for encryption only", (0, 0), Err("keyUsage"), |parts| {
        parts[1].set(Extension::key_usage(KeyUsage::KEY_ENCIPHERMENT));
    });
    cases.changed("end entity: key for agreement only", (0, 0), Err("keyUsage"), |parts| {
        parts[1].set(Extension::key_usage(KeyUsage(0x0800)));
    });
    cases.changed("end entity: is an authority", (0, 0), Err("of an authority"), |parts| {
        parts[1].set(Extension::basic_constraints(true, None));
        parts[1].set(Extension::key_usage(KeyUsage(0x8400)));
    });
    cases.changed("end entity: unknown extension", (0, 1), Ok(()), |parts| {
        parts[1].set(Extension::raw(UNKNOWN, false, vec![5, 0]));
    });
    cases.changed("end entity: alternative names", (0, 1), Ok(()), |parts| {
        let names =
            [AlternativeName::Dns("a.example.org".into()), AlternativeName::Email("a@example.org".into())];
        parts[1].set(Extension::alternative_names(&names));
    });
    cases.changed("end entity: the same extension twice", (0, 0), Err("twice"), |parts| {
        parts[1].contents.extensions.push(Extension::basic_constraints(false, None));
    });
    cases.changed("end entity: key usage that cannot be read", (0, 0), Err("cannot be read"), |parts| {
        parts[1].set(Extension::raw(KEY_USAGE, true, vec![4, 1, 7]));
    });
    cases.changed("end entity: policies, critical", (0, 1), Ok(()), |parts| {
        let policies = vec![0x30, 6, 0x30, 4, 6, 2, 0x2a, 3];
        parts[1].set(Extension::raw(&[2, 5, 29, 32], true, policies));
    });
    for (bytes, expected) in [(20, Ok(())), (21, Err("serial number"))] {
        cases.changed(format!("end entity: serial number of {bytes} bytes"), (0, 0), expected, |parts| {
            parts[1].contents.serial = vec![0x7f; bytes];
        });
    }
    cases.changed("end entity: serial number of 20 bytes and one for the sign", (0, 0), Ok(()), |parts| {
        parts[1].contents.serial = vec![0xff; 20];
    });
    cases.changed("end entity: serial number zero", (0, 0), Ok(()), |parts| {
        parts[1].contents.serial = vec![0]
    });
    let own = part(name(USER), 7, name(USER), 7, 1);
    let world = World { presented: vec![own.make()], ..World::of(&parts(0, 0)) };
    cases.add("end entity: signed for itself", world.clone(), Err("is self-signed"));
    let world = World { trusted: vec![own.make()], ..world };
    cases.add("end entity: signed for itself, and in the directory", world, Err("is self-signed"));
}

fn compared_names(cases: &mut Cases) {
    let root = "/DC=org/DC=example/CN=Root CA";
    for (title, issuer, expected) in [
        ("other case", name("/DC=ORG/DC=example/CN=root ca"), Ok(())),
        ("more spaces", name("/DC=org/DC=example/CN=Root   CA "), Ok(())),
        ("another kind of string", Name::parse(root, Text::Printable).unwrap(), Ok(())),
        ("no space", name("/DC=org/DC=example/CN=RootCA"), Err("is not trusted here")),
        ("other order", name("/DC=example/DC=org/CN=Root CA"), Err("is not trusted here")),
        ("other kind of part", name("/DC=org/O=example/CN=Root CA"), Err("is not trusted here")),
        ("one more", name("/DC=org/DC=example/CN=Root CA/CN=x"), Err("is not trusted here")),
        ("one less", name("/DC=org/DC=example"), Err("is not trusted here")),
        ("accents in other case", name("/DC=org/DC=example/CN=Röot CA"), Err("is not trusted here")),
    ] {
        cases.changed(format!("names: {title}"), (0, 1), expected, |parts| parts[1].contents.issuer = issuer);
    }
    cases.changed("names: accents", (0, 1), Ok(()), |parts| {
        parts[0].contents.subject = name("/DC=org/CN=Autorité É");
        parts[0].contents.issuer = name("/DC=org/CN=Autorité É");
        parts[1].contents.issuer = name("/DC=org/CN=AUTORITé É");
    });
}

fn algorithms(cases: &mut Cases) {
    for (title, key) in [("P-384", P384), ("RSA", RSA), ("Ed25519", ED25519)] {
        for level in 0..4 {
            cases.changed(format!("algorithms: {title} at {level}"), (1, 1), Ok(()), |parts| {
                parts[level].key = key;
                parts[level].contents.public_key = keys()[key].public_key();
                parts[level].remove(SUBJECT_KEY);
                if level == 0 {
                    parts[0].signer = key;
                }
                if let Some(below) = parts.get_mut(level + 1) {
                    below.signer = key;
                    below.remove(AUTHORITY_KEY);
                }
            });
        }
    }
    // What our own tools do not sign, OpenSSL does: a root, and a user below it.
    let dir = tempfile::TempDir::new().unwrap();
    let path = Some(dir.path());
    let make = |words: &str| {
        openssl(&words.split(' ').collect::<Vec<_>>(), path);
    };
    make("genrsa -out rsa 2048");
    make("genrsa -out short 1024");
    make("ecparam -genkey -name secp521r1 -out p521");
    make("ecparam -genkey -name prime256v1 -out p256");
    make("ecparam -genkey -name secp256k1 -out koblitz");
    let unacceptable = Err("is not accepted");
    for (title, root_key, key, options, expected) in [
        ("RSA with SHA-256", "rsa", "p256", "-sha256", Ok(())),
        ("RSA with SHA-384", "rsa", "p256", "-sha384", Ok(())),
        ("RSA with SHA-512", "rsa", "p256", "-sha512", Ok(())),
        ("RSA with SHA-1", "rsa", "p256", "-sha1", unacceptable),
        ("RSA with MD5", "rsa", "p256", "-md5", unacceptable),
        ("RSA with SHA-224", "rsa", "p256", "-sha224", unacceptable),
        (
            "PSS with SHA-256",
            "rsa",
            "p256",
            "-sha256 -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:32",
            Ok(()),
        ),
        (
            "PSS with SHA-384",
            "rsa",
            "p256",
            "-sha384 -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:48",
            Ok(()),
        ),
        (
            "PSS with SHA-512",
            "rsa",
            "p256",
            "-sha512 -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:64",
            Ok(()),
        ),
        (
            "PSS with a short salt",
            "rsa",
            "p256",
            "-sha256 -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:20",
            unacceptable,
        ),
        (
            "PSS with two digests",
            "rsa",
            "p256",
            "-sha256 -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:32 -sigopt rsa_mgf1_md:sha512",
            unacceptable,
        ),
        ("a short key of the user", "rsa", "short", "-sha256", Err("an RSA key of 1024 bits")),
        ("a short key of the root", "short", "p256", "-sha256", Err("an RSA key of 1024 bits")),
        ("ECDSA with SHA-1", "p256", "rsa", "-sha1", unacceptable),
        ("ECDSA with SHA-384", "p256", "rsa", "-sha384", Ok(())),
        ("ECDSA with SHA-512", "p256", "rsa", "-sha512", unacceptable),
        ("P-521 of the root", "p521", "p256", "-sha384", Err("other than P-256 and P-384")),
        ("P-521 of the user", "p256", "p521", "-sha256", Err("other than P-256 and P-384")),
        ("another curve", "p256", "koblitz", "-sha256", Err("other than P-256 and P-384")),
    ] {
        make(&format!("req -x509 -new -key {root_key} -subj /CN=Root -days 30000 -sha256 -out root.pem"));
        make(&format!("req -new -key {key} -subj {} -out request", USER.replace(' ', "_")));
        make(&format!(
            "x509 -req -in request -CA root.pem -CAkey {root_key} -days 30000 {options} -out user.pem"
        ));
        let read = |file: &str| {
            let text = std::fs::read(dir.path().join(file)).unwrap();
            pem::certificates(&text).unwrap().remove(0)
        };
        let world = World {
            presented: vec![read("user.pem")],
            trusted: vec![read("root.pem")],
            lists: Vec::new(),
            at_s: NOW_S,
        };
        cases.add(format!("algorithms: {title}"), world, expected);
        cases.last_dn("/DC=org/DC=example/OU=people/CN=Ada_Lovelace");
    }
}

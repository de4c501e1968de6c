//! Faults of authorities, of their policies and revocation lists, and of the chains to them.

use gridlane_auth::make::*;

use crate::cases::*;
use crate::world::*;

pub(crate) fn authorities(cases: &mut Cases) {
    for (intermediates, len, expected) in [
        (0, 0, Ok(())),
        (1, 0, Err("authorities below it, and it allows 0")),
        (1, 1, Ok(())),
        (2, 1, Err("authorities below it, and it allows 1")),
        (2, 2, Ok(())),
    ] {
        for proxies in [0, 3] {
            let title = format!("authority: {intermediates} where {len} may be, {proxies} proxies");
            cases.changed(title, (intermediates, proxies), expected, |parts| {
                parts[0].set(Extension::basic_constraints(true, Some(len)));
            });
        }
    }
    cases.changed("authority: the last may have none below", (2, 1), Ok(()), |parts| {
        parts[2].set(Extension::basic_constraints(true, Some(0)));
    });
    cases.changed("authority: one in the middle may have none below", (2, 1), Err("allows 0"), |parts| {
        parts[1].set(Extension::basic_constraints(true, Some(0)));
    });
    cases.changed("authority: one that changed its key does not count", (1, 0), Ok(()), |parts| {
        // The root, with a new key, by the old one.
        let root = parts[0].contents.subject.clone();
        parts[0].set(Extension::basic_constraints(true, Some(0)));
        parts[1].contents.subject = root.clone();
        parts[2].contents.issuer = root;
    });
    for level in [1, 2] {
        cases.changed(
            format!("authority: {level} says that it is none"),
            (2, 1),
            Err("is no authority"),
            |parts| {
                parts[level].set(Extension::basic_constraints(false, None));
            },
        );
        cases.changed(format!("authority: {level} says nothing"), (2, 1), Err("is no authority"), |parts| {
            parts[level].remove(BASIC);
            parts[level].remove(KEY_USAGE);
        });
        cases.changed(
            format!("authority: {level} says it by key usage only"),
            (2, 1),
            Err("is no authority"),
            |parts| {
                parts[level].remove(BASIC);
            },
        );
    }
    for level in [0, 1, 2] {
        cases.changed(
            format!("authority: key of {level} for lists only"),
            (2, 1),
            Err("keyUsage"),
            |parts| {
                parts[level].set(Extension::key_usage(KeyUsage::CRL_SIGN));
            },
        );
        cases.changed(format!("authority: no key usage at {level}"), (2, 1), Ok(()), |parts| {
            parts[level].remove(KEY_USAGE)
        });
        cases.changed(
            format!("authority: {level} for servers only"),
            (2, 1),
            Err("extendedKeyUsage"),
            |parts| {
                parts[level].set(Extension::extended_key_usage(&[&[1, 3, 6, 1, 5, 5, 7, 3, 1]]));
            },
        );
        cases.changed(format!("authority: no key identifiers at {level}"), (2, 1), Ok(()), |parts| {
            parts[level].remove(AUTHORITY_KEY);
            parts[level].remove(SUBJECT_KEY);
        });
    }
    cases.changed("authority: a root of version 1", (0, 1), Ok(()), |parts| {
        parts[0].contents.extensions.clear()
    });
    cases.changed("authority: version 1 in the middle", (1, 1), Err("is no authority"), |parts| {
        parts[1].contents.extensions.clear();
    });
    cases.changed("authority: a root that says it by key usage only", (0, 1), Ok(()), |parts| {
        parts[0].remove(BASIC)
    });
    cases.changed("authority: a root that is none", (0, 1), Err("is not trusted here"), |parts| {
        parts[0].set(Extension::basic_constraints(false, None));
    });
    cases.changed("authority: asks for policies", (1, 1), Err("2.5.29.36"), |parts| {
        parts[1].set(Extension::raw(&[2, 5, 29, 36], true, vec![0x30, 3, 0x80, 1, 0]));
    });
    cases.changed("authority: does not ask for policies", (1, 1), Ok(()), |parts| {
        parts[1].set(Extension::raw(&[2, 5, 29, 54], true, vec![2, 1, 0]));
    });
    cases.changed(
        "authority: names another key of its issuer",
        (1, 1),
        Err("is not trusted here"),
        |parts| {
            parts[1].set(Extension::authority_key_id(&[7; 20]));
        },
    );
}

/// `NameConstraints` with one tree: 0 permitted, 1 excluded.
fn constraint(which: u8, kind: u8, base: &[u8]) -> Extension {
    let wrap = |tag: u8, contents: &[u8]| [&[tag, contents.len() as u8], contents].concat();
    let trees = wrap(0xa0 | which, &wrap(0x30, &wrap(kind, base)));
    Extension::raw(&[2, 5, 29, 30], true, wrap(0x30, &trees))
}

pub(crate) fn constraints(cases: &mut Cases) {
    let dn = |text: &str| name(text).to_der();
    let names = [
        AlternativeName::Dns("node.example.org".into()),
        AlternativeName::Email("ada@example.org".into()),
        AlternativeName::Ip("192.0.2.7".parse().unwrap()),
        AlternativeName::Uri("https://example.org/ada".into()),
    ];
    let no = Err("nameConstraints");
    let (directory, dns, mail, address, uri) = (0xa4, 0x82, 0x81, 0x87, 0x86);
    for (title, which, kind, base, expected) in [
        ("name permitted", 0, directory, dn("/DC=org/DC=example/OU=people"), Ok(())),
        ("name permitted, other case", 0, directory, dn("/DC=ORG/DC=example/OU=People"), Ok(())),
        ("other name permitted", 0, directory, dn("/DC=org/DC=example/OU=hosts"), no),
        ("longer name permitted", 0, directory, dn(&format!("{USER}/CN=1")), no),
        ("name excluded", 1, directory, dn("/DC=org/DC=example/OU=people"), no),
        ("other name excluded", 1, directory, dn("/DC=org/DC=example/OU=hosts"), Ok(())),
        ("host permitted", 0, dns, b"example.org".to_vec(), Ok(())),
        ("other host permitted", 0, dns, b"xample.org".to_vec(), no),
        ("host excluded", 1, dns, b"EXAMPLE.org".to_vec(), no),
        ("other host excluded", 1, dns, b"example.com".to_vec(), Ok(())),
        ("mail permitted", 0, mail, b"example.org".to_vec(), Ok(())),
        ("mail of one permitted", 0, mail, b"ada@example.org".to_vec(), Ok(())),
        ("mail of another permitted", 0, mail, b"bob@example.org".to_vec(), no),
        ("mail excluded", 1, mail, b"example.org".to_vec(), no),
        ("mail below permitted", 0, mail, b".example.org".to_vec(), no),
        ("address permitted", 0, address, vec![192, 0, 2, 0, 255, 255, 255, 0], Ok(())),
        ("other address permitted", 0, address, vec![192, 0, 3, 0, 255, 255, 255, 0], no),
        ("address excluded", 1, address, vec![192, 0, 2, 7, 255, 255, 255, 255], no),
        ("URI excluded", 1, uri, b"example.org".to_vec(), no),
        ("other URI permitted", 0, uri, b"example.com".to_vec(), no),
    ] {
        for level in [0, 1] {
            cases.changed(format!("constraint at {level}: {title}"), (1, 1), expected, |parts| {
                let is_directory = kind == directory;
                if !is_directory {
                    parts[2].set(Extension::alternative_names(&names));
                }
                // Authorities have names as well.
                if !(is_directory && level == 0 && which == 0) {
                    parts[level].set(constraint(which, kind, &base));
                } else {
                    parts[1].contents.subject = name("/DC=org/DC=example/OU=people/CN=Authority");
                    parts[2].contents.issuer = name("/DC=org/DC=example/OU=people/CN=Authority");
                    parts[0].set(constraint(which, kind, &base));
                }
            });
        }
    }
    cases.changed("constraint: the name of an authority", (1, 0), no, |parts| {
        parts[0].set(constraint(0, directory, &dn("/DC=org/DC=example/OU=people")));
    });
    cases.changed("constraint: mail in the subject", (0, 0), no, |parts| {
        parts[0].set(constraint(0, mail, b"example.com"));
        parts[1].contents.subject = name(&format!("{USER}/emailAddress=ada@example.org"));
    });
    cases.changed("constraint: a common name that looks like a host", (0, 0), Ok(()), |parts| {
        parts[0].set(constraint(0, dns, b"example.com"));
        parts[1].contents.subject = name("/DC=org/CN=node.example.org");
    });
    cases.last_dn("/DC=org/CN=node.example.org");
    cases.changed("constraint: cannot be read", (0, 0), Err("is not trusted here"), |parts| {
        parts[0].set(Extension::raw(&[2, 5, 29, 30], true, vec![0x30, 2, 0xa2, 0]));
    });
}

pub(crate) fn lists(cases: &mut Cases) {
    let good = Validity { not_before_s: NOW_S - HOUR_S, not_after_s: NOW_S + HOUR_S };
    let over = Validity { not_before_s: NOW_S - 2 * HOUR_S, not_after_s: NOW_S - HOUR_S };
    let early = Validity { not_before_s: NOW_S + HOUR_S, not_after_s: NOW_S + 2 * HOUR_S };
    let root = name("/DC=org/DC=example/CN=Root CA");
    let first = name("/DC=org/DC=example/CN=Authority 1");
    let (user, authority_1) = (0x70, 2);
    for shape in [(1, 0), (1, 1), (1, 2)] {
        let mut add = |title: &str, expected, lists: Vec<Vec<u8>>| {
            let world = World { lists, ..World::of(&parts(shape.0, shape.1)) };
            cases.add(format!("lists, {} proxies: {title}", shape.1), world, expected);
        };
        let of_root = |revoked: &[u8]| list(&root, 0, revoked, good);
        let of_first = |revoked: &[u8]| list(&first, 1, revoked, good);
        add("empty", Ok(()), vec![of_root(&[]), of_first(&[])]);
        add("others", Ok(()), vec![of_root(&[user, 9]), of_first(&[authority_1, 1, 9])]);
        add(
            "the user",
            Err(
                "the certificate of /DC=org/DC=example/OU=people/CN=Ada Lovelace was revoked 2027-01-15T07:00:00Z",
            ),
            vec![of_root(&[]), of_first(&[9, user])],
        );
        add(
            "the authority",
            Err("the certificate of the authority /DC=org/DC=example/CN=Authority 1 was revoked"),
            vec![of_root(&[authority_1]), of_first(&[])],
        );
        add("the root", Err("was revoked"), vec![of_root(&[1]), of_first(&[])]);
        add("a proxy", Ok(()), vec![of_root(&[]), of_first(&[101])]);
        add(
            "over its time",
            Err("the revocation list of /DC=org/DC=example/CN=Authority 1 expired 2027-01-15T07:00:00Z"),
            vec![of_root(&[]), list(&first, 1, &[], over)],
        );
        add(
            "over its time, the root's",
            Err("the revocation list of /DC=org/DC=example/CN=Root CA expired"),
            vec![list(&root, 0, &[], over), of_first(&[])],
        );
        add("before its time", Err("is not valid before"), vec![of_root(&[]), list(&first, 1, &[], early)]);
        add(
            "over its time, and another",
            Ok(()),
            vec![of_root(&[]), list(&first, 1, &[], over), of_first(&[])],
        );
        add(
            "over its time, with the user, and another",
            Err("was revoked"),
            vec![of_root(&[]), list(&first, 1, &[user], over), of_first(&[user])],
        );
        add("by another key", Ok(()), vec![of_root(&[]), list(&first, STRANGER, &[user], good)]);
        add(
            "by another key, and the right one",
            Err("was revoked"),
            vec![of_root(&[]), list(&first, STRANGER, &[], good), of_first(&[user])],
        );
        add("none of the user's authority", Ok(()), vec![of_root(&[])]);
    }
    let mut parts = parts(1, 1);
    parts[1].set(Extension::key_usage(KeyUsage::CERTIFICATE_SIGN));
    let of_root = list(&root, 0, &[], good);
    let world = World { lists: vec![of_root.clone(), list(&first, 1, &[user], good)], ..World::of(&parts) };
    cases.add("lists: by a key that is not for lists, the user", world, Err("was revoked"));
    let world = World { lists: vec![of_root, list(&first, 1, &[], good)], ..World::of(&parts) };
    cases.add("lists: by a key that is not for lists", world, Ok(()));
    let special = |oid: &[u64], is_critical, der: &[u8]| {
        let list = RevocationList {
            issuer: root.clone(),
            validity: good,
            revoked: vec![Revoked { serial: vec![0x11, user], revoked_s: NOW_S - 9 }],
            extensions: vec![
                Extension::raw(&[2, 5, 29, 20], false, vec![2, 1, 1]),
                Extension::raw(oid, is_critical, der.to_vec()),
            ],
        };
        let made = list.sign(&keys()[0], random()).unwrap();
        World { lists: vec![made], ..World::of(&crate::world::parts(0, 1)) }
    };
    cases.add("lists: unknown extension", special(UNKNOWN, false, &[5, 0]), Err("was revoked"));
    cases.add("lists: unknown critical extension", special(UNKNOWN, true, &[5, 0]), Ok(()));
    cases.add("lists: changes only", special(&[2, 5, 29, 27], true, &[2, 1, 1]), Err("was revoked"));
    cases.add("lists: of others", special(&[2, 5, 29, 28], true, &[0x30, 3, 0x84, 1, 0xff]), Ok(()));
    cases.add(
        "lists: of users only",
        special(&[2, 5, 29, 28], true, &[0x30, 3, 0x81, 1, 0xff]),
        Err("was revoked"),
    );
}

/// More than one way to a root, and ways that lead nowhere.
pub(crate) fn ways(cases: &mut Cases) {
    let root = |text: &str, key, serial| authority(name(text), key, name(text), key, serial);
    let first = "/DC=org/DC=example/CN=Authority 1";
    let cross = |issuer: &str, signer, serial| authority(name(first), 1, name(issuer), signer, serial).make();
    let (one, two) = ("/DC=org/DC=example/CN=Root CA", "/DC=org/DC=example/CN=Other root");
    let below = World::of(&parts(1, 1));
    let crossed =
        || vec![below.presented[0].clone(), below.presented[1].clone(), cross(one, 0, 2), cross(two, 5, 3)];
    for (title, trusted, expected) in [
        ("both", vec![root(one, 0, 1).make(), root(two, 5, 1).make()], Ok(())),
        ("the first", vec![root(one, 0, 1).make()], Ok(())),
        ("the other", vec![root(two, 5, 1).make()], Ok(())),
        ("neither", vec![root("/CN=Third", 6, 1).make()], Err("is not trusted here")),
    ] {
        let world = World { presented: crossed(), trusted: trusted.clone(), ..below.clone() };
        cases.add(format!("ways: cross-signed, {title} trusted"), world, expected);
        let mut world = World { presented: crossed(), trusted, ..below.clone() };
        world.presented[2..].reverse();
        cases.add(format!("ways: cross-signed the other way, {title} trusted"), world, expected);
    }
    // Two authorities that sign each other.
    let (a, b) = ("/DC=org/DC=example/CN=Authority 1", "/DC=org/DC=example/CN=Authority B");
    let circle =
        vec![authority(name(a), 1, name(b), 2, 5).make(), authority(name(b), 2, name(a), 1, 6).make()];
    let mut world = below.clone();
    world.presented.truncate(2);
    world.presented.extend(circle.clone());
    cases.add("ways: a circle", world.clone(), Err("is not trusted here"));
    world.presented.push(below.presented[2].clone());
    cases.add("ways: a circle with a way out, at its end", world.clone(), Ok(()));
    world.presented.swap(2, 4);
    cases.add("ways: a circle with a way out, at its begin", world, Ok(()));
    // Roots of one name.
    let expired = |mut part: Part| {
        part.contents.validity.not_after_s = NOW_S - 9;
        part.make()
    };
    for (title, other, expected) in [
        ("another key", root(one, STRANGER, 9).make(), Ok(())),
        ("the same key, expired", expired(root(one, 0, 9)), Ok(())),
        ("the same key, made again", root(one, 0, 9).make(), Ok(())),
    ] {
        for is_first in [true, false] {
            let mut world = below.clone();
            world.trusted.insert(usize::from(!is_first), other.clone());
            cases.add(
                format!("ways: a root of the same name with {title}, first: {is_first}"),
                world,
                expected,
            );
        }
    }
    let mut world = World::of(&{
        let mut parts = parts(0, 1);
        parts.iter_mut().for_each(|part| part.remove(AUTHORITY_KEY));
        parts
    });
    world.trusted.insert(0, root(one, STRANGER, 9).make());
    cases.add("ways: roots of one name, and nothing says which", world, Ok(()));
    // An authority that was renewed: both certificates are sent, one is over.
    let mut old = parts(1, 0);
    old[1].contents.validity.not_after_s = NOW_S - 9;
    for at in [1, 2] {
        let mut world = World::of(&parts(1, 0));
        world.presented.insert(at, old[1].make());
        cases.add(format!("ways: an authority that was renewed, old one at {at}"), world, Ok(()));
    }
}

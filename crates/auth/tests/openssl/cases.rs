//! The chains.

use gridlane_auth::make::*;

use crate::world::*;

/// A chain, and what has to come out.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) world: World,
    /// Good, or what has to be in the words of the refusal.
    pub(crate) expected: Result<(), &'static str>,
    /// Whose it is, if it is good.
    pub(crate) dn: &'static str,
}

type Expected = Result<(), &'static str>;

#[derive(Default)]
struct Cases(Vec<Case>);

impl Cases {
    fn add(&mut self, name: impl Into<String>, world: World, expected: Expected) {
        self.0.push(Case { name: name.into(), world, expected, dn: USER });
    }

    /// A root, so many authorities and proxies, with something changed before they are signed.
    fn changed(
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

const UNKNOWN: &[u64] = &[1, 3, 6, 1, 4, 1, 99999, 1];
const PROXY_INFO: &[u64] = &[1, 3, 6, 1, 5, 5, 7, 1, 14];
const BASIC: &[u64] = &[2, 5, 29, 19];
const KEY_USAGE: &[u64] = &[2, 5, 29, 15];
const EXTENDED: &[u64] = &[2, 5, 29, 37];
const AUTHORITY_KEY: &[u64] = &[2, 5, 29, 35];
const SUBJECT_KEY: &[u64] = &[2, 5, 29, 14];

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

/// What can be wrong at each level of a chain.
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

fn with_path_len(parts: &mut [Part], lens: &[Option<u32>]) {
    let user = parts.len() - 1 - lens.len();
    for (proxy, len) in parts[user + 1..].iter_mut().zip(lens) {
        proxy.set(Extension::proxy(&ProxyPolicy::InheritAll, *len));
    }
}

fn proxy_depth(cases: &mut Cases) {
    let too_many = Err("proxies were made from it, and it allows");
    for (lens, expected) in [
        (&[Some(0)][..], Ok(())),
        (&[Some(5)], Ok(())),
        (&[Some(0), None], too_many),
        (&[Some(0), Some(0)], too_many),
        (&[Some(1), None], Ok(())),
        (&[Some(1), Some(0)], Ok(())),
        (&[Some(1), Some(3)], Ok(())),
        (&[Some(1), None, None], too_many),
        (&[Some(2), None, None], Ok(())),
        (&[None, Some(0), None], too_many),
        (&[None, None, Some(0)], Ok(())),
        (&[Some(2), Some(1), Some(0)], Ok(())),
        (&[Some(2), Some(1), Some(0), None], too_many),
        (&[Some(4), None, None, None, None], Ok(())),
        (&[Some(3), None, None, None, None], too_many),
    ] {
        let shown: Vec<String> =
            lens.iter().map(|len| len.map_or("-".into(), |len| len.to_string())).collect();
        let title = format!("proxy depth: {}", shown.join(" "));
        cases.changed(title, (0, lens.len()), expected, |parts| with_path_len(parts, lens));
    }
    cases.changed("proxy depth: 10 proxies", (1, 10), Ok(()), |_| ());
    cases.changed("proxy depth: 20 proxies and 3 authorities", (2, 20), Ok(()), |_| ());
    cases.changed("proxy depth: 30 proxies", (0, 30), Err("longer than is accepted"), |_| ());
}

fn proxy_languages(cases: &mut Cases) {
    use ProxyPolicy::{Independent, InheritAll, Limited, Other};
    for (name, policies, expected) in [
        ("limited", vec![Limited], Ok(())),
        ("limited, then all", vec![Limited, InheritAll], Ok(())),
        ("all, then limited", vec![InheritAll, Limited], Ok(())),
        ("all, limited, limited", vec![InheritAll, Limited, Limited], Ok(())),
        ("independent", vec![Independent], Err("independent proxy")),
        ("independent, then all", vec![Independent, InheritAll], Err("independent proxy")),
        ("another", vec![Other(UNKNOWN.to_vec())], Err("1.3.6.1.4.1.99999.1")),
        ("anyLanguage", vec![Other(vec![1, 3, 6, 1, 5, 5, 7, 21, 0])], Err("1.3.6.1.5.5.7.21.0")),
    ] {
        cases.changed(format!("proxy language: {name}"), (0, policies.len()), expected, |parts| {
            for (part, policy) in parts[2..].iter_mut().zip(&policies) {
                part.set(Extension::proxy(policy, None));
            }
        });
    }
    let info = |policy: &[u8]| {
        let language =
            [&[0x30, (10 + policy.len()) as u8, 6, 8, 0x2b, 6, 1, 5, 5, 7, 21, 1], policy].concat();
        Extension::raw(PROXY_INFO, true, [&[0x30, language.len() as u8], &language[..]].concat())
    };
    cases.changed("proxy language: all, written by hand", (0, 1), Ok(()), |parts| parts[2].set(info(&[])));
    cases.changed("proxy language: all, with a policy", (0, 1), Err("a policy where none may be"), |parts| {
        parts[2].set(info(&[4, 1, 7]));
    });
    cases.changed("proxy language: more behind it", (0, 1), Err("cannot be read"), |parts| {
        parts[2].set(info(&[5, 0]));
    });
    cases.changed("proxy language: no information", (0, 1), Err("cannot be read"), |parts| {
        parts[2].set(Extension::raw(PROXY_INFO, true, vec![0x30, 0]));
    });
    cases.changed("proxy language: negative depth", (0, 1), Err("cannot be read"), |parts| {
        let der = vec![0x30, 15, 2, 1, 0xff, 0x30, 10, 6, 8, 0x2b, 6, 1, 5, 5, 7, 21, 1];
        parts[2].set(Extension::raw(PROXY_INFO, true, der));
    });
    cases.changed("proxy language: not critical", (0, 1), Err("not critical"), |parts| {
        parts[2]
            .contents
            .extensions
            .iter_mut()
            .find(|extension| extension.oid == PROXY_INFO)
            .unwrap()
            .is_critical = false;
    });
}

fn proxy_names(cases: &mut Cases) {
    let wrong = Err("its subject is not that of its issuer with exactly one CN more");
    for (title, subject, expected) in [
        ("another person's", "/DC=org/DC=example/OU=people/CN=Bob/CN=1".to_owned(), wrong),
        ("nothing more", USER.to_owned(), wrong),
        ("two CNs more", format!("{USER}/CN=1/CN=2"), wrong),
        ("OU instead", format!("{USER}/OU=1"), wrong),
        ("OU and CN", format!("{USER}/OU=1/CN=2"), wrong),
        ("CN in front", "/CN=1/DC=org/DC=example/OU=people/CN=Ada Lovelace".to_owned(), wrong),
        ("one part less", "/DC=org/DC=example/OU=people".to_owned(), wrong),
        ("CN=proxy", format!("{USER}/CN=proxy"), Ok(())),
        ("other case", "/DC=ORG/DC=Example/OU=People/CN=ADA  lovelace/CN=1".to_owned(), Ok(())),
        ("emailAddress instead", format!("{USER}/emailAddress=a@example.org"), wrong),
    ] {
        cases.changed(format!("proxy name: {title}"), (0, 1), expected, |parts| {
            parts[2].contents.subject = name(&subject);
        });
        let deeper = subject.replace(USER, &format!("{USER}/CN=101"));
        if title != "other case" && deeper != subject {
            cases.changed(format!("proxy name: {title}, one level below"), (0, 2), expected, |parts| {
                parts[3].contents.subject = name(&deeper);
            });
        }
    }
    let pair = |value: &str| {
        let value = [&[0x13, value.len() as u8], value.as_bytes()].concat();
        [&[0x30, 5 + value.len() as u8, 6, 3, 0x55, 4, 3][..], &value].concat()
    };
    let two = [pair("1"), pair("2")].concat();
    let set = [&[0x31, two.len() as u8][..], &two].concat();
    let user = name(USER).to_der();
    let whole = [&[0x30, (user.len() - 2 + set.len()) as u8][..], &user[2..], &set].concat();
    cases.changed("proxy name: two CNs in one part", (0, 1), wrong, |parts| {
        parts[2].contents.subject = Name::from_der(&whole).unwrap();
    });
}

fn proxy_rules(cases: &mut Cases) {
    let old = Err("voms-proxy-init -rfc");
    cases.changed("proxy: of Globus 2", (0, 1), old, |parts| {
        parts[2].remove(PROXY_INFO);
        parts[2].contents.subject = name(&format!("{USER}/CN=proxy"));
    });
    cases.changed("proxy: of Globus 2, limited", (0, 1), old, |parts| {
        parts[2].remove(PROXY_INFO);
        parts[2].contents.subject = name(&format!("{USER}/CN=limited proxy"));
    });
    cases.changed("proxy: of one of Globus 2", (0, 2), old, |parts| {
        parts[2].remove(PROXY_INFO);
        parts[2].contents.subject = name(&format!("{USER}/CN=proxy"));
        parts[3].contents.issuer = name(&format!("{USER}/CN=proxy"));
        parts[3].contents.subject = name(&format!("{USER}/CN=proxy/CN=1"));
    });
    let draft = |is_critical| {
        let info = Extension::proxy(&ProxyPolicy::InheritAll, None);
        Extension::raw(&[1, 3, 6, 1, 4, 1, 3536, 1, 222], is_critical, info.der)
    };
    for is_critical in [true, false] {
        cases.changed(format!("proxy: of Globus 3, critical: {is_critical}"), (0, 1), old, |parts| {
            parts[2].remove(PROXY_INFO);
            parts[2].set(draft(is_critical));
        });
    }
    cases.changed("proxy: nothing says that it is one", (0, 1), Err("is no authority"), |parts| {
        parts[2].remove(PROXY_INFO);
    });
    cases.changed("proxy: made by the root", (0, 0), Err("is made by an authority"), |parts| {
        parts[1] = proxy_of(&parts[0], 5, 8);
    });
    cases.changed("proxy: made by an authority", (1, 0), Err("is made by an authority"), |parts| {
        parts[2] = proxy_of(&parts[1], 5, 8);
    });
    cases.changed("proxy: its user is an authority", (0, 1), Err("is made by an authority"), |parts| {
        parts[1].set(Extension::basic_constraints(true, None));
        parts[1].set(Extension::key_usage(KeyUsage::DIGITAL_SIGNATURE | KeyUsage::CERTIFICATE_SIGN));
    });
    cases.changed("proxy: is an authority", (0, 1), Err("may be an authority"), |parts| {
        parts[2].set(Extension::basic_constraints(true, None));
    });
    cases.changed("proxy: says that it is no authority", (0, 1), Ok(()), |parts| {
        parts[2].set(Extension::basic_constraints(false, None));
    });
    cases.changed("proxy: signs as an authority", (0, 1), Err("is no authority"), |parts| {
        parts[2] = part(name("/DC=org/DC=example/CN=Mallory"), 8, name(USER), 7, 9);
    });
    let names = Extension::alternative_names(&[AlternativeName::Email("ada@example.org".into())]);
    for level in [2, 3] {
        cases.changed(
            format!("proxy: alternative name at {level}"),
            (0, 2),
            Err("no alternative names"),
            |parts| {
                parts[level].set(names.clone());
            },
        );
        cases.changed(
            format!("proxy: issuer's alternative name at {level}"),
            (0, 2),
            Err("no alternative names"),
            |parts| {
                parts[level].set(Extension::raw(&[2, 5, 29, 18], false, names.der.clone()));
            },
        );
        cases.changed(
            format!("proxy: key not for signatures at {}", level - 1),
            (0, 2),
            Err("keyUsage"),
            |parts| {
                parts[level - 1].set(Extension::key_usage(KeyUsage::KEY_ENCIPHERMENT));
            },
        );
        cases.changed(format!("proxy: no key usage at {level}"), (0, 2), Ok(()), |parts| {
            parts[level].remove(KEY_USAGE);
        });
        cases.changed(
            format!("proxy: for servers only at {level}"),
            (0, 2),
            Err("extendedKeyUsage"),
            |parts| {
                parts[level].set(Extension::extended_key_usage(&[&[1, 3, 6, 1, 5, 5, 7, 3, 1]]));
            },
        );
        cases.changed(format!("proxy: for clients at {level}"), (0, 2), Ok(()), |parts| {
            parts[level].set(Extension::client());
        });
        cases.changed(format!("proxy: unknown extension at {level}"), (0, 2), Ok(()), |parts| {
            parts[level].set(Extension::raw(UNKNOWN, false, vec![5, 0]));
        });
        cases.changed(format!("proxy: information twice at {level}"), (0, 2), Err("twice"), |parts| {
            let info = Extension::proxy(&ProxyPolicy::InheritAll, None);
            parts[level].contents.extensions.push(info);
        });
    }
    cases.changed("proxy: two of the same user, wrong one first", (0, 2), Ok(()), |parts| {
        // The leaf is made by the user itself; the other proxy is only sent along.
        let leaf = proxy_of(&parts[1], 77, 9);
        parts[3] = leaf;
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
    cases.add("end entity: signed for itself", world.clone(), Err("signed for themselves"));
    let world = World { trusted: vec![own.make()], ..world };
    cases.add("end entity: signed for itself, and in the directory", world, Err("signed for themselves"));
}

fn authorities(cases: &mut Cases) {
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

fn constraints(cases: &mut Cases) {
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
    cases.changed("constraint: cannot be read", (0, 0), Err("is not trusted here"), |parts| {
        parts[0].set(Extension::raw(&[2, 5, 29, 30], true, vec![0x30, 2, 0xa2, 0]));
    });
}

fn lists(cases: &mut Cases) {
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
fn ways(cases: &mut Cases) {
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
        cases.0.last_mut().unwrap().dn = "/DC=org/DC=example/OU=people/CN=Ada_Lovelace";
    }
}

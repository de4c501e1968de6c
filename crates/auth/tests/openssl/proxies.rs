//! Faults of proxies.

use gridlane_auth::make::*;

use crate::cases::*;
use crate::world::*;

fn with_path_len(parts: &mut [Part], lens: &[Option<u32>]) {
    let user = parts.len() - 1 - lens.len();
    for (proxy, len) in parts[user + 1..].iter_mut().zip(lens) {
        proxy.set(Extension::proxy(&ProxyPolicy::InheritAll, *len));
    }
}

pub(crate) fn proxy_depth(cases: &mut Cases) {
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

pub(crate) fn proxy_languages(cases: &mut Cases) {
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

pub(crate) fn proxy_names(cases: &mut Cases) {
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

pub(crate) fn proxy_rules(cases: &mut Cases) {
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
    cases.changed("proxy: its own key is not for signatures", (0, 1), Err("keyUsage"), |parts| {
        parts[2].set(Extension::key_usage(KeyUsage::KEY_ENCIPHERMENT));
    });
    cases.changed("proxy: two of the same user, wrong one first", (0, 2), Ok(()), |parts| {
        // The leaf is made by the user itself; the other proxy is only sent along.
        let leaf = proxy_of(&parts[1], 77, 9);
        parts[3] = leaf;
    });
}

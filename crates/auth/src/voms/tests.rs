//! Attribute certificates that are made for this, right and wrong.

use ring::rand::SystemRandom;

use super::*;
use crate::make::{
    self, Credential, Curve, Extension, Key, ProxyTerms, Targets, Text, Validity, pem, profile,
};

const NOW_S: i64 = 1_800_000_000;
const HOUR_S: i64 = 3600;
const SERVER: &str = "/DC=org/DC=example/CN=voms.example.org";
const CA: &str = "/DC=org/DC=example/CN=CA";

/// An authority, a user, and the server of a virtual organisation.
struct Grid {
    random: SystemRandom,
    ca: Credential,
    user: Credential,
    server: Credential,
}

impl Grid {
    fn new() -> Grid {
        let random = SystemRandom::new();
        let ca = profile::authority(&name(CA), key(&random), day(), &random).unwrap();
        let user =
            profile::user(&ca, &name("/DC=org/DC=example/CN=Ada"), key(&random), day(), &random).unwrap();
        let server = server(&ca, SERVER, &random);
        Grid { random, ca, user, server }
    }

    fn trust(&self) -> Trust {
        trust(&self.ca)
    }

    /// The server's statement about the user.
    fn said(&self, vo: &str, fqans: &[&str]) -> make::AttributeCertificate {
        self.said_by(&self.server, vo, fqans)
    }

    fn said_by(&self, server: &Credential, vo: &str, fqans: &[&str]) -> make::AttributeCertificate {
        let fqans: Vec<String> = fqans.iter().map(|fqan| (*fqan).to_owned()).collect();
        let holder = &self.user.chain[0];
        let place = (vo, "voms.example.org:15000");
        make::AttributeCertificate::new(server, holder, place, &fqans, hours(0, 12), vec![7]).unwrap()
    }

    fn signed(&self, said: &make::AttributeCertificate) -> Vec<u8> {
        said.sign(&self.server, &self.random).unwrap()
    }

    /// A proxy of a user, with these.
    fn proxy(&self, of: &Credential, acs: &[Vec<u8>]) -> Credential {
        let mut terms = ProxyTerms::new(day());
        if !acs.is_empty() {
            terms.extensions.push(make::voms_extension(acs));
        }
        make::proxy(of, key(&self.random), &terms, &self.random).unwrap()
    }

    /// The attributes of these that count in a proxy of the user.
    fn ask(&self, acs: &[Vec<u8>], dir: &VomsDir) -> (Vec<String>, Option<i64>, Vec<Refusal>) {
        self.ask_with(&self.proxy(&self.user, acs), dir, &self.trust(), NOW_S)
    }

    fn ask_with(
        &self,
        proxy: &Credential,
        dir: &VomsDir,
        trust: &Trust,
        now_s: i64,
    ) -> (Vec<String>, Option<i64>, Vec<Refusal>) {
        let verified = verified(proxy, &self.trust());
        let hosts = ["se.example.org".to_owned(), "alias.example.org".to_owned()];
        let (fqans, ends_s, refusals) = attributes(&verified, dir, trust, &hosts, now_s);
        (fqans.iter().map(Fqan::to_string).collect(), ends_s, refusals)
    }
}

fn key(random: &SystemRandom) -> Key {
    Key::generate(Curve::P256, random).unwrap()
}

fn name(text: &str) -> make::Name {
    make::Name::parse(text, Text::Utf8).unwrap()
}

fn hours(from: i64, until: i64) -> Validity {
    Validity { not_before_s: NOW_S + from * HOUR_S, not_after_s: NOW_S + until * HOUR_S }
}

/// The last moment at which what ends in so many hours counts.
fn until_s(hours: i64) -> i64 {
    NOW_S + hours * HOUR_S + limits::VOMS_SKEW_MAX_S
}

fn day() -> Validity {
    hours(-24, 24)
}

fn server(ca: &Credential, dn: &str, random: &SystemRandom) -> Credential {
    profile::host(ca, &name(dn), &[], key(random), day(), random).unwrap()
}

fn dir(files: &[(&str, &str)]) -> VomsDir {
    let (dir, warnings) =
        VomsDir::read(files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())));
    assert!(warnings.is_empty(), "{warnings:?}");
    dir
}

fn atlas() -> VomsDir {
    dir(&[("atlas/voms.example.org.lsc", &format!("{SERVER}\n{CA}\n"))])
}

fn trust(ca: &Credential) -> Trust {
    let (trust, warnings) = Trust::from_certificates([("ca.pem".to_owned(), ca.chain_pem().into_bytes())]);
    assert!(warnings.is_empty(), "{warnings:?}");
    trust
}

fn verified(proxy: &Credential, trust: &Trust) -> Verified {
    x509::verify(&proxy.chain, trust, NOW_S).unwrap()
}

#[test]
fn what_counts_in_order_and_until_when() {
    let grid = Grid::new();
    let lsc = format!("{SERVER}\n{CA}\n");
    let both = dir(&[("atlas/voms.example.org.lsc", &lsc), ("cms/voms.example.org.lsc", &lsc)]);
    let atlas_says =
        grid.said("atlas", &["/atlas/prod/Role=manager/Capability=NULL", "/atlas/Role=NULL/Capability=NULL"]);
    let mut cms_says = grid.said("cms", &["/cms", "/cms/Role=pilot"]);
    cms_says.validity = hours(-1, 6);
    let acs = [grid.signed(&atlas_says), grid.signed(&cms_says), grid.signed(&atlas_says)];
    let (fqans, ends_s, refusals) = grid.ask(&acs, &both);
    assert_eq!(fqans, ["/atlas/prod/Role=manager", "/atlas", "/cms", "/cms/Role=pilot"]);
    assert_eq!((ends_s, refusals), (Some(until_s(6)), vec![]));

    // One that does not count is no harm to the others.
    let (fqans, ends_s, refusals) = grid.ask(&acs, &atlas());
    assert_eq!(fqans, ["/atlas/prod/Role=manager", "/atlas"]);
    assert_eq!(ends_s, Some(until_s(12)));
    assert_eq!(refusals.len(), 1);
    assert!(refusals[0].message.contains("cms"), "{refusals:?}");

    // Nor longer than its signer is believed.
    let mut long = grid.said("atlas", &["/atlas"]);
    long.validity = hours(-1, 1000);
    assert_eq!(grid.ask(&[grid.signed(&long)], &both).1, Some(NOW_S + 24 * HOUR_S));

    assert_eq!(grid.ask(&[], &both), (vec![], None, vec![]));
    assert_eq!(claims(&[0x30, 0]), Ok(vec![]));
}

#[test]
fn a_proxy_of_a_proxy_speaks_for_itself() {
    let grid = Grid::new();
    let first = grid.proxy(&grid.user, &[grid.signed(&grid.said("atlas", &["/atlas/a"]))]);
    let count = |proxy: &Credential| grid.ask_with(proxy, &atlas(), &grid.trust(), NOW_S).0;
    assert_eq!(count(&grid.proxy(&first, &[])), ["/atlas/a"]);
    let again = grid.proxy(&first, &[grid.signed(&grid.said("atlas", &["/atlas/b"]))]);
    assert_eq!(count(&again), ["/atlas/b"]);
    // Also where that does not count.
    let mut expired = grid.said("atlas", &["/atlas/c"]);
    expired.validity = hours(-3, -2);
    assert_eq!(count(&grid.proxy(&first, &[grid.signed(&expired)])), [""; 0]);
    // What it claims is told to its owner all the same.
    let proxy = grid.proxy(&first, &[grid.signed(&expired)]);
    let chain: Vec<Certificate> = proxy.chain.iter().map(|der| Certificate::from_der(der).unwrap()).collect();
    let claims = claims(extension_of(&chain).unwrap()).unwrap();
    assert_eq!(claims.len(), 1);
    assert_eq!((claims[0].vo.as_str(), claims[0].host.as_str()), ("atlas", "voms.example.org"));
    assert_eq!((claims[0].not_before_s, claims[0].not_after_s), (NOW_S - 3 * HOUR_S, NOW_S - 2 * HOUR_S));
}

#[test]
fn what_does_not_count_and_why() {
    type Change = fn(&Grid, &mut make::AttributeCertificate);
    let grid = Grid::new();
    let cases: &[(&str, Cause, Change)] = &[
        ("not yet", Cause::NotYetValid, |_, said| said.validity = hours(1, 2)),
        ("no more", Cause::Expired, |_, said| said.validity = hours(-2, -1)),
        ("never", Cause::Malformed, |_, said| {
            said.validity = Validity { not_before_s: NOW_S + 60, not_after_s: NOW_S - 60 };
        }),
        ("of another certificate", Cause::Untrusted, |_, said| said.holder_serial = vec![1, 2, 3]),
        ("of another authority's user", Cause::Untrusted, |_, said| {
            said.holder_issuer = name("/DC=org/CN=Other")
        }),
        ("signed by another server than it states", Cause::Untrusted, |grid, said| {
            said.issuer = grid.user.subject().unwrap();
        }),
        ("a group of another VO", Cause::Untrusted, |_, said| said.fqans.push("/cms".to_owned())),
        ("a group whose name begins alike", Cause::Untrusted, |_, said| {
            said.fqans.push("/atlas2".to_owned())
        }),
        ("no group", Cause::Malformed, |_, said| said.fqans.clear()),
        ("something that is no group", Cause::Malformed, |_, said| said.fqans.push("/atlas/..".to_owned())),
        ("too long a group", Cause::Unacceptable, |_, said| {
            said.fqans.push(format!("/atlas/{}", "a".repeat(640)))
        }),
        ("too many groups", Cause::Unacceptable, |_, said| {
            said.fqans = (0..=limits::VOMS_FQANS_MAX).map(|number| format!("/atlas/{number}")).collect();
        }),
        ("no authority", Cause::Malformed, |_, said| said.authority = "atlas".to_owned()),
        ("an authority without a port", Cause::Malformed, |_, said| {
            said.authority = "atlas://voms.example.org".to_owned()
        }),
        ("a path for an authority", Cause::Malformed, |_, said| {
            said.authority = "../x://voms.example.org:1".to_owned()
        }),
        ("another server of the VO", Cause::Untrusted, |_, said| {
            said.authority = "atlas://other.example.org:1".to_owned()
        }),
        ("another VO", Cause::Untrusted, |_, said| {
            said.authority = "cms://voms.example.org:15000".to_owned();
            said.fqans = vec!["/cms".to_owned()];
        }),
        ("too long a serial number", Cause::Malformed, |_, said| said.serial = vec![1; 21]),
        ("an extension that has to be understood", Cause::Unacceptable, |_, said| {
            said.extensions.push(Extension::raw(&[1, 2, 3], true, vec![5, 0]));
        }),
        ("an extension twice", Cause::Malformed, |_, said| said.extensions.push(said.extensions[0].clone())),
        ("for another server", Cause::WrongAudience, |_, said| {
            *said = said.clone().for_targets(&Targets::Voms(vec!["other.example.org".to_owned()]));
        }),
        ("for another server, as the standard has it", Cause::WrongAudience, |_, said| {
            *said = said.clone().for_targets(&Targets::Standard(vec!["se.example.org.evil.org".to_owned()]));
        }),
        ("for no server", Cause::WrongAudience, |_, said| {
            *said = said.clone().for_targets(&Targets::Voms(vec![]))
        }),
        ("without the certificates of its signer", Cause::Untrusted, |_, said| {
            said.extensions.remove(0);
        }),
        ("with another key than it says", Cause::BadSignature, |_, said| {
            said.extensions.retain(|extension| extension.oid != [2, 5, 29, 35]);
            said.extensions.push(Extension::authority_key_id(&[7; 20]));
        }),
        ("many extensions", Cause::Unacceptable, |_, said| {
            let more = (0..limits::VOMS_ELEMENTS_MAX as u64)
                .map(|number| Extension::raw(&[1, 2, number], false, vec![5, 0]));
            said.extensions.extend(more);
        }),
    ];
    for (what, cause, change) in cases {
        let mut said = grid.said("atlas", &["/atlas"]);
        change(&grid, &mut said);
        let (fqans, ends_s, refusals) = grid.ask(&[grid.signed(&said)], &atlas());
        assert_eq!((fqans.len(), ends_s), (0, None), "{what}");
        let causes: Vec<Cause> = refusals.iter().map(|refusal| refusal.cause).collect();
        assert_eq!(causes, [*cause], "{what}: {refusals:?}");
        assert!(refusals[0].message.contains("attribute certificate"), "{refusals:?}");
    }
}

#[test]
fn what_is_unusual_and_counts() {
    type Change = fn(&Grid, &mut make::AttributeCertificate);
    let grid = Grid::new();
    let cases: &[(&str, Change)] = &[
        ("a clock that is a little ahead", |_, said| {
            said.validity.not_before_s = NOW_S + limits::VOMS_SKEW_MAX_S
        }),
        ("a clock that is a little behind", |_, said| {
            said.validity =
                Validity { not_before_s: NOW_S - 900, not_after_s: NOW_S - limits::VOMS_SKEW_MAX_S }
        }),
        ("a holder by its subject, as of older VOMS", |grid, said| {
            said.holder_issuer = grid.user.subject().unwrap()
        }),
        ("a name in other types of strings, and in capitals", |_, said| {
            said.holder_issuer = make::Name::parse("/DC=ORG/DC=example/CN=ca", Text::Printable).unwrap();
        }),
        ("for this server", |_, said| {
            *said = said
                .clone()
                .for_targets(&Targets::Voms(vec!["x.example.org".to_owned(), "SE.example.org".to_owned()]));
        }),
        ("for this server, as a URI", |_, said| {
            *said = said
                .clone()
                .for_targets(&Targets::Standard(vec!["https://alias.example.org:8443/".to_owned()]));
        }),
        ("extensions that need not be understood", |_, said| {
            said.extensions.push(Extension::raw(
                &[1, 3, 6, 1, 4, 1, 8005, 100, 100, 11],
                false,
                vec![0x30, 0],
            ));
        }),
        ("no key identifier", |_, said| said.extensions.retain(|extension| extension.oid != [2, 5, 29, 35])),
        ("another port", |_, said| said.authority = "atlas://VOMS.example.org:1".to_owned()),
        ("many groups", |_, said| {
            said.fqans = (0..limits::VOMS_FQANS_MAX).map(|number| format!("/atlas/{number}")).collect();
        }),
    ];
    for (what, change) in cases {
        let mut said = grid.said("atlas", &["/atlas"]);
        change(&grid, &mut said);
        let (fqans, ends_s, refusals) = grid.ask(&[grid.signed(&said)], &atlas());
        assert_eq!(refusals, [], "{what}");
        assert_eq!(
            (fqans.len(), ends_s),
            (said.fqans.len(), Some(said.validity.not_after_s + limits::VOMS_SKEW_MAX_S)),
            "{what}"
        );
    }
}

#[test]
fn only_who_is_listed_may_sign() {
    let grid = Grid::new();
    let attacker = server(&grid.ca, "/DC=org/DC=example/CN=evil.example.org", &grid.random);
    // With its own certificate; and with that of the server, under which it cannot sign.
    let own = grid.said_by(&attacker, "atlas", &["/atlas"]).sign(&attacker, &grid.random).unwrap();
    let borrowed = grid.said("atlas", &["/atlas"]).sign(&attacker, &grid.random).unwrap();
    // With a certificate of this name by an authority that is not trusted.
    let other = Grid::new();
    let forged = grid.said_by(&other.server, "atlas", &["/atlas"]).sign(&other.server, &grid.random).unwrap();
    // With a proxy of the server, under the server's name.
    let proxy = grid.proxy(&grid.server, &[]);
    let by_proxy = grid.said_by(&proxy, "atlas", &["/atlas"]).sign(&proxy, &grid.random).unwrap();
    for (what, ac, cause) in [
        ("own", &own, Cause::Untrusted),
        ("borrowed", &borrowed, Cause::BadSignature),
        ("proxy", &by_proxy, Cause::Untrusted),
    ] {
        let (fqans, _, refusals) = grid.ask(std::slice::from_ref(ac), &atlas());
        assert_eq!((fqans.len(), refusals.len()), (0, 1), "{what}");
        assert_eq!(refusals[0].cause, cause, "{what}: {refusals:?}");
    }
    let (fqans, _, refusals) = grid.ask(&[forged], &atlas());
    assert_eq!((fqans.len(), refusals.len()), (0, 1), "{refusals:?}");
    // Even if the names of a proxy are listed.
    let proxy_dn = Certificate::from_der(&proxy.chain[0]).unwrap().subject().to_string();
    let listed = format!("{proxy_dn}\n{SERVER}\n{SERVER}\n{CA}\n");
    let (fqans, _, refusals) = grid.ask(&[by_proxy], &dir(&[("atlas/voms.example.org.lsc", &listed)]));
    assert_eq!((fqans.len(), refusals[0].cause), (0, Cause::Untrusted), "{refusals:?}");

    // No server is listed at all.
    let good = grid.signed(&grid.said("atlas", &["/atlas"]));
    let (fqans, _, refusals) = grid.ask(std::slice::from_ref(&good), &VomsDir::default());
    assert_eq!((fqans.len(), refusals[0].cause), (0, Cause::Untrusted), "{refusals:?}");
    // The server is listed, and its authority is trusted no more.
    let (fqans, _, refusals) =
        grid.ask_with(&grid.proxy(&grid.user, &[good]), &atlas(), &other.trust(), NOW_S);
    assert_eq!((fqans.len(), refusals.len()), (0, 1), "{refusals:?}");
}

#[test]
fn the_whole_chain_is_listed() {
    let grid = Grid::new();
    let below = "/DC=org/DC=example/CN=Below";
    let middle =
        profile::intermediate(&grid.ca, &name(below), key(&grid.random), day(), &grid.random).unwrap();
    let server = server(&middle, SERVER, &grid.random);
    assert_eq!(server.chain.len(), 2);
    let ac = grid.said_by(&server, "atlas", &["/atlas"]).sign(&server, &grid.random).unwrap();
    for (text, counts) in [
        (format!("{SERVER}\n{below}\n{below}\n{CA}\n"), true),
        (format!("{SERVER}\n{CA}\n------NEXT CHAIN------\n{SERVER}\n{below}\n{below}\n{CA}\n"), true),
        (format!("{SERVER}\n{below}\n"), false),
        (format!("{SERVER}\n{CA}\n"), false),
        (format!("{below}\n{CA}\n"), false),
        (format!("{SERVER}\n{below}\n{below}\n{CA}\n{CA}\n{CA}\n"), false),
    ] {
        let (fqans, ..) = grid.ask(std::slice::from_ref(&ac), &dir(&[("atlas/voms.example.org.lsc", &text)]));
        assert_eq!(fqans.len(), usize::from(counts), "{text}");
    }
}

#[test]
fn a_certificate_in_the_directory_counts_where_no_names_are_listed() {
    let grid = Grid::new();
    let mut said = grid.said("atlas", &["/atlas"]);
    let with_chain = grid.signed(&said);
    // The older way: the signer's certificate is not in it.
    said.extensions.remove(0);
    let without_chain = grid.signed(&said);
    let certificate = grid.server.chain_pem();
    let other = server(&grid.ca, SERVER, &grid.random).chain_pem();
    for (files, counts) in [
        (vec![("atlas/voms.pem", certificate.as_str())], true),
        (vec![("voms.pem", &certificate)], true),
        (vec![("atlas/a.pem", &other), ("atlas/b.pem", &certificate)], true),
        (vec![("atlas/a.pem", &other)], false),
        (vec![("cms/voms.pem", &certificate)], false),
        // Where there is a list for this host, it decides.
        (
            vec![("atlas/voms.pem", &certificate), ("atlas/voms.example.org.lsc", &format!("{CA}\n{CA}\n"))],
            false,
        ),
    ] {
        let dir = dir(&files);
        for ac in [&with_chain, &without_chain] {
            let (fqans, _, refusals) = grid.ask(std::slice::from_ref(ac), &dir);
            assert_eq!(
                (fqans.len(), refusals.len()),
                (usize::from(counts), usize::from(!counts)),
                "{files:?}"
            );
        }
    }
    assert!(pem::certificates(certificate.as_bytes()).is_ok());
}

#[test]
fn no_byte_can_be_changed() {
    let grid = Grid::new();
    let good = grid.signed(&grid.said("atlas", &["/atlas"]));
    let verified = verified(&grid.proxy(&grid.user, &[]), &grid.trust());
    let (dir, trust) = (atlas(), grid.trust());
    let check =
        Check { holder: verified.end_entity(), voms: &dir, trust: &trust, host_names: &[], now_s: NOW_S };
    assert!(check.read(&good).is_ok());
    for at in 0..good.len() {
        let mut changed = good.clone();
        changed[at] ^= 1 << (at % 8);
        assert!(check.read(&changed).is_err(), "byte {at}");
        assert!(check.read(&good[..at]).is_err(), "the first {at} bytes");
    }
    let longer = [good, vec![0]].concat();
    assert!(check.read(&longer).is_err());
}

#[test]
fn too_many_of_them() {
    let grid = Grid::new();
    let good = grid.signed(&grid.said("atlas", &["/atlas"]));
    let (fqans, _, refusals) = grid.ask(&vec![good; limits::VOMS_CERTIFICATES_MAX + 1], &atlas());
    assert_eq!((fqans.len(), refusals.len()), (0, 1));
    assert_eq!(refusals[0].cause, Cause::Unacceptable);
}

/// What a server gives is looked at before it goes into a proxy, as servers of data look at it.
#[test]
fn what_is_given_is_what_was_asked_for() {
    let grid = Grid::new();
    let (dir, trust) = (atlas(), grid.trust());
    let asked = AttributeRequest {
        vo: "atlas".to_owned(),
        fqans: vec!["/atlas/prod/Role=pilot".parse().unwrap(), "/atlas".parse().unwrap()],
        lifetime_s: 12 * HOUR_S,
    };
    let ask = |ac: &[u8], signers| check_given(ac, &asked, &grid.user.chain[0], signers, NOW_S);
    let signers = Some((&dir, &trust));
    let good =
        grid.said("atlas", &["/atlas/prod/Role=pilot", "/atlas/Role=NULL/Capability=NULL", "/atlas/more"]);
    let given = ask(&grid.signed(&good), signers).unwrap();
    assert_eq!((&given.unchecked, given.claim.fqans.len()), (&None, 3));
    assert!(!given.is_short && !given.is_reordered);

    // Who has no such files goes on, and is told.
    let given = ask(&grid.signed(&good), None).unwrap();
    assert!(given.unchecked.unwrap().message.contains("voms.example.org"));
    let other = super::tests::dir(&[("cms/voms.example.org.lsc", &format!("{SERVER}\n{CA}\n"))]);
    assert!(ask(&grid.signed(&good), Some((&other, &trust))).unwrap().unchecked.is_some());

    let mut short = good.clone();
    short.validity = hours(0, 6);
    assert!(ask(&grid.signed(&short), signers).unwrap().is_short);
    let mut reordered = good.clone();
    reordered.fqans.reverse();
    assert!(ask(&grid.signed(&reordered), signers).unwrap().is_reordered);

    type Change = fn(&mut make::AttributeCertificate);
    let cases: [(&str, Cause, Change); 5] = [
        ("of another VO", Cause::Untrusted, |said| {
            said.authority = "cms://voms.example.org:15000".to_owned();
            said.fqans = vec!["/cms".to_owned()];
        }),
        ("without a role", Cause::Unacceptable, |said| said.fqans.remove(0).clear()),
        ("of another holder", Cause::Untrusted, |said| said.holder_serial = vec![1, 2, 3]),
        ("over", Cause::Expired, |said| said.validity = hours(-2, -1)),
        ("to come", Cause::NotYetValid, |said| said.validity = hours(1, 2)),
    ];
    for (what, cause, change) in cases {
        let mut said = good.clone();
        change(&mut said);
        for signers in [signers, None] {
            let refusal = ask(&grid.signed(&said), signers).unwrap_err();
            assert_eq!(refusal.cause, cause, "{what}: {refusal}");
            assert!(refusal.message.starts_with("the attribute certificate of atlas: "), "{refusal}");
        }
    }
    // By one who is not listed, where the VO is.
    let stranger = server(&grid.ca, "/DC=org/DC=example/CN=stranger.example.org", &grid.random);
    let said = grid.said_by(&stranger, "atlas", &["/atlas/prod/Role=pilot", "/atlas"]);
    let said = said.sign(&stranger, &grid.random).unwrap();
    assert_eq!(ask(&said, signers).unwrap_err().cause, Cause::Untrusted);
    assert!(ask(&said, None).unwrap().unchecked.is_some());
    assert_eq!(ask(&[0x30, 0], signers).unwrap_err().cause, Cause::Malformed);
}

#[test]
fn a_server_has_the_certificate_that_its_line_says() {
    let grid = Grid::new();
    let line = |dn: &str| {
        let line = format!("\"atlas\" \"voms.example.org\" \"15001\" \"{dn}\" \"atlas\"");
        VomsServer::read_all(line.as_bytes()).0.remove(0)
    };
    line(SERVER).check_certificate(&grid.server.chain[0]).unwrap();
    let refusal = line(SERVER).check_certificate(&grid.user.chain[0]).unwrap_err();
    assert!(refusal.message.contains("CN=Ada") && refusal.message.contains(SERVER), "{refusal}");
    assert_eq!(line(SERVER).check_certificate(b"?").unwrap_err().cause, Cause::Malformed);
}

//! OpenSSL and VOMS, the programs of the field, read the certificates, proxies and attributes that are made here.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

use std::path::Path;
use std::process::Command;

use gridlane_auth::make::*;
use ring::rand::SystemRandom;
use tempfile::TempDir;

const DAY_S: i64 = 86_400;

struct Fleet {
    dir: TempDir,
    random: SystemRandom,
    now_s: i64,
    authority: Credential,
    user: Credential,
    voms: Credential,
}

impl Fleet {
    fn new() -> Fleet {
        let random = SystemRandom::new();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let now_s = i64::try_from(now.as_secs()).unwrap();
        let key = || Key::generate(Curve::P256, &random).unwrap();
        let validity = Validity::from_now(now_s, DAY_S);
        let name = |text: &str| Name::parse(text, Text::Utf8).unwrap();
        let authority =
            profile::authority(&name("/DC=org/DC=example/CN=Test  CA"), key(), validity, &random).unwrap();
        let user = profile::user(&authority, &name("/DC=org/DC=example/CN=Ada"), key(), validity, &random);
        let names =
            [AlternativeName::Dns("voms.example.org".into()), AlternativeName::Ip("::1".parse().unwrap())];
        let voms = name("/DC=org/DC=example/CN=voms.example.org");
        let voms = profile::host(&authority, &voms, &names, key(), validity, &random);
        let fleet = Fleet {
            dir: TempDir::new().unwrap(),
            now_s,
            user: user.unwrap(),
            voms: voms.unwrap(),
            authority,
            random,
        };
        let hash = fleet.authority.subject().unwrap().hash().unwrap();
        fleet.write(&format!("{hash}.0"), &fleet.authority.chain_pem());
        fleet
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn key(&self) -> Key {
        Key::generate(Curve::P256, &self.random).unwrap()
    }

    fn validity(&self) -> Validity {
        Validity::from_now(self.now_s, DAY_S / 2)
    }

    /// Only its owner may read it: VOMS refuses others.
    fn write(&self, name: &str, text: &str) {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(self.path().join(name)).unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Runs a command in the directory; what it printed, and whether it succeeded.
    fn run(&self, command: &str) -> (bool, String) {
        let mut words = command.split(' ');
        let output = Command::new(words.next().unwrap())
            .args(words)
            .current_dir(self.path())
            .env("X509_CERT_DIR", self.path())
            .env("X509_VOMS_DIR", self.path().join("vomsdir"))
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    #[track_caller]
    fn good(&self, command: &str) -> String {
        let (is_good, text) = self.run(command);
        assert!(is_good, "{command}: {text}");
        text
    }

    /// Chain and end entity where `verify` finds them.
    fn write_chain(&self, credential: &Credential) {
        self.write("end.pem", &pem::encode(pem::CERTIFICATE, &credential.chain[0]));
        let above: String =
            credential.chain[1..].iter().map(|der| pem::encode(pem::CERTIFICATE, der)).collect();
        self.write("above.pem", &above);
    }

    fn verify(&self, credential: &Credential) -> (bool, String) {
        self.write_chain(credential);
        // A file without certificates is refused.
        let above = if credential.chain.len() > 1 { "-untrusted above.pem " } else { "" };
        self.run(&format!("openssl verify -x509_strict -allow_proxy_certs -CApath . {above}end.pem"))
    }
}

#[test]
fn openssl_believes_what_is_made() {
    let fleet = Fleet::new();
    for credential in [&fleet.authority, &fleet.user, &fleet.voms] {
        let (is_good, text) = fleet.verify(credential);
        assert!(is_good, "{text}");
    }
    fleet.write_chain(&fleet.voms);
    let text = fleet.good("openssl x509 -in end.pem -noout -text");
    for part in [
        "CA:FALSE",
        "Digital Signature, Key Encipherment",
        "TLS Web Server Authentication, TLS Web Client Authentication",
        "DNS:voms.example.org, IP Address:0:0:0:0:0:0:0:1",
        "ecdsa-with-SHA256",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    fleet.good("openssl verify -CApath . -purpose sslserver -verify_hostname voms.example.org end.pem");
}

#[test]
fn openssl_believes_proxies_of_proxies_within_their_length() {
    let fleet = Fleet::new();
    let mut terms = ProxyTerms::new(fleet.validity());
    terms.path_len = Some(1);
    let first = proxy(&fleet.user, fleet.key(), &terms, &fleet.random).unwrap();
    terms.path_len = None;
    terms.policy = ProxyPolicy::Limited;
    let second = proxy(&first, fleet.key(), &terms, &fleet.random).unwrap();
    let third = proxy(&second, fleet.key(), &terms, &fleet.random).unwrap();
    for (credential, is_good) in [(&first, true), (&second, true), (&third, false)] {
        let (found, text) = fleet.verify(credential);
        assert_eq!(found, is_good, "{text}");
    }
    let policies =
        [&first, &second, &fleet.user].map(|made| made.contents().unwrap().proxy_policy().unwrap());
    assert_eq!(policies, [Some(ProxyPolicy::InheritAll), Some(ProxyPolicy::Limited), None]);
    assert_eq!(third.end_entity().unwrap(), fleet.user.chain[0]);
    fleet.write_chain(&second);
    let text = fleet.good("openssl x509 -in end.pem -noout -text");
    assert!(text.contains("Proxy Certificate Information: critical"), "{text}");
    assert!(text.contains("1.3.6.1.4.1.3536.1.1.1.9"), "{text}");
    // A proxy does not outlive its issuer.
    let long = Validity::from_now(fleet.now_s, 100 * DAY_S);
    let long = proxy(&fleet.user, fleet.key(), &ProxyTerms::new(long), &fleet.random).unwrap();
    assert_eq!(long.validity().unwrap().not_after_s, fleet.user.validity().unwrap().not_after_s);
}

/// Asks the library of VOMS, as a server does, whether it believes the attributes in `proxy.pem`.
const ASK_VOMS: &str = r#"
import ctypes
P = ctypes.c_void_p
crypto, voms = ctypes.CDLL("libcrypto.so.3"), ctypes.CDLL("libvomsapi.so.1")
for function, of, result in [
    (crypto.BIO_new_file, [ctypes.c_char_p] * 2, P), (crypto.PEM_read_bio_X509, [P] * 4, P),
    (crypto.OPENSSL_sk_new_null, [], P), (crypto.OPENSSL_sk_push, [P, P], ctypes.c_int),
    (voms.VOMS_Init, [ctypes.c_char_p] * 2, P), (voms.VOMS_Retrieve, [P, P, ctypes.c_int, P, P], ctypes.c_int),
    (voms.VOMS_ErrorMessage, [P, ctypes.c_int, P, ctypes.c_int], ctypes.c_char_p),
]:
    function.argtypes, function.restype = of, result
file = crypto.BIO_new_file(b"proxy.pem", b"r")
chain = crypto.OPENSSL_sk_new_null()
first = certificate = crypto.PEM_read_bio_X509(file, None, None, None)
while certificate:
    crypto.OPENSSL_sk_push(chain, certificate)
    certificate = crypto.PEM_read_bio_X509(file, None, None, None)
data, error = voms.VOMS_Init(b"vomsdir", b"."), ctypes.c_int()
if voms.VOMS_Retrieve(first, chain, 0, data, ctypes.byref(error)):
    print("believed")
else:
    print(voms.VOMS_ErrorMessage(data, error, None, 0).decode())
"#;

#[test]
fn voms_believes_what_an_attribute_certificate_says() {
    let mut fleet = Fleet::new();
    // The library knows RSA only: of a signature with ECDSA it says that it is wrong, and believes it nevertheless.
    fleet.good("openssl genpkey -algorithm rsa -out rsa.key");
    let key = Key::from_pem(&std::fs::read(fleet.path().join("rsa.key")).unwrap(), &fleet.random).unwrap();
    let name = fleet.voms.subject().unwrap();
    fleet.voms = profile::host(&fleet.authority, &name, &[], key, fleet.validity(), &fleet.random).unwrap();
    fleet.good("openssl genpkey -algorithm rsa -out rsa.key");
    let other = Key::from_pem(&std::fs::read(fleet.path().join("rsa.key")).unwrap(), &fleet.random).unwrap();
    let other = Credential { chain: fleet.voms.chain.clone(), key: other };
    let fqans =
        ["/testvo/Role=NULL/Capability=NULL".to_owned(), "/testvo/prod/Role=boss/Capability=NULL".to_owned()];
    let holder = &fleet.user.chain[0];
    let server = ("testvo", "voms.example.org:15000");
    let serial = serial(&fleet.random).unwrap();
    let said =
        AttributeCertificate::new(&fleet.voms, holder, server, &fqans, fleet.validity(), serial).unwrap();
    let dn = |name: &str| format!("/DC=org/DC=example/CN={name}");
    std::fs::create_dir_all(fleet.path().join("vomsdir/testvo")).unwrap();
    let lsc = format!("{}\n{}\n", dn("voms.example.org"), dn("Test  CA"));
    fleet.write("vomsdir/testvo/voms.example.org.lsc", &lsc);
    fleet.write("ask.py", ASK_VOMS);
    let show = |said: &AttributeCertificate, signer: &Credential| {
        let signed = said.sign(signer, &fleet.random).unwrap();
        let mut terms = ProxyTerms::new(fleet.validity());
        terms.extensions = vec![voms_extension(&[signed])];
        let proxy = proxy(&fleet.user, fleet.key(), &terms, &fleet.random).unwrap();
        assert!(fleet.verify(&proxy).0);
        fleet.write("proxy.pem", proxy.to_pem().expose());
        (fleet.good("voms-proxy-info -all -file proxy.pem"), fleet.good("python3 ask.py"))
    };
    let (shown, believed) = show(&said, &fleet.voms);
    for part in [
        "type      : RFC compliant proxy",
        "identity  : /DC=org/DC=example/CN=Ada",
        "VO        : testvo",
        "subject   : /DC=org/DC=example/CN=Ada",
        "issuer    : /DC=org/DC=example/CN=voms.example.org",
        "attribute : /testvo/Role=NULL/Capability=NULL",
        "attribute : /testvo/prod/Role=boss/Capability=NULL",
        "uri       : voms.example.org:15000",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert_eq!(believed, "believed\n");
    // Signed with another key in the name of VOMS.
    assert_ne!(show(&said, &other).1, "believed\n");
    // For this host, and for another one. The library does not read what the standard says.
    let (is_known, here) = fleet.run("hostname -f");
    let here = if is_known { here } else { fleet.good("uname -n") }.trim().to_owned();
    let elsewhere = "elsewhere.example.org".to_owned();
    for (targets, is_believed) in [
        (Targets::Voms(vec![elsewhere.clone(), here.clone()]), true),
        (Targets::Voms(vec![elsewhere]), false),
        (Targets::Standard(vec![here]), false),
    ] {
        let (shown, believed) = show(&said.clone().for_targets(&targets), &fleet.voms);
        assert!(shown.contains("/testvo/prod/Role=boss"), "{shown}");
        assert_eq!(believed == "believed\n", is_believed, "{targets:?}: {believed}");
    }
}

#[test]
fn openssl_reads_lists_and_refuses_what_is_on_them() {
    let fleet = Fleet::new();
    let revoked = |credentials: &[&Credential]| {
        let revoked = credentials
            .iter()
            .map(|credential| Revoked {
                serial: credential.contents().unwrap().serial,
                revoked_s: fleet.now_s,
            })
            .collect();
        let list = RevocationList::of(&fleet.authority, revoked, fleet.validity(), 7).unwrap();
        let list = list.sign(&fleet.authority.key, &fleet.random).unwrap();
        let hash = fleet.authority.subject().unwrap().hash().unwrap();
        fleet.write(&format!("{hash}.r0"), &pem::encode(pem::CRL, &list));
        fleet.write("list.pem", &pem::encode(pem::CRL, &list));
        fleet.write_chain(&fleet.user);
        fleet.run("openssl verify -crl_check -CApath . end.pem")
    };
    let (is_good, text) = revoked(&[]);
    assert!(is_good, "{text}");
    let (is_good, text) = revoked(&[&fleet.voms]);
    assert!(is_good, "{text}");
    let (is_good, text) = revoked(&[&fleet.voms, &fleet.user]);
    assert!(!is_good && text.contains("certificate revoked"), "{text}");
    let list = pem::decode(&std::fs::read(fleet.path().join("list.pem")).unwrap()).unwrap().remove(0);
    let (entries, number) = RevocationList::read(&list.der).unwrap();
    assert_eq!((entries[1].serial.clone(), number), (fleet.user.contents().unwrap().serial, 7));
    assert!(RevocationList::read(b"\x30\x00").is_err());
    let text = fleet.good("openssl crl -in list.pem -noout -text -CApath .");
    assert!(text.contains("verify OK") && text.contains("Version 2"), "{text}");
    assert!(text.contains("X509v3 CRL Number") && text.matches("Serial Number").count() == 2, "{text}");
}

#[test]
fn names_have_the_hashes_and_the_form_of_openssl() {
    let fleet = Fleet::new();
    for (text, how, is_same) in [
        ("/DC=org/DC=example/CN=Test  CA", Text::Utf8, true),
        ("/C=CH/O=CERN/OU=  GD /CN=Jo Bloggs", Text::Printable, true),
        ("/C=CH/O=Z\u{fc}rich  \u{c4}rzte/CN=\u{65e5}\u{672c}", Text::Utf8, false),
        ("/O=x/CN=host.example.org/emailAddress=a@B.example", Text::Utf8, true),
        ("/DC=org/UID=ada/L=Paris/ST=Here/CN=a=b,e", Text::Utf8, true),
    ] {
        let name = Name::parse(text, how).unwrap();
        let key = fleet.key();
        let made = profile::authority(&name, key, fleet.validity(), &fleet.random).unwrap();
        fleet.write("end.pem", &made.chain_pem());
        let printed = fleet.good("openssl x509 -in end.pem -noout -hash -subject -nameopt compat");
        let hash = printed.lines().next().unwrap();
        assert_eq!(name.hash().unwrap(), hash, "{text}");
        assert_eq!(name.to_string() == text, is_same, "{name}");
        assert_eq!(printed.lines().nth(1), Some(&*format!("subject={name}")));
        assert_eq!(Name::from_der(&name.to_der()).unwrap(), name);
        assert_eq!(made.subject().unwrap(), name);
    }
    let name: Name = "/DC=org/CN=host/node.example.org".parse().unwrap();
    assert_eq!(name.common_name().as_deref(), Some("host/node.example.org"));
    assert_eq!(name.above(), "/DC=org".parse().unwrap());
    for text in ["", "CN=x", "/", "/x", "/CN=", "/XX=y", "/DC=\u{fc}/CN=x", "/C=C_/CN=x"] {
        assert!(Name::parse(text, Text::Utf8).is_err(), "{text}");
    }
    assert!(Name::parse("/CN=a@b", Text::Printable).is_err());
    assert!(Name::from_der(b"\x30\x03abc").is_err());
}

#[test]
fn keys_are_read_in_every_form_and_sign() {
    let fleet = Fleet::new();
    for (make, convert) in [
        ("ecparam -name prime256v1 -genkey", ""),
        ("ecparam -name prime256v1 -genkey -noout", "ec -no_public"),
        ("ecparam -name secp384r1 -genkey", "ec"),
        ("ecparam -name secp384r1 -genkey -noout", "pkcs8 -topk8 -nocrypt"),
        ("genpkey -algorithm ed25519", ""),
        ("genpkey -algorithm rsa", "rsa -traditional"),
        ("genpkey -algorithm rsa", ""),
    ] {
        fleet.good(&format!("openssl {make} -out made.key"));
        if !convert.is_empty() {
            fleet.good(&format!("openssl {convert} -in made.key -out other.key"));
            std::fs::rename(fleet.path().join("other.key"), fleet.path().join("made.key")).unwrap();
        }
        let text = std::fs::read(fleet.path().join("made.key")).unwrap();
        let key = match Key::from_pem(&text, &fleet.random) {
            Ok(key) => key,
            // Without its public half a key of ECDSA is of no use to ring.
            Err(_) if convert == "ec -no_public" => continue,
            Err(cause) => panic!("{make} | {convert}: {cause}"),
        };
        assert_eq!(
            Key::from_pem(key.to_pem().expose().as_bytes(), &fleet.random).unwrap().public_key(),
            key.public_key()
        );
        let name = Name::parse("/CN=x", Text::Utf8).unwrap();
        let user = profile::user(&fleet.authority, &name, key, fleet.validity(), &fleet.random).unwrap();
        let proxy = proxy(&user, fleet.key(), &ProxyTerms::new(fleet.validity()), &fleet.random).unwrap();
        let (is_good, text) = fleet.verify(&proxy);
        assert!(is_good, "{make} | {convert}: {text}");
        let again = user.contents().unwrap();
        assert!(again.is_by(&fleet.authority).unwrap() && !again.is_by(&fleet.voms).unwrap());
        assert_eq!(again.validity, fleet.validity());
        let kind = again.key_strength().unwrap();
        assert!(
            [("ECDSA", 256), ("ECDSA", 384), ("Ed25519", 256), ("RSA", 2048)].contains(&kind),
            "{kind:?}"
        );
        let pem = proxy.to_pem();
        let again =
            Credential::from_pem(pem.expose().as_bytes(), pem.expose().as_bytes(), &fleet.random).unwrap();
        assert_eq!(again.chain, proxy.chain);
        let other = fleet.key().to_pem();
        assert!(
            Credential::from_pem(pem.expose().as_bytes(), other.expose().as_bytes(), &fleet.random).is_err()
        );
    }
    for (kind, convert) in [("PKCS#8", "pkcs8 -topk8"), ("the old form", "rsa -traditional -aes128")] {
        fleet.good("openssl genpkey -algorithm rsa -out made.key");
        fleet.good(&format!("openssl {convert} -in made.key -passout pass:secret -out other.key"));
        let text = std::fs::read(fleet.path().join("other.key")).unwrap();
        let cause = Key::from_pem(&text, &fleet.random).unwrap_err();
        assert!(cause.message().contains("encrypted"), "{kind}: {cause}");
        assert!(cause.advice().unwrap().to_string().contains("openssl pkey"), "{kind}: {cause}");
    }
    assert_eq!(format!("{:?}", fleet.key()), "Key(ECDSA P-256)");
}

#[test]
fn times_are_written_as_the_standard_says() {
    let fleet = Fleet::new();
    let name = Name::parse("/CN=x", Text::Utf8).unwrap();
    let contents = |not_before_s: i64, not_after_s: i64| {
        let validity = Validity { not_before_s, not_after_s };
        profile::end_entity(&fleet.authority, &name, &fleet.key(), validity, &fleet.random).unwrap()
    };
    // 1950-01-01 and 2049-12-31T23:59:59 are the ends of UTCTime.
    for (not_before_s, not_after_s, shown) in [
        (
            -631_152_000,
            2_524_607_999,
            "notBefore=Jan  1 00:00:00 1950 GMT\nnotAfter=Dec 31 23:59:59 2049 GMT",
        ),
        (951_782_400, 2_524_608_000, "notBefore=Feb 29 00:00:00 2000 GMT\nnotAfter=Jan  1 00:00:00 2050 GMT"),
        (
            -631_152_001,
            253_402_300_799,
            "notBefore=Dec 31 23:59:59 1949 GMT\nnotAfter=Dec 31 23:59:59 9999 GMT",
        ),
    ] {
        let made = contents(not_before_s, not_after_s).sign(&fleet.authority.key, &fleet.random).unwrap();
        fleet.write("end.pem", &pem::encode(pem::CERTIFICATE, &made));
        assert_eq!(fleet.good("openssl x509 -in end.pem -noout -dates").trim(), shown);
    }
    for (not_before_s, not_after_s) in [(0, 253_402_300_800), (i64::MIN, 0)] {
        assert!(contents(not_before_s, not_after_s).sign(&fleet.authority.key, &fleet.random).is_err());
    }
}

#[test]
fn blocks_are_found_among_other_text() {
    let block = pem::encode("THING", b"some bytes that are longer than forty-eight bytes: two lines of them");
    assert_eq!(block.lines().count(), 4);
    let with_returns = block.replace('\n', "\r\n");
    let text = [b"Bag Attributes\xff\xfe\n".as_slice(), with_returns.as_bytes(), block.as_bytes()];
    let found = pem::decode(&text.concat()).unwrap();
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|block| block.label == "THING" && block.der.starts_with(b"some bytes")));
    assert!(pem::decode(block.trim_end().trim_end_matches('-').as_bytes()).is_err());
    assert!(pem::decode(b"-----BEGIN X-----\n!\n-----END X-----\n").is_err());
    assert!(pem::decode(b"").unwrap().is_empty());
}

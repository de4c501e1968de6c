//! Proxies with VOMS attributes, judged by us and by VOMS's own library: some made by `voms-proxy-fake`, some with mistakes
//! that no server makes.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gridlane_auth::make::{
    AttributeCertificate, Credential, Curve, Extension, Key, Name, ProxyTerms, Targets, Text, Validity, pem,
    profile, proxy, voms_extension,
};
use gridlane_auth::voms::{self, VomsDir};
use gridlane_auth::{Fqan, x509};
use ring::rand::SystemRandom;
use tempfile::TempDir;

const HOUR_S: i64 = 3600;
const CA: &str = "/DC=org/DC=example/CN=CA";
const ADA: &str = "/DC=org/DC=example/CN=Ada";
const SERVER: &str = "/DC=org/DC=example/CN=voms.example.org";

/// A reader's result for a proxy: groups and roles; nothing when its attribute certificate does not count.
type Verdict = Vec<String>;

/// An authority, a user and a VOMS server, with keys of RSA: `voms-proxy-fake` names the algorithm of others wrongly.
struct Site {
    dir: TempDir,
    random: SystemRandom,
    now_s: i64,
    ca: Credential,
    user: Credential,
    server: Credential,
}

impl Site {
    fn new() -> Site {
        let random = SystemRandom::new();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let now_s = i64::try_from(now.as_secs()).unwrap();
        let validity = Validity::from_now(now_s, 48 * HOUR_S);
        let ca = profile::authority(&name(CA), rsa_key(&random), validity, &random).unwrap();
        let user = profile::user(&ca, &name(ADA), rsa_key(&random), validity, &random).unwrap();
        let server = profile::host(&ca, &name(SERVER), &[], rsa_key(&random), validity, &random).unwrap();
        let site = Site { dir: TempDir::new().unwrap(), random, now_s, ca, user, server };
        site.write(&format!("ca/{}.0", site.ca.subject().unwrap().hash().unwrap()), &site.ca.chain_pem());
        for (name, credential) in [("user", &site.user), ("server", &site.server)] {
            site.write(&format!("{name}.pem"), &credential.chain_pem());
            site.write(&format!("{name}.key"), credential.key.to_pem().expose());
        }
        site.write("vomsdir/testvo/voms.example.org.lsc", &format!("{SERVER}\n{CA}\n"));
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Only its owner may read it: VOMS refuses others.
    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(path).unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// A proxy by `voms-proxy-fake`.
    fn fake(&self, name: &str, arguments: &str) {
        let usual = "-rfc -bits 2048 -cert user.pem -key user.key -certdir ca -hostcert server.pem -hostkey server.key \
                     -voms testvo -uri voms.example.org:15000 -hours 6 -vomslife 6";
        let output = Command::new("voms-proxy-fake")
            .args(usual.split(' ').chain(arguments.split(' ')))
            .args(["-out", name])
            .current_dir(self.dir.path())
            .env("HOME", self.dir.path())
            .env("X509_CERT_DIR", self.path("ca"))
            .output()
            .expect("voms-proxy-fake is needed: scripts/bootstrap.sh --test (package voms-clients)");
        assert!(self.path(name).exists(), "{arguments}: {}", printed(&output));
    }

    /// The server's statement about the user.
    fn said(&self, fqans: &[&str]) -> AttributeCertificate {
        let fqans: Vec<String> = fqans.iter().map(|fqan| (*fqan).to_owned()).collect();
        let place = ("testvo", "voms.example.org:15000");
        let validity = Validity::from_now(self.now_s, 6 * HOUR_S);
        AttributeCertificate::new(&self.server, &self.user.chain[0], place, &fqans, validity, vec![7])
            .unwrap()
    }

    /// A proxy of the user with these attribute certificates, by us.
    fn proxy(&self, name: &str, acs: &[Vec<u8>]) {
        let mut terms = ProxyTerms::new(Validity::from_now(self.now_s, 6 * HOUR_S));
        terms.extensions.push(voms_extension(acs));
        let key = Key::generate(Curve::P256, &self.random).unwrap();
        let proxy = proxy(&self.user, key, &terms, &self.random).unwrap();
        self.write(name, proxy.to_pem().expose());
    }

    fn ours(&self, proxy: &str, vomsdir: &str) -> Verdict {
        let (trust, warnings) = x509::Trust::read(files(&self.path("ca")));
        assert!(warnings.is_empty(), "{warnings:?}");
        let (dir, warnings) = VomsDir::read(files(&self.path(vomsdir)));
        assert!(warnings.is_empty(), "{warnings:?}");
        let chain = pem::certificates(&fs::read(self.path(proxy)).unwrap()).unwrap();
        let verified = x509::verify(&chain, &trust, self.now_s).unwrap();
        assert_eq!((verified.dn(), verified.proxy_depth()), (ADA, 1), "{proxy}");
        let (fqans, ends_s, refusals) = voms::attributes(&verified, &dir, &trust, &[], self.now_s);
        assert_eq!(fqans.is_empty(), !refusals.is_empty(), "{proxy}: {refusals:?}");
        assert_eq!(fqans.is_empty(), ends_s.is_none(), "{proxy}");
        fqans.iter().map(Fqan::to_string).collect()
    }

    /// The results of VOMS's library in C for these, in their order: XRootD uses that library.
    fn theirs(&self, proxies: &[&str], vomsdir: &str) -> Vec<Verdict> {
        let output = Command::new("python3")
            .args(["-c", JUDGE, vomsdir, "ca"])
            .args(proxies)
            .current_dir(self.dir.path())
            .env("HOME", self.dir.path())
            .output()
            .expect("python3 is needed: scripts/bootstrap.sh --test");
        assert!(output.status.success(), "{}", printed(&output));
        let lines = String::from_utf8(output.stdout).unwrap();
        let verdicts: Vec<Verdict> = lines
            .lines()
            .map(|line| {
                let groups = line.split(' ').filter(|fqan| fqan.starts_with('/'));
                // Without what means nothing; and as it is, where we would not take it.
                let read = |fqan: &str| {
                    fqan.parse::<Fqan>().map_or_else(|_| fqan.to_owned(), |fqan| fqan.to_string())
                };
                groups.map(read).collect()
            })
            .collect();
        assert_eq!(verdicts.len(), proxies.len(), "{lines}");
        verdicts
    }
}

#[test]
fn proxies_of_voms_proxy_fake() {
    let site = Site::new();
    site.write("elsewhere/testvo/voms.example.org.lsc", &format!("{SERVER}\n/DC=org/CN=Other\n"));
    site.write(
        "alternatives/testvo/voms.example.org.lsc",
        &format!("{ADA}\n{CA}\n------ NEXT CHAIN ------\n{SERVER}\n{CA}\n"),
    );
    site.write("longer/testvo/voms.example.org.lsc", &format!("{SERVER}\n{CA}\n{CA}\n{CA}\n"));
    site.write("certificates/testvo/server.pem", &site.server.chain_pem());
    site.write("for-all/server.pem", &site.server.chain_pem());
    site.write("others/testvo/user.pem", &site.user.chain_pem());
    site.write("other-vo/cms/voms.example.org.lsc", &format!("{SERVER}\n{CA}\n"));

    let many: Vec<String> = (0..60).map(|number| format!("-fqan /testvo/g{number}/Role=r{number}")).collect();
    let many = many.join(" ");
    let arguments = [
        ("plain", "-newformat -fqan /testvo/Role=NULL/Capability=NULL"),
        (
            "roles",
            "-newformat -fqan /testvo/prod/Role=manager/Capability=NULL -fqan /testvo -fqan /testvo/prod/Role=NULL",
        ),
        ("many", many.as_str()),
        ("old", "-fqan /testvo/a"),
        ("limited", "-limited -newformat -fqan /testvo"),
        ("generic", "-newformat -fqan /testvo -ga name=value"),
        ("past", "-newformat -fqan /testvo -pastac 24:00"),
        ("foreign", "-newformat -fqan /cms"),
        ("mixed", "-newformat -fqan /testvo -fqan /testvo2/x"),
        ("other-host", "-newformat -fqan /testvo -uri other.example.org:15000"),
        ("target", "-newformat -fqan /testvo -target other.example.org"),
    ];
    for (name, arguments) in arguments {
        site.fake(name, arguments);
    }
    let names = arguments.map(|(name, _)| name);
    let theirs = site.theirs(&names, "vomsdir");
    let ours: Vec<Verdict> = names.iter().map(|name| site.ours(name, "vomsdir")).collect();
    assert_eq!(ours, theirs);
    assert_eq!(ours[1], ["/testvo/prod/Role=manager", "/testvo", "/testvo/prod"]);
    assert_eq!(ours[2].len(), 60);
    let counts: Vec<usize> = ours.iter().map(Vec::len).collect();
    assert_eq!(counts, [1, 3, 60, 1, 1, 1, 0, 0, 0, 0, 0]);

    // The same proxy with other directories.
    for (vomsdir, counts) in [
        ("elsewhere", false),
        ("alternatives", true),
        ("certificates", true),
        ("for-all", true),
        ("others", false),
        ("other-vo", false),
    ] {
        let expected = if counts { vec!["/testvo".to_owned()] } else { vec![] };
        assert_eq!(site.ours("plain", vomsdir), expected, "{vomsdir}");
        assert_eq!(site.theirs(&["plain"], vomsdir), [expected], "{vomsdir}");
    }
    // The library in C takes the beginning of a longer list; that in Java and we do not.
    assert_eq!(site.ours("plain", "longer"), [""; 0]);
    assert_eq!(site.theirs(&["plain"], "longer"), [["/testvo"]]);
}

#[test]
fn mistakes_that_no_server_makes() {
    type Change = fn(&Site, &mut AttributeCertificate);
    let site = Site::new();
    /// Their verdict is ours, or why not.
    enum Theirs {
        Same,
        Other(&'static str),
    }
    use Theirs::{Other, Same};
    let cases: Vec<(&str, bool, Theirs, Change)> = vec![
        ("nothing", true, Same, |_, _| {}),
        ("soon", true, Same, |site, said| said.validity.not_before_s = site.now_s + 200),
        ("later", false, Same, |site, said| said.validity.not_before_s = site.now_s + 900),
        ("just-over", true, Same, |site, said| {
            said.validity = Validity { not_before_s: site.now_s - 9000, not_after_s: site.now_s - 100 }
        }),
        ("over", false, Same, |site, said| {
            said.validity = Validity { not_before_s: site.now_s - 9000, not_after_s: site.now_s - 900 }
        }),
        ("other-serial", false, Same, |_, said| said.holder_serial = vec![1, 2, 3]),
        ("other-issuer", false, Same, |_, said| said.holder_issuer = name("/DC=org/CN=Other")),
        ("old-holder", true, Same, |site, said| said.holder_issuer = site.user.subject().unwrap()),
        ("capitals", true, Same, |_, said| {
            said.holder_issuer = Name::parse("/DC=ORG/DC=example/CN=ca", Text::Printable).unwrap();
        }),
        ("other-signer", false, Same, |site, said| said.issuer = site.user.subject().unwrap()),
        ("other-key", false, Same, |_, said| replace(said, KEY_ID, Extension::authority_key_id(&[7; 20]))),
        ("no-key", true, Other("asks for it, as RFC 5755 does not"), |_, said| {
            said.extensions.retain(|it| it.oid != KEY_ID)
        }),
        ("revocable", true, Other("asks for it, as RFC 5755 does not"), |_, said| {
            said.extensions.retain(|it| it.oid != NO_REVOCATION)
        }),
        ("unknown", true, Same, |_, said| {
            said.extensions.push(Extension::raw(&[1, 2, 3], false, vec![5, 0]))
        }),
        ("critical", false, Same, |_, said| {
            said.extensions.push(Extension::raw(&[1, 2, 3], true, vec![5, 0]))
        }),
        ("critical-known", false, Same, |_, said| {
            replace(said, NO_REVOCATION, Extension::raw(NO_REVOCATION, true, vec![5, 0]))
        }),
        ("twice", false, Other("takes the first"), |_, said| {
            said.extensions.push(said.extensions[1].clone())
        }),
        ("target", false, Same, |_, said| {
            *said = said.clone().for_targets(&Targets::Voms(vec!["x.example.org".to_owned()]))
        }),
        ("standard-target", false, Same, |_, said| {
            *said = said.clone().for_targets(&Targets::Standard(vec!["x.example.org".to_owned()]));
        }),
        ("alike", false, Same, |_, said| said.fqans.push("/testvo2".to_owned())),
        ("no-slash", false, Same, |_, said| said.fqans.push("testvo".to_owned())),
        ("upwards", false, Other("does not look at names of groups"), |_, said| {
            said.fqans.push("/testvo/../cms".to_owned())
        }),
        ("no-port", false, Same, |_, said| said.authority = "testvo://voms.example.org".to_owned()),
        ("no-vo", false, Same, |_, said| said.authority = "voms.example.org:15000".to_owned()),
        ("no-certificates", false, Same, |_, said| said.extensions.retain(|it| it.oid != CERTIFICATES)),
        ("garbled-certificates", false, Same, |_, said| {
            replace(said, CERTIFICATES, Extension::raw(CERTIFICATES, false, vec![0x30, 0]))
        }),
    ];
    let names: Vec<&str> = cases.iter().map(|(name, ..)| *name).collect();
    for (name, _, _, change) in &cases {
        let mut said = site.said(&["/testvo/a", "/testvo/Role=b"]);
        change(&site, &mut said);
        site.proxy(name, &[said.sign(&site.server, &site.random).unwrap()]);
    }
    let theirs = site.theirs(&names, "vomsdir");
    for ((name, counts, expected, _), theirs) in cases.iter().zip(theirs) {
        let ours = site.ours(name, "vomsdir");
        assert_eq!(ours, if *counts { vec!["/testvo/a", "/testvo/Role=b"] } else { vec![] }, "{name}");
        match expected {
            Same => assert_eq!(ours, theirs, "{name}"),
            Other(why) => assert_ne!(ours, theirs, "{name}: {why}"),
        }
    }
}

#[test]
fn changed_on_the_way() {
    let site = Site::new();
    let good = site.said(&["/testvo"]).sign(&site.server, &site.random).unwrap();
    // Each in a proxy that is good by itself. The first bytes are its frame, where the library would read the next one.
    let places =
        [8, 20, 40, good.len() / 3, good.len() / 2, good.len() - 300, good.len() - 200, good.len() - 1];
    let names: Vec<String> = places.iter().map(|at| format!("changed-{at}")).collect();
    for (at, name) in places.into_iter().zip(&names) {
        let mut changed = good.clone();
        changed[at] ^= 1;
        site.proxy(name, &[changed]);
        assert_eq!(site.ours(name, "vomsdir"), [""; 0], "{name}");
    }
    // That of another user, which is good.
    let validity = Validity::from_now(site.now_s, 6 * HOUR_S);
    let key = Key::generate(Curve::P256, &site.random).unwrap();
    let other =
        profile::user(&site.ca, &name("/DC=org/DC=example/CN=Eve"), key, validity, &site.random).unwrap();
    let place = ("testvo", "voms.example.org:15000");
    let of_other = AttributeCertificate::new(
        &site.server,
        &other.chain[0],
        place,
        &["/testvo".to_owned()],
        validity,
        vec![8],
    )
    .unwrap();
    site.proxy("of-other", &[of_other.sign(&site.server, &site.random).unwrap()]);
    assert_eq!(site.ours("of-other", "vomsdir"), [""; 0]);
    // Signed by the user, under the name of the server.
    site.proxy("by-user", &[site.said(&["/testvo"]).sign(&site.user, &site.random).unwrap()]);
    assert_eq!(site.ours("by-user", "vomsdir"), [""; 0]);
    site.proxy("good", &[good]);
    assert_eq!(site.ours("good", "vomsdir"), ["/testvo"]);
    let theirs = site.theirs(&["of-other", "by-user", "good", names.last().unwrap()], "vomsdir");
    assert_eq!(theirs, [vec![], vec![], vec!["/testvo"], vec![]]);
}

const KEY_ID: &[u64] = &[2, 5, 29, 35];
const NO_REVOCATION: &[u64] = &[2, 5, 29, 56];
const CERTIFICATES: &[u64] = &[1, 3, 6, 1, 4, 1, 8005, 100, 100, 10];

fn replace(said: &mut AttributeCertificate, oid: &[u64], by: Extension) {
    *said.extensions.iter_mut().find(|extension| extension.oid == oid).unwrap() = by;
}

fn name(text: &str) -> Name {
    Name::parse(text, Text::Utf8).unwrap()
}

/// ring makes no RSA keys.
fn rsa_key(random: &SystemRandom) -> Key {
    let arguments = ["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"];
    let output = Command::new("openssl").args(arguments).output().expect("openssl is needed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Key::from_pem(&output.stdout, random).unwrap()
}

/// All files below a directory, with their paths in it.
fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            found.extend(files(&path).into_iter().map(|(below, bytes)| (format!("{name}/{below}"), bytes)));
        } else {
            found.push((name, fs::read(path).unwrap()));
        }
    }
    found
}

fn printed(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Asks libvomsapi (of the package that `voms-clients` and XRootD's plug-in need) with all checks on, each proxy in a
/// process of its own. The structures are those of `voms_apic.h`, as far as they are needed.
const JUDGE: &str = r#"
import ctypes, os, sys

pointer, number, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p

class Voms(ctypes.Structure):
    _fields_ = [(name, number if name in ("siglen", "type", "datalen", "version") else pointer) for name in
        "siglen signature user userca server serverca voname uri date1 date2 type std custom datalen version".split()
    ] + [("fqan", ctypes.POINTER(text))]

class Data(ctypes.Structure):
    _fields_ = [("cdir", text), ("vdir", text), ("data", ctypes.POINTER(ctypes.POINTER(Voms)))]

def all_of(pointers):
    at = 0
    while pointers[at]:
        yield pointers[at]
        at += 1

def judge(proxy):
    api, c = ctypes.CDLL("libvomsapi.so.1"), ctypes.CDLL(None)
    api.VOMS_Init.restype, c.fopen.restype = ctypes.POINTER(Data), pointer
    error = number(0)
    data = api.VOMS_Init(sys.argv[1].encode(), sys.argv[2].encode())
    if not api.VOMS_RetrieveFromFile(pointer(c.fopen(proxy.encode(), b"r")), 0, data, ctypes.byref(error)):
        return f"refused {error.value}"
    return " ".join(["good"] + [fqan.decode() for voms in all_of(data.contents.data) for fqan in all_of(voms.contents.fqan)])

for proxy in sys.argv[3:]:
    child = os.fork()
    if child == 0:
        os.write(1, (judge(proxy) + "\n").encode())
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        os.write(1, b"died\n")
"#;

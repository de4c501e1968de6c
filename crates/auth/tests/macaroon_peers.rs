//! Macaroons and passwords that other people's programs make and check: pymacaroons, and Apache's `htpasswd`.
//!
//! What is missing here is a failure with a cure, never a skipped test.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

use std::collections::HashSet;
use std::io::Write;
use std::process::{Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gridlane_auth::macaroon::{Caveat, Check, Keys, Macaroon, Terms, attenuate, mint, verify};
use gridlane_auth::password::{Users, make_line};
use gridlane_auth::{Grants, Operation};
use gridlane_dav::ResourcePath;

const NOW_S: i64 = 1_800_000_000;

/// Runs a program with these arguments and this input; what it says, when it ends well.
fn run(program: &str, arguments: &[&str], input: &str, package: &str) -> String {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|cause| {
            panic!("{program} is needed: {cause}: scripts/bootstrap.sh --test (package {package})")
        });
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn python(script: &str, input: &str) -> String {
    // Debian's own python, where the package is.
    run("/usr/bin/python3", &["-c", script], input, "python3-pymacaroons").trim().to_owned()
}

/// A secret, as a file has it.
fn secret() -> (String, Keys) {
    let text = STANDARD.encode([0xa5; 64]);
    let keys = Keys::parse(&text).unwrap();
    (text, keys)
}

#[test]
fn pymacaroons_verifies_what_we_mint() {
    let (secret, keys) = secret();
    let path = ResourcePath::parse("/data/é x").unwrap();
    let terms = Terms {
        location: "SITE",
        name: "/DC=org/DC=example/CN=Ada",
        rights: Grants::READ.with(Grants::WRITE).with(Grants::LIST),
        path: &path,
        expires_s: NOW_S + 600,
        asked: Some(Grants::READ),
        networks: &[vec!["10.0.0.0/8".parse().unwrap()]],
    };
    let made = mint(&keys, [3; 16], &terms).unwrap().text;
    let less =
        attenuate(made.expose(), &[Caveat::Path(ResourcePath::parse("/data/é x/y").unwrap())]).unwrap();
    let script = r#"
import base64, sys
from pymacaroons import Macaroon, Verifier
secret = base64.b64decode(sys.stdin.readline())
for line in sys.stdin:
    macaroon = Macaroon.deserialize(line.strip())
    verifier = Verifier()
    for caveat in macaroon.caveats:
        verifier.satisfy_exact(caveat.caveat_id)
    assert verifier.verify(macaroon, secret)
    try:
        verifier.verify(macaroon, secret + b'x')
        print('wrong secret')
    except Exception:
        pass
    print(macaroon.location, macaroon.identifier, *(caveat.caveat_id for caveat in macaroon.caveats), sep='|')
"#;
    let said = python(script, &format!("{secret}\n{}\n{}\n", made.expose(), less.expose()));
    let plain = "SITE|03030303-0303-4303-8303-030303030303|name:/DC=org/DC=example/CN=Ada|\
                 activity:READ_METADATA,UPLOAD,DOWNLOAD,LIST,OVERWRITE|activity:READ_METADATA,DOWNLOAD|\
                 path:/data/é x|before:2027-01-15T08:10:00Z|ip:10.0.0.0/8";
    assert_eq!(said, format!("{plain}\n{plain}|path:/data/é x/y"));
}

#[test]
fn we_verify_what_pymacaroons_makes() {
    let (secret, keys) = secret();
    let script = r#"
import base64, sys
from pymacaroons import Macaroon
macaroon = Macaroon(location='SITE', identifier='an identifier', key=base64.b64decode(sys.stdin.readline()))
for caveat in ['name:ada', 'activity:DOWNLOAD,LIST,UPLOAD', 'path:/a', 'before:2027-01-15T08:10:00Z']:
    macaroon.add_first_party_caveat(caveat)
print(macaroon.serialize())
# Its bearer gives less of it away.
less = Macaroon.deserialize(macaroon.serialize())
for caveat in ['path:/a/b', 'activity:DOWNLOAD', 'before:2027-01-15T08:05:00Z']:
    less.add_first_party_caveat(caveat)
print(less.serialize())
less.add_first_party_caveat('colour:red')
print(less.serialize())
macaroon.add_third_party_caveat('elsewhere', 'a key', 'who are you?')
print(macaroon.serialize())
print(Macaroon(location='SITE', identifier='x', key='a key', version=2).serialize())
"#;
    let said = python(script, &secret);
    let [plain, less, unknown, third, second] = said.lines().collect::<Vec<_>>().try_into().unwrap();
    let revoked = HashSet::new();
    let address = "192.0.2.1".parse().unwrap();
    let check = Check { keys: &keys, location: "SITE", revoked: &revoked, address, now_s: NOW_S };
    let identity = verify(plain, &check).unwrap();
    assert_eq!((identity.name.as_str(), identity.id.as_str()), ("ada", "an identifier"));
    assert_eq!((identity.capability.under.to_string().as_str(), identity.expires_s), ("/a", NOW_S + 600));
    assert!(identity.capability.may.includes(Operation::Create));
    let identity = verify(less, &check).unwrap();
    assert_eq!((identity.capability.under.to_string().as_str(), identity.expires_s), ("/a/b", NOW_S + 300));
    assert_eq!(identity.capability.may, Grants::READ.with(Grants::of(Operation::Stat)));
    for (text, why) in [
        (unknown, "\"colour:red\" is not understood"),
        (third, "third-party caveat"),
        (second, "second binary format"),
    ] {
        let refusal = verify(text, &check).unwrap_err();
        assert!(refusal.message.contains(why), "{refusal}");
    }
    assert_eq!(Macaroon::parse(plain).unwrap().to_text().expose(), plain);
}

#[test]
fn htpasswd_s_lines_are_ours() {
    let line = run("htpasswd", &["-niB", "ada"], "swordfish", "apache2-utils");
    let users = Users::parse(&line).unwrap();
    assert!(users.verify("ada", "swordfish").is_ok() && users.verify("ada", "Swordfish").is_err());
    for kind in ["-nid", "-nim", "-nis"] {
        let line = run("htpasswd", &[kind, "ada"], "swordfish", "apache2-utils");
        assert!(Users::parse(&line).unwrap_err().to_string().contains("bcrypt"), "{line}");
    }
}

#[test]
fn htpasswd_checks_our_lines() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), make_line("ada", "swördfish", [9; 16], 5).unwrap()).unwrap();
    let path = file.path().to_str().unwrap();
    run("htpasswd", &["-vi", path, "ada"], "swördfish", "apache2-utils");
}

//! Groups and roles from VOMS servers: a stand-in that can lie, and Debian's own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use gridlane_auth::make::{AttributeCertificate, pem};

use crate::identity::Site;
use crate::support::Scratch;
use crate::support::client::{Outcome, gridlane, run, text};
use crate::support::debian_voms::DebianVoms;
use crate::support::pki::{ADA_DN, Credential, HOST_DN, Pki};
use crate::support::tools::{curl, tool};
use crate::support::voms::proxy_info;
use crate::support::voms_server::{Asked, Reply, VomsServer, as_it_is, vomses};
use crate::support::xrootd_auth;

/// People, the authorities that they trust, and a place for files.
struct Home {
    pki: Pki,
    scratch: Scratch,
}

impl Home {
    fn new() -> Home {
        let pki = Pki::new();
        Home { pki, scratch: Scratch::new() }
    }

    /// `gridlane auth proxy` of a user, which asks these servers.
    fn command(&self, user: &str, lines: &[String], options: &[&str]) -> Command {
        command(&self.pki, &self.scratch, user, lines, options)
    }

    fn proxy(&self, user: &str, lines: &[String], options: &[&str]) -> Outcome {
        made(self.command(user, lines, options), &self.out())
    }

    fn out(&self) -> PathBuf {
        self.scratch.join("proxy.pem")
    }
}

fn command(pki: &Pki, scratch: &Scratch, user: &str, lines: &[String], options: &[&str]) -> Command {
    let (user, out) = (pki.credential(user), scratch.join("proxy.pem"));
    let mut command = gridlane();
    command.args(["auth", "proxy", "--cert", text(&user.cert), "--key", text(&user.key)]);
    command.args(["--out", text(&out), "--vomses", text(&vomses(scratch, lines))]).args(options);
    command.env("X509_CERT_DIR", pki.certificates()).env("X509_VOMS_DIR", pki.vomsdir());
    command
}

/// Runs it, and remembers the key that it makes.
fn made(command: Command, out: &Path) -> Outcome {
    let outcome = run(command);
    if out.exists() {
        let _ = Credential::from_file(out);
    }
    outcome
}

/// What VOMS's program reads in a proxy.
fn attributes(pki: &Pki, proxy: &Path) -> Vec<String> {
    let said = proxy_info(pki, &Credential::from_file(proxy), &["-all"]).ok().text();
    let found = said.lines().filter_map(|line| line.strip_prefix("attribute : "));
    found.map(|fqan| fqan.trim_end_matches("/Capability=NULL").replace("/Role=NULL", "")).collect()
}

/// The stand-in is what VOMS's own client takes for a server, in both protocols.
#[test]
fn the_stand_in_is_a_server_for_the_own_client_of_voms() {
    let home = Home::new();
    let ada = home.pki.credential("ada");
    for speaks_http in [true, false] {
        let server = VomsServer::with(&home.pki, move |asked: &Asked| match asked.is_http && !speaks_http {
            true => Reply::Closes,
            false => Reply::Gives(asked.fqans.clone(), as_it_is),
        });
        let lines = vomses(&home.scratch, &[server.line()]);
        let out = home.out();
        let mut command = tool("voms-proxy-init", "voms-clients");
        command.args(["-cert", text(&ada.cert), "-key", text(&ada.key), "-out", text(&out), "-rfc"]);
        command.args(["-certdir", text(&home.pki.certificates()), "-vomses", text(&lines), "-bits", "2048"]);
        command.args(["-voms", "gridlane:/gridlane/Role=admin", "-voms", "gridlane:/gridlane"]);
        command.env("X509_VOMS_DIR", home.pki.vomsdir()).env("HOME", home.scratch.path());
        made(command, &out).exits(0);
        assert_eq!(attributes(&home.pki, &out), ["/gridlane/Role=admin", "/gridlane"]);
        let asked = server.asked();
        let last = asked.last().unwrap();
        assert_eq!((last.is_http, last.subject.as_str()), (speaks_http, ADA_DN));
        assert_eq!(asked.len(), if speaks_http { 1 } else { 2 });
    }
}

#[test]
fn what_a_server_gives_is_in_the_proxy_and_is_believed() {
    let site = Site::new();
    let wanted = ["--voms", "gridlane:/gridlane/Role=admin", "--voms", "gridlane", "--voms-lifetime", "3"];
    for (speaks_http, user, strength) in
        [(true, "ada", "2048 bits (RSA"), (false, "ada-ecdsa", "256 bits (ECDSA")]
    {
        let server = VomsServer::with(&site.pki, move |asked: &Asked| match asked.is_http && !speaks_http {
            true => Reply::Closes,
            false => Reply::Gives(asked.fqans.clone(), as_it_is),
        });
        let out = site.scratch.join("proxy.pem");
        let options = [&wanted[..], &["--json"]].concat();
        let outcome =
            made(command(&site.pki, &site.scratch, user, &[server.line()], &options), &out).exits(0);
        let event = outcome.event("made");
        let fqans = serde_json::json!(["/gridlane/Role=admin", "/gridlane"]);
        assert_eq!(
            (&event["vos"][0]["fqans"], &event["vos"][0]["server"]),
            (&fqans, &server.address().into())
        );
        assert_eq!(outcome.stderr, "", "nothing is to be told of what is as it should be");
        let asked = server.asked();
        let last = asked.last().unwrap();
        assert_eq!((last.is_http, last.lifetime_s), (speaks_http, 3 * 3600));
        assert_eq!(
            (&last.fqans[..], last.subject.as_str()),
            (&["/gridlane/Role=admin".to_owned(), "/gridlane".to_owned()][..], ADA_DN)
        );
        assert_eq!(attributes(&site.pki, &out), ["/gridlane/Role=admin", "/gridlane"]);
        let subject = proxy_info(&site.pki, &Credential::from_file(&out), &["-acsubject"]).ok().text();
        assert_eq!(subject.trim(), ADA_DN);
        let mut command = gridlane();
        command.args(["auth", "proxy", "--show", text(&out)]);
        run(command).exits(0).says(&[strength, "attribute: /gridlane/Role=admin"]);

        // A server of data lets the admin write, over https.
        let upload = site.scratch.file("up", b"new");
        let mut command = gridlane();
        command.args(["cp", text(&upload), &site.url(&format!("vo/{user}"))]);
        site.run(command, Some(&Credential::from_file(&out)), None).exits(0);
        assert_eq!(fs::read(site.exported(&format!("vo/{user}"))).unwrap(), b"new");
    }
}

/// Debian's XRootD lets them in over https, and by gsi, which takes no key but RSA's.
#[test]
fn xrootd_believes_what_a_server_gave() {
    let home = Home::new();
    let server = xrootd_auth::voms(&home.pki);
    server.put("vo/f", b"bytes");
    let voms = VomsServer::new(&home.pki);
    let ask = |proxy: Option<&Credential>| {
        let mut command = curl();
        command.arg("--capath").arg(home.pki.certificates()).args(["--write-out", "%{http_code}"]);
        if let Some(proxy) = proxy {
            command.arg("--cert").arg(&proxy.file);
        }
        command.arg(server.url_over("https", "vo/f"));
        run(command).ok().text()
    };
    home.proxy("ada", &[voms.line()], &["--voms", "gridlane"]).exits(0);
    assert_eq!(ask(Some(&Credential::from_file(&home.out()))), "bytes200");
    let target = home.scratch.join("got");
    let by_gsi = || {
        let mut command = tool("xrdcp", "xrootd-client");
        command.args(["--silent", "--force", &server.url_over("root", "vo/f"), text(&target)]);
        command.env("X509_USER_PROXY", home.out()).env("X509_CERT_DIR", home.pki.certificates());
        run(command).code
    };
    assert_eq!(by_gsi(), Some(0));
    assert_eq!(fs::read(&target).unwrap(), b"bytes");
    home.proxy("ada", &[voms.line()], &["--voms", "gridlane", "--key-type", "ec"]).exits(0);
    assert_ne!(by_gsi(), Some(0), "then this option would be of no use");
    home.proxy("ada", &[], &[]).exits(0);
    let without = ask(Some(&Credential::from_file(&home.out())));
    assert!(without.ends_with("403"), "{without}");
}

/// Debian's server (2.1.0) closes the connection on HTTP, and answers in the older way; it knows who is in its VO.
#[test]
fn debians_server_gives_and_refuses() {
    let home = Home::new();
    let server = DebianVoms::start(&home.pki);
    let wanted = ["--voms", "gridlane:/gridlane/Role=admin", "--voms", "gridlane"];
    let outcome = home.proxy("ada", &[server.line()], &wanted).exits(0);
    assert_eq!(outcome.stderr, "", "{}", server.log());
    assert_eq!(attributes(&home.pki, &home.out()), ["/gridlane/Role=admin", "/gridlane"]);
    // By a proxy that is there already, for longer than the server likes.
    let first = home.scratch.join("first.pem");
    fs::rename(home.out(), &first).unwrap();
    let mut command = gridlane();
    command.args(["auth", "proxy", "--cert", text(&first), "--out", text(&home.out()), "--voms", "gridlane"]);
    command.args(["--vomses", text(&home.scratch.join("vomses")), "--voms-lifetime", "100"]);
    command.env("X509_CERT_DIR", home.pki.certificates()).env("X509_VOMS_DIR", home.pki.vomsdir());
    made(command, &home.out()).exits(0);
    assert_eq!(attributes(&home.pki, &home.out()), ["/gridlane"]);
    for (user, fqan, words) in [
        ("eve", "gridlane", "User unknown to this VO"),
        ("ada", "gridlane:/gridlane/Role=boss", "Unable to satisfy"),
    ] {
        home.proxy(user, &[server.line()], &["--voms", fqan]).exits(4).says(&[words, "it says: gridlane"]);
    }
    home.proxy("ada", &[server.line()], &["--voms", "gridlane", "--hours", "100", "--voms-lifetime", "90"])
        .exits(0)
        .says(&["says: ", "shortened to 86400 seconds"]);
}

#[test]
fn of_several_servers_one_that_gives_is_enough() {
    let home = Home::new();
    let knows_nobody = VomsServer::with(&home.pki, |_: &Asked| {
        Reply::Refuses("NoSuchUser", 1001, "gridlane: User unknown to this VO.")
    });
    let is_broken =
        VomsServer::with(&home.pki, |_: &Asked| Reply::Refuses("InternalError", 1006, "no database"));
    let good = VomsServer::new(&home.pki);
    let lines = [knows_nobody.line(), is_broken.line(), good.line()];
    let words = [
        format!("{}: it says: gridlane: User unknown to this VO", knows_nobody.address()),
        format!("{}: it says: no database", is_broken.address()),
    ];
    let words = words.each_ref().map(String::as_str);
    home.proxy("ada", &lines, &["--voms", "gridlane"]).exits(0).says(&words).says(&[&good.address()]);
    assert_eq!(attributes(&home.pki, &home.out()), ["/gridlane"]);
    // Without it every reason is told, and what the user can do something about decides.
    let before = fs::read(home.out()).unwrap();
    home.proxy("ada", &lines[..2], &["--voms", "gridlane"]).exits(4).says(&words);
    assert_eq!(fs::read(home.out()).unwrap(), before, "the proxy that is there stays");
    // A refusal is an answer: it is not asked for once more in the older way.
    assert!(knows_nobody.asked().iter().all(|asked| asked.is_http));
}

/// Each by its own servers, called by whatever name their lines have.
#[test]
fn several_vos_are_asked_for_what_is_theirs() {
    let home = Home::new();
    let (one, other) = (VomsServer::new(&home.pki), VomsServer::new(&home.pki));
    let lines = [one.line(), other.line_of("friends", HOST_DN, "other")];
    let wanted = ["--voms", "friends:/other/Role=guest,gridlane", "--voms", "friends"];
    home.proxy("ada", &lines, &wanted).exits(0);
    assert_eq!(attributes(&home.pki, &home.out()), ["/other/Role=guest", "/other", "/gridlane"]);
    assert_eq!(one.asked()[0].fqans, ["/gridlane"]);
    assert_eq!(other.asked()[0].fqans, ["/other/Role=guest", "/other"]);
}

/// A server that lies, is not the right one, or is none: what it gives goes into no proxy.
#[test]
fn what_is_wrong_goes_into_no_proxy() {
    type Lie = fn(&mut AttributeCertificate);
    let lies: [(&str, Lie); 5] = [
        ("of other", |said| {
            said.authority = "other://localhost:1".to_owned();
            said.fqans = vec!["/other".to_owned()];
        }),
        ("was asked for", |said| said.fqans = vec!["/gridlane/sub".to_owned()]),
        ("made for another certificate", |said| said.holder_serial = vec![1, 2, 3]),
        ("it ended", |said| {
            said.validity.not_before_s -= 1_000_000;
            said.validity.not_after_s = said.validity.not_before_s + 10;
        }),
        ("not those listed", |said| {
            said.extensions.remove(0);
        }),
    ];
    let home = Home::new();
    for (words, lie) in lies {
        let server =
            VomsServer::with(&home.pki, move |_: &Asked| Reply::Gives(vec!["/gridlane".to_owned()], lie));
        home.proxy("ada", &[server.line()], &["--voms", "gridlane"]).exits(4).says(&[words]);
    }
    for (words, document) in [
        ("XML", "<html>"),
        ("no attribute certificate", "<voms></voms>"),
        ("not base64", "<voms><ac>M?</ac></voms>"),
        ("attribute certificate", "<voms><ac>MAAA</ac></voms>"),
    ] {
        let server = VomsServer::with(&home.pki, move |_: &Asked| Reply::Says(document));
        let outcome = home.proxy("ada", &[server.line()], &["--voms", "gridlane"]);
        assert_ne!(outcome.code, Some(0), "{document}");
        outcome.says(&[words, "VOMS server localhost"]);
    }
    // It has another certificate than its line says, or one of an authority that is not trusted.
    let server = VomsServer::new(&home.pki);
    let other = server.line_with("/DC=org/DC=gridlane-test/CN=voms.gridlane.test");
    home.proxy("ada", &[other], &["--voms", "gridlane"])
        .exits(4)
        .says(&["its certificate is that of", "vomses"]);
    let mut command = home.command("ada", &[server.line()], &["--voms", "gridlane"]);
    command.env("X509_CERT_DIR", home.scratch.dir("nobody"));
    run(command).exits(4).says(&["not trusted"]);
    assert!(!home.out().exists());
}

#[test]
fn a_server_that_closes_and_says_nothing_is_named() {
    let home = Home::new();
    let server = VomsServer::with(&home.pki, |_: &Asked| Reply::Closes);
    let outcome = home.proxy("ada", &[server.line()], &["--voms", "gridlane"]);
    outcome.exits(6).says(&["connection", &server.address(), "asked over HTTP"]);
    assert_eq!(server.asked().iter().map(|asked| asked.is_http).collect::<Vec<_>>(), [true, false]);
    assert_eq!(server.connections(), 2);
}

#[test]
fn where_servers_are_is_found_as_voms_finds_it() {
    let home = Home::new();
    let server = VomsServer::new(&home.pki);
    let ada = home.pki.credential("ada");
    let line = format!("nonsense\n{}", server.line());
    let run_with = |variables: &[(&str, &Path)]| {
        let mut command = gridlane();
        command.args([
            "auth",
            "proxy",
            "--cert",
            text(&ada.cert),
            "--key",
            text(&ada.key),
            "--voms",
            "gridlane",
        ]);
        command.args(["--out", text(&home.out())]).env("X509_CERT_DIR", home.pki.certificates());
        command.envs(variables.iter().copied());
        made(command, &home.out())
    };
    home.scratch.file("user/.glite/vomses/first", line.as_bytes());
    let user = home.scratch.join("user");
    let said = run_with(&[("HOME", &user)]).exits(0);
    // Who signed it cannot be checked without a vomsdir; a line that cannot be read is told.
    said.says(&["first: line 1 does not count", "it was not checked who signed"]);
    let dir = user.join(".glite/vomses");
    run_with(&[("VOMS_USERCONF", &dir)]).exits(0);
    run_with(&[("VOMS_USERCONF", Path::new("/dev/null"))]).exits(2).says(&["/dev/null", "--vomses"]);
    run_with(&[]).exits(2).says(&["no VOMS server of gridlane is known", "/etc/vomses", "--voms-cert"]);
    assert_eq!(server.asked().len(), 2);
}

#[test]
fn the_key_is_of_the_kind_that_is_asked_for() {
    let home = Home::new();
    for (user, kind, strength) in [
        ("ada", "auto", "RSA, 2048"),
        ("ada", "ec", "ECDSA, 256"),
        ("ada-ecdsa", "auto", "ECDSA, 256"),
        ("ada-ecdsa", "rsa", "RSA, 2048"),
    ] {
        home.proxy(user, &[], &["--key-type", kind]).exits(0);
        let mut command = gridlane();
        command.args(["auth", "proxy", "--json", "--show", text(&home.out())]);
        let shown = run(command).exits(0).events().remove(0);
        let said = format!("{}, {}", shown["key"].as_str().unwrap(), shown["key_bits"]);
        assert_eq!(said, strength, "{user} {kind}: {shown}");
    }
}

/// Renewal in place: programs that read the proxy at any moment have the old one or the new one.
#[test]
fn a_reader_never_sees_half_a_proxy() {
    let home = Home::new();
    home.proxy("ada", &[], &[]).exits(0);
    let (out, before, is_over) = (home.out(), home.scratch.names(), AtomicBool::new(false));
    let begun = Barrier::new(2);
    let seen = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut seen, mut has_begun) = (Vec::<Vec<u8>>::new(), false);
            loop {
                let is_last = is_over.load(Relaxed);
                let file = fs::read(&out).unwrap();
                let blocks: Vec<String> =
                    pem::decode(&file).unwrap().into_iter().map(|block| block.label).collect();
                assert_eq!(blocks, ["CERTIFICATE", "PRIVATE KEY", "CERTIFICATE"]);
                if seen.last() != Some(&file) {
                    seen.push(file);
                }
                if !has_begun {
                    has_begun = true;
                    begun.wait();
                }
                if is_last {
                    return seen.len();
                }
            }
        });
        begun.wait();
        for _ in 0..4 {
            home.proxy("ada", &[], &["--key-type", "ec"]).exits(0);
        }
        is_over.store(true, Relaxed);
        reader.join().unwrap()
    });
    assert!(seen >= 2, "it was read, and read again: {seen}");
    assert_eq!(home.scratch.names(), before, "nothing else is left");
}

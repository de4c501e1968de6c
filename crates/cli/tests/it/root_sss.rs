//! Logins between hosts of one site over root://: shared keys (`sss`) in both directions with Debian's XRootD, and names of
//! users (`unix`) with and without trust.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::client::{Outcome, cp, gridlane, run, text};
use crate::support::serve::Server;
use crate::support::tools::tool;
use crate::support::xrootd::{Xrootd, give, open_to_all};
use crate::support::{Scratch, assert_copied, secrets, until};

const BYTES: &[u8] = b"what only the site reads";

/// A file of one key, by XRootD's own program, for this user.
fn keytab(scratch: &Scratch, name: &str, user: &str) -> PathBuf {
    let file = scratch.join(name);
    let mut command = tool("xrdsssadmin", "xrootd-server");
    command.args(["-k", "site", "-u", user, "-g", "users", "add"]).arg(&file);
    run(command).ok();
    remember(&file);
    file
}

/// The same file with other words in it.
fn changed(scratch: &Scratch, name: &str, from: &Path, change: impl Fn(&str) -> String) -> PathBuf {
    let file = scratch.file(name, change(&fs::read_to_string(from).unwrap()).as_bytes());
    private(&file);
    file
}

fn private(file: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
}

fn remember(file: &Path) {
    let key = fs::read_to_string(file).unwrap();
    secrets::remember(key.trim().rsplit("k:").next().unwrap());
}

/// One that has expired, and one with another key of the same number.
fn expired(scratch: &Scratch, of: &Path) -> PathBuf {
    changed(scratch, "expired", of, |line| line.replace(" e:0 ", " e:1000000000 "))
}

fn with_other_key(scratch: &Scratch, of: &Path) -> PathBuf {
    let file = changed(scratch, "other", of, |line| {
        let (head, _) = line.trim().rsplit_once("k:").unwrap();
        format!("{head}k:{}\n", "5a".repeat(32))
    });
    remember(&file);
    file
}

/// `gridlane serve` with rules for ada alone.
struct Site {
    scratch: Scratch,
    server: Server,
}

impl Site {
    /// `root` and `auth`: the lines of these tables, in which DIR stands for the directory of the site.
    fn new(scratch: Scratch, root: &str, auth: &str, user: &str) -> Site {
        let exported = scratch.dir("export");
        fs::write(exported.join("f"), BYTES).unwrap();
        let at = text(scratch.path());
        let config = format!(
            "[serve]\nlisten = [\"127.0.0.1:0\"]\n[root]\n{root}\n[auth]\n{auth}\n[[export]]\n\
             directory = \"{at}/export\"\n[[rule]]\nuser = \"{user}\"\nmay = [\"read\", \"list\"]\n"
        );
        let config = scratch.file("serve.toml", config.replace("DIR", at).as_bytes());
        Site { server: Server::by_file(&config), scratch }
    }

    fn url(&self, path: &str) -> String {
        let url = self.server.url_over("http", "");
        let port = url.trim_end_matches('/').rsplit(':').next().unwrap().to_owned();
        format!("root://127.0.0.1:{port}//{path}")
    }
}

fn ours_with(keytab: Option<&Path>, url: &str, target: &Path) -> Command {
    let mut command = cp(url, target);
    if let Some(keytab) = keytab {
        command.arg("--sss-keytab").arg(keytab);
    }
    command
}

fn xrdcp(method: &str, keytab: &Path, url: &str, target: &Path) -> Outcome {
    let _ = fs::remove_file(target);
    let mut command = tool("xrdcp", "xrootd-client");
    command.env("XrdSecPROTOCOL", method).env("XrdSecSSSKT", keytab).env("XRD_CONNECTIONRETRY", "1");
    command.args(["-s", url]).arg(target);
    run(command)
}

#[test]
fn gridlane_shows_a_shared_key_to_xrootd() {
    let scratch = Scratch::new();
    let keys = keytab(&scratch, "keytab", "nobody");
    let theirs = Scratch::new();
    open_to_all(theirs.path());
    let of_server = changed(&theirs, "keytab", &keys, str::to_owned);
    give(theirs.path());
    let lines = format!("xrootd.seclib libXrdSec.so\nsec.protocol sss -s {}\n", of_server.display());
    let server = Xrootd::with(&lines);
    server.put("f", BYTES);
    let target = scratch.join("f");
    run(ours_with(Some(&keys), &server.url("f"), &target)).ok();
    assert_copied(&target, BYTES);
    fs::remove_file(&target).unwrap();
    // By the variables, and in the place, that XRootD's clients look at.
    let home = scratch.dir("home");
    fs::create_dir(home.join(".xrd")).unwrap();
    fs::copy(&keys, home.join(".xrd/sss.keytab")).unwrap();
    for (name, value) in [("XrdSecSSSKT", &keys), ("XrdSecsssKT", &keys), ("HOME", &home)] {
        let mut command = ours_with(None, &server.url("f"), &target);
        command.env_remove("GRIDLANE_NO_CREDENTIALS").env(name, value);
        run(command).ok();
        assert_copied(&target, BYTES);
        fs::remove_file(&target).unwrap();
    }
    let open = changed(&scratch, "open", &keys, str::to_owned);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    fs::set_permissions(&open, mode).unwrap();
    let doctor = |keytab: Option<&Path>| {
        let mut command = gridlane();
        command.arg("doctor").env_remove("GRIDLANE_NO_CREDENTIALS").env("HOME", &home);
        command.args(keytab.map(|file| format!("--sss-keytab={}", file.display())));
        run(command)
    };
    doctor(None).says(&["shared keys", "/.xrd/sss.keytab: 1, for servers of root://"]);
    doctor(Some(&open)).says(&["shared keys", "chmod 600"]);
    let missing = scratch.join("missing");
    for (keytab, fault, words) in [
        (&with_other_key(&scratch, &keys), "caller", &["decrypt"][..]),
        (&expired(&scratch, &keys), "peer", &["sss", "expired"]),
        (&open, "peer", &["sss", "chmod 600"]),
        (&missing, "peer", &["sss", "not there"]),
    ] {
        run(ours_with(Some(keytab), &server.url("f"), &target)).fails(4, fault, false, words);
        assert!(!target.exists());
    }
}

#[test]
fn gridlane_takes_shared_keys() {
    let scratch = Scratch::new();
    let keys = keytab(&scratch, "keytab", "ada");
    let site = Site::new(scratch, "auth = \"sss\"", "sss-keytab = \"DIR/keytab\"", "ada");
    let (url, target) = (site.url("f"), site.scratch.join("f"));
    xrdcp("sss", &keys, &url, &target).ok();
    assert_copied(&target, BYTES);
    fs::remove_file(&target).unwrap();
    run(ours_with(Some(&keys), &url, &target)).ok();
    assert_copied(&target, BYTES);
    fs::remove_file(&target).unwrap();

    let other = with_other_key(&site.scratch, &keys);
    run(ours_with(Some(&other), &url, &target)).fails(4, "caller", false, &["shared key site", "differ"]);
    assert!(xrdcp("sss", &other, &url, &target).code != Some(0) && !target.exists());
    run(ours_with(None, &url, &target)).fails(4, "peer", false, &["sss"]);
    let unknown = changed(&site.scratch, "unknown", &keys, |line| {
        let (head, rest) = line.split_once(" N:").unwrap();
        format!("{head} N:5 {}", rest.split_once(' ').unwrap().1)
    });
    run(ours_with(Some(&unknown), &url, &target)).fails(
        4,
        "caller",
        false,
        &["does not know the shared key"],
    );

    // A file that is replaced is read again.
    fs::rename(&other, site.scratch.join("keytab")).unwrap();
    let with = changed(&site.scratch, "with", &site.scratch.join("keytab"), str::to_owned);
    until("the new key counts", || xrdcp("sss", &with, &url, &target).code == Some(0));
    assert_copied(&target, BYTES);
}

#[test]
fn a_key_for_any_user_is_two_people_s_decision() {
    for (more, is_taken) in [("\nsss-any-user = true", true), ("", false)] {
        let scratch = Scratch::new();
        let keys = keytab(&scratch, "keytab", "anybody");
        // Who runs the tests.
        let mut id = tool("id", "coreutils");
        id.arg("-un");
        let user = run(id).ok().text().trim().to_owned();
        let auth = format!("sss-keytab = \"DIR/keytab\"{more}");
        let site = Site::new(scratch, "auth = \"sss\"", &auth, &user);
        let (url, target) = (site.url("f"), site.scratch.join("f"));
        let command = ours_with(Some(&keys), &url, &target);
        match is_taken {
            true => drop(run(command).ok()),
            false => drop(run(command).fails(4, "caller", false, &["any user"])),
        }
        assert_eq!(target.exists(), is_taken);
    }
}

#[test]
fn names_of_users_count_from_machines_that_are_trusted() {
    let mut id = tool("id", "coreutils");
    id.arg("-un");
    let user = run(id).ok().text().trim().to_owned();
    for (trust, is_taken) in [
        ("\ntrust-unix-from = \"loopback\"", true),
        ("\ntrust-unix-from = [\"192.0.2.0/24\"]", false),
        ("", false),
    ] {
        let root = format!("auth = [\"unix\", \"host\"]{trust}");
        let site = Site::new(Scratch::new(), &root, "", &user);
        let (url, target) = (site.url("f"), site.scratch.join("f"));
        let ours = run(cp(&url, &target));
        assert_eq!(ours.code == Some(0), is_taken, "{trust}: {}", ours.describe());
        let theirs = xrdcp("unix", &target, &url, &site.scratch.join("g"));
        assert_eq!(theirs.code == Some(0), is_taken, "{trust}: {}", theirs.describe());
        // The name of a machine is no identity.
        let theirs = xrdcp("host", &target, &url, &site.scratch.join("h"));
        assert!(theirs.code != Some(0), "{trust}: {}", theirs.describe());
    }
}

#[test]
fn a_file_of_keys_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let scratch = Scratch::new();
    let keys = keytab(&scratch, "keytab", "ada");
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o640)).unwrap();
    let config = format!(
        "[root]\nauth = \"sss\"\n[auth]\nsss-keytab = \"{}\"\n[[export]]\ndirectory = \"{}\"\n",
        keys.display(),
        scratch.dir("export").display()
    );
    let config = scratch.file("serve.toml", config.as_bytes());
    let mut command = gridlane();
    command.args(["serve", "--check", "--config"]).arg(&config);
    run(command).exits(2).says(&["chmod 600"]);
}

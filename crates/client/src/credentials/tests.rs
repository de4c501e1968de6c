//! The search, on machines that are not there.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::sync::Mutex;

use gridlane_peer::Renewal;

use super::*;

const USER: u32 = 1000;

#[derive(Default)]
struct Fake {
    variables: HashMap<String, String>,
    files: Mutex<HashMap<PathBuf, Content>>,
    now_s: Mutex<i64>,
}

impl Fake {
    fn variable(mut self, name: &str, value: &str) -> Fake {
        self.variables.insert(name.into(), value.into());
        self
    }

    fn file(self, path: &str, text: &str) -> Fake {
        self.file_of(path, text, 0o600, USER)
    }

    fn file_of(self, path: &str, text: &str, mode: u32, owner: u32) -> Fake {
        self.put(path, text, mode, owner);
        self
    }

    fn put(&self, path: &str, text: &str, mode: u32, owner: u32) {
        let mut files = self.files.lock().unwrap();
        let changed_ns = text.bytes().map(i128::from).sum();
        let version = Some(Version { changed_ns, size_bytes: text.len() as u64, inode: 0 });
        let content = Content { bytes: text.as_bytes().to_vec(), mode: Some(mode), owner, version };
        files.insert(path.into(), content);
    }
}

impl Machine for Fake {
    fn variable(&self, name: &str) -> Option<OsString> {
        self.variables.get(name).map(OsString::from)
    }

    fn user(&self) -> u32 {
        USER
    }

    fn read(&self, path: &Path, _: bool) -> io::Result<Option<Content>> {
        let found = self.files.lock().unwrap().get(path).cloned();
        match found {
            Some(content) if content.mode == Some(0) => Err(io::ErrorKind::PermissionDenied.into()),
            found => Ok(found),
        }
    }

    fn version(&self, path: &Path) -> io::Result<Version> {
        let content = self.files.lock().unwrap().get(path).and_then(|content| content.version);
        content.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn now_s(&self) -> i64 {
        *self.now_s.lock().unwrap()
    }
}

fn found(machine: &Fake) -> Found {
    discover(&Wanted::default(), machine).unwrap()
}

fn refused(machine: &Fake) -> Error {
    discover(&Wanted::default(), machine).unwrap_err()
}

fn token(machine: &Fake) -> Option<String> {
    found(machine).token.map(|token| token.secret.expose().to_owned())
}

/// A certificate with its key.
fn pair() -> String {
    let made = rcgen::generate_simple_self_signed(vec!["ada".to_owned()]).unwrap();
    format!("{}{}", made.cert.pem(), made.signing_key.serialize_pem())
}

/// A certificate alone.
fn certificate() -> String {
    rcgen::generate_simple_self_signed(vec!["ada".to_owned()]).unwrap().cert.pem()
}

/// What decides whether connections of a program that runs for long may stay.
#[test]
fn credentials_are_the_same_if_servers_see_the_same() {
    let variable = |text: &str| found(&Fake::default().variable("BEARER_TOKEN", text));
    assert!(variable("one").is_same(&variable("one")) && !variable("one").is_same(&variable("two")));
    // A file that changes is read again by the token itself.
    let file =
        |path: &str, text: &str| found(&Fake::default().variable("BEARER_TOKEN_FILE", path).file(path, text));
    assert!(file("/a", "one").is_same(&file("/a", "two")) && !file("/a", "one").is_same(&file("/b", "one")));
    assert!(!file("/a", "one").is_same(&variable("one")));
    let proxy = |text: &str| found(&Fake::default().file("/tmp/x509up_u1000", text));
    let (one, renewed) = (pair(), pair());
    assert!(proxy(&one).is_same(&proxy(&one)) && !proxy(&one).is_same(&proxy(&renewed)));
    assert!(!proxy(&one).is_same(&Found::default()) && Found::default().is_same(&Found::default()));
}

#[test]
fn tokens_are_looked_for_in_the_fields_order() {
    let all = || {
        Fake::default()
            .variable("BEARER_TOKEN_FILE", "/named")
            .variable("XDG_RUNTIME_DIR", "/run/user/1000")
            .file("/named", "\n second \n")
            .file("/run/user/1000/bt_u1000", "third")
            .file("/tmp/bt_u1000", "fourth")
    };
    assert_eq!(token(&all().variable("BEARER_TOKEN", " first\n")).as_deref(), Some("first"));
    assert_eq!(token(&all().variable("BEARER_TOKEN", " \n")).as_deref(), Some("second"));
    assert_eq!(
        token(&all().file("/named", " ")).as_deref(),
        Some("third"),
        "an empty file is as good as none"
    );
    assert_eq!(token(&all().variable("BEARER_TOKEN_FILE", "")).as_deref(), Some("third"));
    let machine = all().variable("BEARER_TOKEN_FILE", "").variable("XDG_RUNTIME_DIR", "/elsewhere");
    assert_eq!(token(&machine).as_deref(), Some("fourth"));
    assert_eq!(token(&Fake::default()), None);
    assert!(!format!("{:?}", found(&machine)).contains("fourth"));
}

#[test]
fn what_was_named_and_cannot_be_used_stops_the_search() {
    let next = || Fake::default().file("/tmp/bt_u1000", "next");
    for (machine, words) in [
        (next().variable("BEARER_TOKEN", "Bearer abc"), "BEARER_TOKEN"),
        (next().variable("BEARER_TOKEN", "a\r\nb"), "no token"),
        (next().variable("BEARER_TOKEN_FILE", "/gone"), "/gone"),
        (next().variable("BEARER_TOKEN_FILE", "/f").file("/f", "two words"), "/f"),
        (next().variable("BEARER_TOKEN_FILE", "/f").file_of("/f", "abc", 0, USER), "cannot read /f"),
        (next().variable("BEARER_TOKEN_FILE", "/f").file_of("/f", "planted", 0o600, 1001), "another user"),
        (
            next().variable("BEARER_TOKEN_FILE", "/f").file("/f", &"a".repeat(CREDENTIAL_BYTES_MAX + 1)),
            "larger",
        ),
        (Fake::default().variable("X509_USER_PROXY", "/gone"), "/gone"),
        (Fake::default().variable("X509_USER_PROXY", "/p").file("/p", "no PEM"), "/p"),
        (
            Fake::default().variable("X509_USER_CERT", "/c").file_of("/c", &certificate(), 0o644, USER),
            "no private key in /c",
        ),
        (Fake::default().variable("X509_USER_PROXY", "/p").file_of("/p", &pair(), 0o640, USER), "mode 640"),
        (
            Fake::default().variable("X509_USER_PROXY", "/p").file_of("/p", &pair(), 0o600, 1001),
            "another user",
        ),
        (
            Fake::default()
                .variable("X509_USER_CERT", "/c")
                .file("/c", &pair())
                .variable("X509_USER_KEY", "/k"),
            "/k",
        ),
    ] {
        let error = refused(&machine);
        assert!(error.message().contains(words), "no {words:?} in {error}");
        assert!(error.advice().is_some(), "{error}");
        let shown = error.to_string();
        assert!(!shown.contains("abc") && !shown.contains("planted"), "{error}");
    }
}

#[test]
fn what_only_lies_around_and_cannot_be_used_stops_nobody() {
    let token = || Fake::default().file("/tmp/bt_u1000", "mine").variable("XDG_RUNTIME_DIR", "/run");
    for (machine, words) in [
        (token().file_of("/run/bt_u1000", "planted", 0o600, 1001), "another user"),
        (token().file_of("/run/bt_u1000", "planted", 0, 1001), "cannot read /run/bt_u1000"),
        (token().file("/run/bt_u1000", "two words"), "no token"),
    ] {
        let found = found(&machine);
        assert_eq!(found.token.unwrap().secret.expose(), "mine");
        assert!(found.warnings[0].message.contains(words), "{:?}", found.warnings);
    }
    let mine = pair();
    for (mode, owner) in [(0o600, 1001), (0, 1001), (0o644, 1001)] {
        let machine = Fake::default()
            .file_of("/tmp/bt_u1000", "planted", mode, owner)
            .file_of("/tmp/x509up_u1000", &pair(), mode, owner)
            .file("/c", &mine)
            .variable("X509_USER_CERT", "/c");
        let found = found(&machine);
        assert_eq!(found.certificate.unwrap().file, Path::new("/c"));
        assert_eq!((found.token.is_none(), found.warnings.len()), (true, 2));
    }
    for (text, mode, words) in [("", 0o600, "no private key"), (mine.as_str(), 0o640, "mode 640")] {
        let found = found(&Fake::default().file_of("/tmp/x509up_u1000", text, mode, USER));
        assert!(found.certificate.is_none() && found.warnings[0].message.contains(words), "{found:?}");
    }
}

#[test]
fn a_token_that_others_can_read_is_warned_of() {
    let machine = Fake::default().file_of("/tmp/bt_u1000", "abc", 0o644, USER);
    let found = found(&machine);
    assert!(found.warnings[0].message.contains("mode 644"), "{found:?}");
    assert_eq!(found.warnings[0].advice, Hint::from("chmod 600 /tmp/bt_u1000"));
    let of_root = Fake::default().file_of("/tmp/bt_u1000", "abc", 0o600, 0);
    assert_eq!(token(&of_root).as_deref(), Some("abc"));
}

#[test]
fn certificates_are_looked_for_behind_tokens() {
    let (first, second, third) = (pair(), pair(), pair());
    let all = || {
        Fake::default()
            .variable("X509_USER_CERT", "/c")
            .variable("HOME", "/home/ada")
            .file("/proxy", &first)
            .file("/tmp/x509up_u1000", &second)
            .file("/c", &third)
            .file("/home/ada/.globus/usercert.pem", &first)
            .file("/home/ada/.globus/userkey.pem", &first)
    };
    let file = |machine: &Fake| found(machine).certificate.map(|found| found.file.display().to_string());
    assert_eq!(file(&all().variable("X509_USER_PROXY", "/proxy")).as_deref(), Some("/proxy"));
    assert_eq!(file(&all()).as_deref(), Some("/tmp/x509up_u1000"));
    let without = |machine: Fake| {
        machine.files.lock().unwrap().remove(Path::new("/tmp/x509up_u1000"));
        machine
    };
    assert_eq!(file(&without(all())).as_deref(), Some("/c"));
    let globus = || without(all()).variable("X509_USER_CERT", "");
    assert_eq!(file(&globus()).as_deref(), Some("/home/ada/.globus/usercert.pem"));
    // A key with a passphrase is for voms-proxy-init.
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let passed_over = found(&globus().file("/home/ada/.globus/userkey.pem", encrypted));
    assert!(passed_over.certificate.is_none() && passed_over.passed_over.len() == 1, "{passed_over:?}");
    let with_token = found(&all().variable("BEARER_TOKEN", "abc"));
    assert!(with_token.token.is_some() && with_token.certificate.is_none());
    let debug = format!("{:?}", found(&all()));
    assert!(!debug.contains("PRIVATE") && debug.contains("x509up_u1000"), "{debug}");
}

#[test]
fn shared_keys_are_found_beside_the_others_and_read_when_they_are_used() {
    let key = "0 u:ada N:7 k:00112233445566778899aabbccddeeff\n";
    let home = || {
        let machine = Fake::default().variable("HOME", "/h").variable("BEARER_TOKEN", "abc");
        machine.file("/h/.xrd/sss.keytab", key)
    };
    let file = |machine: &Fake| found(machine).shared_keys.map(|keys| keys.file.display().to_string());
    assert_eq!(file(&Fake::default().variable("HOME", "/h")), None);
    assert_eq!(file(&home()).as_deref(), Some("/h/.xrd/sss.keytab"));
    assert!(found(&home()).token.is_some());
    assert_eq!(file(&home().variable("XrdSecsssKT", "/old")).as_deref(), Some("/old"));
    let both = home().variable("XrdSecsssKT", "/old").variable("XrdSecSSSKT", "/new");
    assert_eq!(file(&both).as_deref(), Some("/new"));
    let wanted = Wanted { sss_keytab: Some("/named".into()), ..Wanted::default() };
    assert_eq!(discover(&wanted, &both).unwrap().shared_keys, Some(FoundKeys { file: "/named".into() }));
    let nothing = Wanted { nothing: true, ..Wanted::default() };
    assert_eq!(discover(&nothing, &both).unwrap().shared_keys, None);

    let machine = Arc::new(home());
    let file = PathBuf::from("/h/.xrd/sss.keytab");
    let live = shared_keys::LiveKeys { file, machine: Arc::clone(&machine) as Arc<dyn Machine> };
    assert_eq!(live.keys().unwrap().keys()[0].id, 7);
    machine.put("/h/.xrd/sss.keytab", &key.replace("N:7", "N:8"), 0o600, USER);
    assert_eq!(live.keys().unwrap().keys()[0].id, 8);
    for (text, mode, word) in [(key, 0o640, "chmod 600"), ("0 u:ada", 0o600, "line 1"), (key, 0, "denied")] {
        machine.put("/h/.xrd/sss.keytab", text, mode, USER);
        let why = live.keys().unwrap_err();
        assert!(why.contains(word) && why.contains("/h/.xrd"), "{why}");
    }
}

#[test]
fn options_count_before_everything() {
    let machine = Fake::default().variable("BEARER_TOKEN", "abc").file("/t", "def").file("/c", &pair());
    let of = |wanted: Wanted| discover(&wanted, &machine).unwrap();
    let by_cert = of(Wanted { certificate: Some("/c".into()), ..Wanted::default() });
    assert!(by_cert.token.is_none() && by_cert.certificate.is_some());
    let both = Wanted { certificate: Some("/c".into()), token_file: Some("/t".into()), ..Wanted::default() };
    let both = of(both);
    assert!(both.token.unwrap().secret.expose() == "def" && both.certificate.is_some());
    let nothing = of(Wanted { nothing: true, ..Wanted::default() });
    assert!(nothing.token.is_none() && nothing.certificate.is_none());
    let empty = Wanted { token_file: Some("/empty".into()), ..Wanted::default() };
    assert!(discover(&empty, &Fake::default().file("/empty", " \n")).is_err());
}

/// A JSON Web Token that expires then.
fn expiring(ends_s: i64) -> String {
    use base64::Engine as _;
    let part = |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
    format!("{}.{}.x", part("{}"), part(&format!("{{\"exp\":{ends_s}}}")))
}

#[test]
fn what_has_expired_is_told_before_it_is_used() {
    let token = found(&Fake::default().variable("BEARER_TOKEN", &expiring(1000)));
    token.refuse_invalid(999).unwrap();
    let error = token.refuse_invalid(1180).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.message().contains("BEARER_TOKEN expired 3 min 00 s ago"), "{error}");
    let proxy = found(&Fake::default().file("/tmp/x509up_u1000", &pair()));
    proxy.refuse_invalid(ThisMachine.now_s()).unwrap();
    assert!(proxy.refuse_invalid(i64::MAX / 2).unwrap_err().message().contains("/tmp/x509up_u1000 expired"));
    assert!(
        proxy.refuse_invalid(-86_400 * 365 * 20).unwrap_err().advice().unwrap().to_string().contains("clock")
    );
    assert_eq!(token.lasting().unwrap().ends_s, 1000);
}

#[test]
fn what_only_lies_around_and_has_expired_is_passed_over() {
    let variable = |name| found(&Fake::default().variable(name, &expiring(1000)));
    assert!(variable("BEARER_TOKEN").usable(2000).is_err(), "somebody named it");
    let lying = found(&Fake::default().file("/tmp/bt_u1000", &expiring(1000)));
    assert!(lying.clone().usable(999).unwrap().token.is_some());
    let passed = lying.usable(2000).unwrap();
    assert!(passed.token.is_none() && passed.warnings[0].message.contains("/tmp/bt_u1000 expired"));
    let named = Fake::default().file("/p.pem", &pair()).variable("X509_USER_PROXY", "/p.pem");
    assert!(found(&named).usable(i64::MAX / 2).is_err());
    let proxy = found(&Fake::default().file("/tmp/x509up_u1000", &pair()));
    assert!(proxy.usable(i64::MAX / 2).unwrap().certificate.is_none());
}

#[test]
fn a_renewed_token_is_used_and_a_broken_one_never() {
    let file = "/tmp/bt_u1000";
    let machine = Arc::new(Fake::default().file(file, &expiring(1000)));
    let credentials = found(&machine).credentials(machine.clone(), Vec::new());
    let now = || credentials.token().map(|token| token.unwrap().secret.expose().to_owned());
    assert_eq!(now().unwrap(), expiring(1000));
    *machine.now_s.lock().unwrap() = 500;
    machine.put(file, "half of a tok", 0o600, 1001);
    assert_eq!(now().unwrap(), expiring(1000), "it is somebody else's now");
    machine.files.lock().unwrap().clear();
    *machine.now_s.lock().unwrap() = 501;
    assert_eq!(now().unwrap(), expiring(1000), "it is just being replaced");
    for (now_s, text, is_used) in
        [(502, "hal", false), (503, "half a", false), (504, "whole", false), (505, "whole", true)]
    {
        machine.put(file, &text.replace(' ', "-"), 0o600, USER);
        *machine.now_s.lock().unwrap() = now_s;
        assert_eq!(now().unwrap(), if is_used { text.to_owned() } else { expiring(1000) }, "at {now_s}");
    }
    machine.put(file, &expiring(1000), 0o600, USER);
    for now_s in [600, 601] {
        *machine.now_s.lock().unwrap() = now_s;
        let _ = now();
    }
    machine.files.lock().unwrap().clear();
    *machine.now_s.lock().unwrap() = 1001;
    assert_eq!(now().unwrap_err().kind(), ErrorKind::Denied);
    machine.put(file, &expiring(20_000), 0o600, USER);
    *machine.now_s.lock().unwrap() = 1002;
    assert_eq!(now().unwrap(), expiring(20_000));
}

#[test]
fn a_refused_token_is_read_again_at_once() {
    let file = "/tmp/bt_u1000";
    let machine = Arc::new(Fake::default().file(file, &expiring(1000)));
    let credentials = found(&machine).credentials(machine.clone(), Vec::new());
    let shown = Secret::new(expiring(1000));
    assert!(matches!(credentials.renew_token(&shown), Renewal::Same));
    // The clock stands still, and the file has not settled.
    machine.put(file, &expiring(2000), 0o600, USER);
    assert!(matches!(credentials.renew_token(&shown), Renewal::Another));
    assert_eq!(credentials.token().unwrap().unwrap().secret.expose(), expiring(2000));
    // Another request was refused with the old one.
    assert!(matches!(credentials.renew_token(&shown), Renewal::Another));
    assert!(matches!(credentials.renew_token(&Secret::new(expiring(2000))), Renewal::Same));
    *machine.now_s.lock().unwrap() = 2003;
    let Renewal::Over(why) = credentials.renew_token(&Secret::new(expiring(2000))) else {
        panic!("it has ended");
    };
    assert!(why.message().contains("/tmp/bt_u1000 expired 3.00 s ago"), "{why}");
    assert!(credentials.over().is_some());
    let refused = Error::new(ErrorKind::Denied, "401");
    let told = Renewal::Over(why).explain(refused);
    assert!(told.message().contains("401") && told.message().contains("expired"), "{told}");
    // Renewed within the same second.
    machine.put(file, &expiring(3000), 0o600, USER);
    assert!(credentials.over().is_none());
}

#[test]
fn a_renewed_proxy_is_shown_on_new_connections() {
    let file = "/tmp/x509up_u1000";
    let machine = Arc::new(Fake::default().file(file, &pair()));
    *machine.now_s.lock().unwrap() = ThisMachine.now_s();
    let credentials = found(&machine).credentials(machine.clone(), Vec::new());
    assert!(found(&machine).lasting().unwrap().is_read_again);
    let now = || credentials.shown_identity().unwrap();
    let first = now();
    assert_eq!(first, *credentials.identity());
    let later = |seconds: i64| *machine.now_s.lock().unwrap() += seconds;
    machine.put(file, "-----BEGIN CERTIFICATE-----", 0o600, USER);
    for _ in 0..3 {
        later(1);
        assert_eq!(now(), first, "it is half written");
    }
    machine.put(file, &pair(), 0o600, USER);
    later(1);
    assert_eq!(now(), first, "it may be half written");
    later(1);
    let second = now();
    assert_ne!(second, first);
    assert_eq!(now(), second);
    assert_ne!(second, *credentials.identity(), "the user is known by the first one still");
    // A server has refused one of the old one's connections, or of the new one's.
    assert!(matches!(credentials.renew_certificate(first.id()), Renewal::Another));
    assert!(matches!(credentials.renew_certificate(second.id()), Renewal::Same));
    assert!(matches!(credentials.renew_certificate(Default::default()), Renewal::Same), "it showed none");
    machine.put(file, &pair(), 0o600, USER);
    assert!(matches!(credentials.renew_certificate(second.id()), Renewal::Another), "at once");
    let third = now();
    assert_ne!(third, second);
    *machine.now_s.lock().unwrap() = i64::MAX / 2;
    let why = credentials.shown_identity().unwrap_err();
    assert!(why.kind() == ErrorKind::Denied && why.message().contains("/tmp/x509up_u1000 expired"), "{why}");
}

#[test]
fn to_whom_they_are_shown() {
    for (url, are_shown, may_be) in [
        ("https://h/f", true, false),
        ("https://ada:pw@h/f", false, false),
        ("https://h/f?authz=x", false, false),
        ("http://h/f", false, false),
        ("roots://ada@h//f", true, true),
        ("roots://ada@h//f?authz=x", false, true),
        ("root://h//f", false, true),
    ] {
        let url = Url::parse_absolute(url).unwrap();
        assert_eq!((are_shown_to(&url), may_be_shown_to(&url)), (are_shown, may_be), "{url}");
    }
}

//! Sealed records: whole or not at all, in no other place, and readable for nobody else.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use gridlane_core::ErrorKind;
use gridlane_delegation::{DirStore, Kind, MemoryStore, RecordId, Secrets, Store, Vault, suite};
use proptest::prelude::*;

const OLD: &str = "oLXt3DuSgwL8Bz1AZLAbAJT5n6tTjmCkFz2T0mDcBv0=";
const NEW: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

fn secrets(text: &str) -> Secrets {
    Secrets::parse(text).unwrap()
}

fn id(kind: Kind, name: &str) -> RecordId {
    RecordId::new(kind, name).unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn stores_do_what_the_suite_asks() {
    suite::check(MemoryStore::default(), Ok).unwrap().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("vault");
    let again = |store| {
        drop(store);
        DirStore::open(&root)
    };
    suite::check(DirStore::open(&root).unwrap(), again).unwrap().unwrap();
}

/// Keeps nothing of what was put last.
struct Forgetful(MemoryStore);

impl Store for Forgetful {
    fn put(&self, id: &RecordId, sealed: &[u8]) -> gridlane_core::Result<()> {
        if self.0.get(id)?.is_some() { Ok(()) } else { self.0.put(id, sealed) }
    }
    fn get(&self, id: &RecordId) -> gridlane_core::Result<Option<Vec<u8>>> {
        self.0.get(id)
    }
    fn remove(&self, id: &RecordId) -> gridlane_core::Result<bool> {
        self.0.remove(id)
    }
    fn names(&self, kind: Kind) -> gridlane_core::Result<Vec<String>> {
        self.0.names(kind)
    }
}

#[test]
fn the_suite_finds_a_store_that_forgets() {
    let words = suite::check(Forgetful(MemoryStore::default()), Ok).unwrap().unwrap_err();
    assert!(words.contains("takes the place of another"), "{words}");
}

#[test]
fn files_are_for_their_owner_and_one_process_has_them() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("vault");
    let vault = Vault::new(DirStore::open(&root).unwrap(), secrets(OLD));
    vault.put(&id(Kind::Proxy, "ada"), b"the key of a proxy").unwrap();
    assert_eq!(
        (mode(&root), mode(&root.join("proxy")), mode(&root.join("proxy/ada"))),
        (0o700, 0o700, 0o600)
    );
    assert_eq!(mode(&root.join("lock")), 0o600);
    let kept = fs::read(root.join("proxy/ada")).unwrap();
    assert!(!kept.windows(5).any(|bytes| bytes == b"proxy" || bytes == b" key "), "{kept:?}");
    let error = DirStore::open(&root).err().unwrap();
    assert!(error.kind() == ErrorKind::Busy && error.message().contains("another process has"), "{error:?}");
    drop(vault);
    drop(DirStore::open(&root).unwrap());
    fs::set_permissions(&root, fs::Permissions::from_mode(0o750)).unwrap();
    let error = DirStore::open(&root).err().unwrap();
    assert!(error.message().contains("its mode 750 lets others in"), "{error:?}");
    assert!(DirStore::open(&dir.path().join("not/there")).is_err());
}

#[test]
fn names_lead_nowhere_else() {
    for name in ["", ".", "..", "../x", "a/b", "a.new-1", ".hidden", "-x", "a b", "ä", "a\0", &"x".repeat(65)]
    {
        assert!(RecordId::new(Kind::Key, name).is_err(), "{name:?}");
    }
    for name in ["1c4f2b7a90d3e865", "0f0e-11ee_A", &"x".repeat(64)] {
        assert!(RecordId::new(Kind::Key, name).is_ok(), "{name:?}");
    }
}

#[test]
fn a_record_that_was_changed_or_moved_is_not_used() {
    let vault = Vault::new(MemoryStore::default(), secrets(OLD));
    let ada = id(Kind::Proxy, "ada");
    vault.put(&ada, b"ada's").unwrap();
    vault.put(&id(Kind::Proxy, "eve"), b"eve's").unwrap();
    let sealed = vault.store().get(&ada).unwrap().unwrap();
    let bad = |id: &RecordId, bytes: &[u8]| {
        vault.store().put(id, bytes).unwrap();
        let error = vault.get(id).expect_err("it was changed");
        assert_eq!(error.kind(), ErrorKind::ChecksumMismatch);
        assert!(error.message().starts_with(&format!("{id} is not used")), "{error:?}");
        error.message().to_owned()
    };
    for index in 0..sealed.len() {
        for bit in 0..8 {
            let mut changed = sealed.clone();
            changed[index] ^= 1 << bit;
            bad(&ada, &changed);
        }
        bad(&ada, &sealed[..index]);
    }
    bad(&ada, &[&sealed[..], b"x"].concat());
    // In the place of another user's, and of another kind.
    assert!(bad(&id(Kind::Proxy, "eve"), &sealed).contains("belongs elsewhere"));
    assert!(bad(&id(Kind::Key, "ada"), &sealed).contains("belongs elsewhere"));
    assert!(bad(&ada, b"-----BEGIN PRIVATE KEY-----").contains("no sealed record"));
    assert!(bad(&ada, &[b"GLV2", &sealed[4..]].concat()).contains("does not know"));
    vault.store().put(&ada, &sealed).unwrap();
    assert_eq!(vault.get(&ada).unwrap().as_deref(), Some(&b"ada's"[..]));
    // The same text is sealed differently each time.
    vault.put(&ada, b"ada's").unwrap();
    assert_ne!(vault.store().get(&ada).unwrap().unwrap()[4 + 8..], sealed[4 + 8..]);
}

#[test]
fn secrets_are_changed_without_losing_a_record() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("vault");
    let open = |text: &str| Vault::new(DirStore::open(&root).unwrap(), secrets(text));
    let vault = open(OLD);
    for name in ["ada", "bob"] {
        vault.put(&id(Kind::Token, name), name.as_bytes()).unwrap();
    }
    drop(vault);
    let vault = open(NEW);
    let error = vault.get(&id(Kind::Token, "ada")).unwrap_err();
    assert!(error.message().contains("a secret that is not among those of the site"), "{error:?}");
    drop(vault);
    let vault = open(&format!("# since spring\n{NEW}\n---\n{OLD}\n"));
    vault.put(&id(Kind::Key, "zoe"), b"zoe").unwrap();
    assert_eq!(vault.get(&id(Kind::Token, "ada")).unwrap().as_deref(), Some(&b"ada"[..]));
    assert_eq!((vault.reseal().unwrap(), vault.reseal().unwrap()), (2, 0));
    drop(vault);
    let vault = open(NEW);
    assert_eq!(vault.get(&id(Kind::Token, "bob")).unwrap().as_deref(), Some(&b"bob"[..]));
}

#[test]
fn a_file_with_secrets_is_for_its_owner() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    fs::write(&path, OLD).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let error = Secrets::read(&path).unwrap_err();
    assert!(error.message().contains("can be read by others (mode 640)"), "{error:?}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let read = Secrets::read(&path).unwrap();
    assert_eq!(format!("{read:?}"), "Secrets(1)");
    fs::write(&path, "c2hvcnQ=").unwrap();
    let error = Secrets::read(&path).unwrap_err();
    assert!(error.message().contains("5 bytes, and must have 32 or more"), "{error:?}");
    assert!(Secrets::read(&dir.path().join("none")).is_err());
}

/// In a process that is killed: writes versions of a record, and says which one is about to be written.
fn write_until_killed(root: &str) {
    let vault = Vault::new(DirStore::open(Path::new(root)).unwrap(), secrets(OLD));
    for version in 0u64.. {
        println!("writing {version}");
        let bytes = vec![version.to_be_bytes(); 4096].concat();
        vault.put(&id(Kind::Proxy, "ada"), &bytes).unwrap();
    }
}

#[test]
fn a_process_that_is_killed_leaves_one_version_or_the_next() {
    const ROOT: &str = "GRIDLANE_TEST_VAULT";
    if let Ok(root) = std::env::var(ROOT) {
        return write_until_killed(&root);
    }
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("vault");
    for kill_at in [1u64, 2, 3, 5, 8, 13, 21, 34] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_process_that_is_killed_leaves_one_version_or_the_next", "--nocapture"])
            .env(ROOT, &root)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said =
            |line: &str| line.rsplit_once("writing ").and_then(|(_, number)| number.parse::<u64>().ok());
        let mut last = None;
        let mut lines = lines.map(|line| line.unwrap()).filter_map(|line| said(&line));
        for number in lines.by_ref() {
            last = Some(number);
            if number >= kill_at {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it said before it died.
        last = lines.last().or(last);
        let last = last.unwrap();
        assert!(last >= kill_at);

        let vault = Vault::new(DirStore::open(&root).unwrap(), secrets(OLD));
        let bytes = vault.get(&id(Kind::Proxy, "ada")).unwrap().unwrap();
        let version = u64::from_be_bytes(bytes[..8].try_into().unwrap());
        assert_eq!(bytes, vec![version.to_be_bytes(); 4096].concat());
        assert!(version == last || version + 1 == last, "{version} is there, {last} was being written");
        // Nor is anything else left.
        assert_eq!(fs::read_dir(root.join("proxy")).unwrap().count(), 1);
    }
}

#[test]
fn what_a_dead_process_left_is_taken_away() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("vault");
    let store = DirStore::open(&root).unwrap();
    store.put(&id(Kind::Key, "ada"), b"whole").unwrap();
    drop(store);
    fs::write(root.join("key/ada.new-4711"), b"ha").unwrap();
    let store = DirStore::open(&root).unwrap();
    assert!(!root.join("key/ada.new-4711").exists());
    assert_eq!(store.get(&id(Kind::Key, "ada")).unwrap().as_deref(), Some(&b"whole"[..]));
}

proptest! {
    #[test]
    fn what_is_sealed_is_opened(plain in proptest::collection::vec(any::<u8>(), 0..2000), name in "[a-z0-9]{1,64}") {
        let vault = Vault::new(MemoryStore::default(), secrets(OLD));
        let id = id(Kind::Token, &name);
        vault.put(&id, &plain).unwrap();
        prop_assert_eq!(vault.get(&id).unwrap(), Some(plain));
        prop_assert_eq!(vault.names(Kind::Token).unwrap(), [name]);
    }

    #[test]
    fn any_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), as_ours in any::<bool>()) {
        let vault = Vault::new(MemoryStore::default(), secrets(OLD));
        let id = id(Kind::Token, "x");
        let bytes = if as_ours { [&b"GLV1"[..], &bytes].concat() } else { bytes };
        vault.store().put(&id, &bytes).unwrap();
        prop_assert!(vault.get(&id).is_err());
    }
}

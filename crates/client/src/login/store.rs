//! Logins in files: one for each, which its user alone can read.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gridlane_auth::oidc::{Client, Tokens};
use gridlane_core::limits::{
    LOGIN_FILE_BYTES_MAX, LOGIN_LOCK_MAX, LOGIN_NAME_CHARS_MAX, LOGINS_MAX, REFRESH_TOKEN_BYTES_MAX,
    TOKEN_BYTES_MAX,
};
use gridlane_core::{Backoff, Error, ErrorKind, Fault, Hint, Result, Secret};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::usage;
use crate::random::random;

/// An access token and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The token.
    pub secret: Secret,
    /// When it came, in seconds since 1970.
    pub began_s: i64,
    /// When it ends, in seconds since 1970; `None`: its issuer does not say.
    pub ends_s: Option<i64>,
}

/// A login as it is kept. Its `Debug` shows no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// Its name, which is its file's.
    pub name: String,
    /// The issuer, exactly as it calls itself.
    pub issuer: String,
    /// Who the issuer takes the program for.
    pub client: Client,
    /// True if nobody logged in: the client has tokens of its own.
    pub is_client: bool,
    /// The scopes that are asked for.
    pub scope: Option<String>,
    /// The servers that its tokens are for.
    pub audience: Option<String>,
    /// Makes new access tokens; `None`: there are no more when this one ends.
    pub refresh: Option<Secret>,
    /// The last access token.
    pub access: Option<Access>,
}

/// The file. It has no `Debug`.
#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    issuer: String,
    client_id: String,
    client_secret: Option<String>,
    #[serde(default)]
    is_client: bool,
    scope: Option<String>,
    audience: Option<String>,
    refresh_token: Option<String>,
    access_token: Option<StoredAccess>,
}

#[derive(Serialize, Deserialize)]
struct StoredAccess {
    token: String,
    began_s: i64,
    ends_s: Option<i64>,
}

/// The form of the file that is written, and read.
const VERSION: u32 = 1;

impl Login {
    /// True if it can be renewed.
    pub fn is_renewable(&self) -> bool {
        self.refresh.is_some() || self.is_client
    }

    /// Takes what the issuer gave at `now_s`, in seconds since 1970. A refresh token that is not replaced stays good
    /// (RFC 6749, 6).
    pub(super) fn take(&mut self, tokens: Tokens, now_s: i64) {
        let ends_s =
            tokens.lasts_s.map(|lasts_s| now_s.saturating_add(i64::try_from(lasts_s).unwrap_or(i64::MAX)));
        self.access = Some(Access { secret: tokens.access, began_s: now_s, ends_s });
        self.refresh = tokens.refresh.or(self.refresh.take());
    }

    fn to_bytes(&self) -> Result<Secret> {
        let text = |secret: &Secret| secret.expose().to_owned();
        let stored = Stored {
            version: VERSION,
            issuer: self.issuer.clone(),
            client_id: self.client.id.clone(),
            client_secret: self.client.secret.as_ref().map(text),
            is_client: self.is_client,
            scope: self.scope.clone(),
            audience: self.audience.clone(),
            refresh_token: self.refresh.as_ref().map(text),
            access_token: self.access.as_ref().map(|access| StoredAccess {
                token: text(&access.secret),
                began_s: access.began_s,
                ends_s: access.ends_s,
            }),
        };
        let json = serde_json::to_string(&stored)
            .map_err(|_| Error::new(ErrorKind::Other, "a login cannot be written as JSON"))?;
        Ok(Secret::new(json + "\n"))
    }

    fn from_bytes(name: &str, bytes: &[u8]) -> Option<Login> {
        let stored: Stored = serde_json::from_slice(bytes).ok()?;
        if stored.version != VERSION {
            return None;
        }
        Some(Login {
            name: name.to_owned(),
            issuer: stored.issuer,
            client: Client { id: stored.client_id, secret: stored.client_secret.map(Secret::new) },
            is_client: stored.is_client,
            scope: stored.scope,
            audience: stored.audience,
            refresh: stored.refresh_token.map(Secret::new),
            access: stored.access_token.map(|access| Access {
                secret: Secret::new(access.token),
                began_s: access.began_s,
                ends_s: access.ends_s,
            }),
        })
    }
}

/// Refuses what is no name of a login: it is a file's, and no URL.
pub fn judge_name(name: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@+".contains(&byte);
    let is_good = name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
        && name.len() <= LOGIN_NAME_CHARS_MAX
        && name.bytes().all(is_plain);
    match is_good {
        true => Ok(()),
        false => Err(usage(format!("{name:?} is no name for a login"))
            .hint("it has letters, digits and -_.@+, and begins with a letter or a digit")),
    }
}

/// The logins of a user.
#[derive(Clone, Debug)]
pub struct Store {
    directory: PathBuf,
}

/// The right to renew a login, which one process has at a time.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

/// Room on the disk for the next state of a login: what a full disk refuses is refused before the issuer is asked.
pub(super) struct Room {
    file: File,
    path: PathBuf,
    target: PathBuf,
    is_filled: bool,
}

impl Store {
    /// The logins in `gridlane/logins` of the directory for a user's data: `$XDG_DATA_HOME`, or `.local/share` in `$HOME`. An
    /// error of kind `Usage` where there is neither.
    pub fn of(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Result<Store> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let data = set("XDG_DATA_HOME").or_else(|| Some(set("HOME")?.join(".local/share")));
        let data =
            data.ok_or_else(|| usage("there is no place for logins: neither HOME nor XDG_DATA_HOME is set"))?;
        Ok(Store::at(data.join("gridlane/logins")))
    }

    /// The logins in a directory.
    pub fn at(directory: PathBuf) -> Store {
        Store { directory }
    }

    /// The file of a login.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.json"))
    }

    /// The names of all logins, in order.
    pub fn names(&self) -> Result<Vec<String>> {
        let entries = match fs::read_dir(&self.directory) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|cause| self.failed("read", &self.directory, &cause))?,
        };
        let name = |entry: io::Result<fs::DirEntry>| {
            let file = entry.ok()?.file_name().into_string().ok()?;
            Some(file.strip_suffix(".json").filter(|name| judge_name(name).is_ok())?.to_owned())
        };
        let mut names: Vec<String> = entries.filter_map(name).take(LOGINS_MAX).collect();
        names.sort();
        Ok(names)
    }

    /// A login; an error of kind `NotFound` when there is none of this name, and `Denied` for a file that others can read, or
    /// that is another user's: what stands in it may be known to them, or be theirs.
    pub fn read(&self, name: &str) -> Result<Login> {
        judge_name(name)?;
        self.judge_directory()?;
        let path = self.file(name);
        let mut options = OpenOptions::new();
        // A link would lead to what others chose; a pipe would never end.
        options.read(true).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
        let file = match options.open(&path) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                return Err(Error::new(ErrorKind::NotFound, format!("there is no login {name:?}"))
                    .fault(Fault::Caller)
                    .hint(Hint::LogIn));
            }
            file => file.map_err(|cause| self.failed("read", &path, &cause))?,
        };
        let meta = file.metadata().map_err(|cause| self.failed("read", &path, &cause))?;
        judge(&path, &meta, "file")?;
        let mut bytes = Vec::new();
        file.take(LOGIN_FILE_BYTES_MAX as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(|cause| self.failed("read", &path, &cause))?;
        let login = Some(bytes).filter(|bytes| bytes.len() <= LOGIN_FILE_BYTES_MAX);
        login.and_then(|bytes| Login::from_bytes(name, &bytes)).ok_or_else(|| {
            let message = format!("{} is no login that can be read", path.display());
            Error::new(ErrorKind::Denied, message).fault(Fault::Local).hint(Hint::LogIn)
        })
    }

    /// Puts a login in the place of what was there under its name: whole, or not at all. The caller has its lock.
    pub fn write(&self, login: &Login) -> Result<()> {
        self.room(&login.name)?.fill(login)
    }

    /// Removes a login. Waits for a process that renews it, which would put it back. An error of kind `NotFound` when there is
    /// none.
    pub fn forget(&self, name: &str) -> Result<()> {
        judge_name(name)?;
        let path = self.file(name);
        let _lock = match path.symlink_metadata() {
            Ok(_) => {
                let file = self.lock_file(name)?;
                flock(&file, FlockOperation::LockExclusive)
                    .map_err(|cause| self.failed("lock", &path, &cause.into()))?;
                Some(Lock { _file: file })
            }
            Err(_) => None,
        };
        self.sweep(name);
        match fs::remove_file(&path) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                Err(Error::new(ErrorKind::NotFound, format!("there is no login {name:?}"))
                    .fault(Fault::Caller))
            }
            removed => removed.map_err(|cause| self.failed("remove", &path, &cause)),
        }
    }

    /// The right to change a login, waited for while another process has it.
    pub(super) async fn lock(&self, name: &str) -> Result<Lock> {
        let (file, began, mut backoff) = (self.lock_file(name)?, Instant::now(), Backoff::new());
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Lock { _file: file }),
                Err(Errno::WOULDBLOCK) if began.elapsed() < LOGIN_LOCK_MAX => {
                    tokio::time::sleep(backoff.pause().min(LOCK_PAUSE_MAX)).await;
                }
                Err(Errno::WOULDBLOCK) => {
                    let message =
                        format!("another process has been renewing the login {name:?} for too long");
                    return Err(Error::new(ErrorKind::Timeout, message).fault(Fault::Local));
                }
                Err(Errno::INTR) => {}
                Err(cause) => return Err(self.failed("lock", &self.file(name), &cause.into())),
            }
        }
    }

    fn lock_file(&self, name: &str) -> Result<File> {
        judge_name(name)?;
        self.make_directory()?;
        let path = self.directory.join(format!("{name}.lock"));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        options.open(&path).map_err(|cause| self.failed("lock", &path, &cause))
    }

    /// Takes the room on the disk for a login of this name, whose lock the caller has.
    pub(super) fn room(&self, name: &str) -> Result<Room> {
        /// The largest tokens, and what stands beside them.
        const ROOM_BYTES: usize = 2 * (REFRESH_TOKEN_BYTES_MAX + TOKEN_BYTES_MAX);
        judge_name(name)?;
        self.make_directory()?;
        let (target, path) = (
            self.file(name),
            self.directory.join(format!(".{name}.new-{:016x}", u64::from_be_bytes(random()?))),
        );
        self.sweep(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let file = options.open(&path).map_err(|cause| self.failed("write", &path, &cause))?;
        let mut room = Room { file, path, target, is_filled: false };
        let filled = room.file.write_all(&[b' '; ROOM_BYTES]).and_then(|()| room.file.sync_all());
        filled.map_err(|cause| self.failed("keep the login in", &self.directory, &cause))?;
        Ok(room)
    }

    /// Removes what processes that died have left of a login. The caller has its lock, so that nothing is in use.
    fn sweep(&self, name: &str) {
        let begins = format!(".{name}.new-");
        let is_left = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&begins);
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        entries.filter(is_left).for_each(|entry| drop(fs::remove_file(entry.path())));
    }

    fn make_directory(&self) -> Result<()> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.directory);
        made.map_err(|cause| self.failed("make", &self.directory, &cause))?;
        self.judge_directory()
    }

    fn judge_directory(&self) -> Result<()> {
        match fs::metadata(&self.directory) {
            Ok(meta) => judge(&self.directory, &meta, "directory"),
            // What is not there has nothing wrong in it.
            Err(_) => Ok(()),
        }
    }

    fn failed(&self, what: &str, path: &Path, cause: &io::Error) -> Error {
        Error::local_io(format!("cannot {what} {}", path.display()), cause)
    }
}

/// The longest pause between two tries to lock: a renewal takes a few round trips.
const LOCK_PAUSE_MAX: Duration = Duration::from_millis(200);

/// Refuses what others can read or change, or have made.
fn judge(path: &Path, meta: &fs::Metadata, what: &str) -> Result<()> {
    let denied = |message: String| Error::new(ErrorKind::Denied, message).fault(Fault::Local);
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(denied(format!("{} belongs to another user ({})", path.display(), meta.uid())));
    }
    let mode = meta.mode() & 0o777;
    if mode & 0o077 != 0 {
        let message = format!(
            "the {what} {} has logins and can be read or changed by others (mode {mode:03o})",
            path.display()
        );
        let own = if what == "file" { "600" } else { "700" };
        return Err(denied(message).hint(format!(
            "chmod {own} {} if they have not been read yet; else log in again",
            path.display()
        )));
    }
    if what == "file" && !meta.is_file() {
        return Err(denied(format!("{} is no regular file", path.display())));
    }
    Ok(())
}

impl Room {
    /// Makes it the file of this login. It is there when this returns, also after a crash of the machine.
    pub(super) fn fill(mut self, login: &Login) -> Result<()> {
        let text = login.to_bytes()?;
        let bytes = text.expose().as_bytes();
        // What is not overwritten are spaces, which JSON may end with; they go last.
        let written = (|| {
            self.file.seek(SeekFrom::Start(0))?;
            self.file.write_all(bytes)?;
            self.file.set_len(bytes.len() as u64)?;
            self.file.sync_all()?;
            fs::rename(&self.path, &self.target)?;
            self.is_filled = true;
            self.target.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
        })();
        written.map_err(|cause: io::Error| {
            Error::local_io(format!("cannot write {}", self.target.display()), &cause)
        })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if !self.is_filled {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn login(name: &str) -> Login {
        let access = Access { secret: Secret::new("the-access"), began_s: 5, ends_s: Some(9) };
        Login {
            name: name.into(),
            issuer: "https://iam.example/".into(),
            client: Client { id: "c".into(), secret: Some(Secret::new("the-secret")) },
            is_client: false,
            scope: Some("openid".into()),
            audience: None,
            refresh: Some(Secret::new("the-refresh")),
            access: Some(access),
        }
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o777
    }

    /// A renewal that is under way ends first, so that it does not put back what was removed; and what dead processes left goes.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn forgetting_waits_for_a_renewal_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::at(dir.path().join("logins"));
        store.write(&login("a")).unwrap();
        fs::write(dir.path().join("logins/.a.new-0123"), "a refresh token").unwrap();
        let lock = store.lock("a").await.unwrap();
        let forgetting = {
            let store = store.clone();
            tokio::task::spawn_blocking(move || store.forget("a"))
        };
        store.room("a").unwrap().fill(&login("a")).unwrap();
        assert!(!forgetting.is_finished());
        drop(lock);
        forgetting.await.unwrap().unwrap();
        assert_eq!(store.read("a").unwrap_err().kind(), ErrorKind::NotFound);
        let left: Vec<_> = fs::read_dir(dir.path().join("logins")).unwrap().flatten().collect();
        assert!(left.iter().all(|entry| entry.file_name() == "a.lock"), "{left:?}");
    }

    #[test]
    fn a_login_is_kept_and_nobody_else_can_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let of = |name: &str| (name == "XDG_DATA_HOME").then(|| dir.path().as_os_str().to_owned());
        let store = Store::of(of).unwrap();
        assert_eq!(store.names().unwrap(), Vec::<String>::new());
        assert_eq!(store.read("a").unwrap_err().kind(), ErrorKind::NotFound);
        store.write(&login("a")).unwrap();
        store.write(&login("b@c")).unwrap();
        assert_eq!(store.read("a").unwrap(), login("a"));
        assert_eq!(store.names().unwrap(), ["a", "b@c"]);
        let directory = dir.path().join("gridlane/logins");
        assert_eq!((mode(&store.file("a")), mode(&directory)), (0o600, 0o700));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2, "nothing else is left");
        let shown = format!("{:?}", login("a"));
        assert!(!["the-access", "the-secret", "the-refresh"].iter().any(|secret| shown.contains(secret)));
        store.forget("a").unwrap();
        assert_eq!(store.forget("a").unwrap_err().kind(), ErrorKind::NotFound);
        assert!(Store::of(|_| None).is_err());
    }

    #[test]
    fn what_others_could_have_read_or_made_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::at(dir.path().join("logins"));
        store.write(&login("a")).unwrap();
        let set =
            |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        for bad in [0o640, 0o604, 0o620] {
            set(&store.file("a"), bad);
            let error = store.read("a").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Denied);
            assert!(error.message().contains("can be read or changed by others"), "{error}");
        }
        set(&store.file("a"), 0o600);
        set(&dir.path().join("logins"), 0o755);
        assert!(store.read("a").is_err() && store.write(&login("a")).is_err());
        set(&dir.path().join("logins"), 0o700);
        symlink(store.file("a"), store.file("link")).unwrap();
        assert!(store.read("link").is_err(), "it leads elsewhere");
        fs::write(store.file("half"), "{\"version\":1,\"iss").unwrap();
        set(&store.file("half"), 0o600);
        assert!(store.read("half").unwrap_err().message().contains("no login that can be read"));
        for name in
            ["", ".", "..", "../a", "a/b", ".a", "-a", "a b", "oidc-agent:a", "https://a", &"a".repeat(101)]
        {
            assert_eq!(store.read(name).unwrap_err().kind(), ErrorKind::Usage, "{name}");
        }
    }

    #[test]
    fn a_refresh_token_stays_unless_it_is_replaced() {
        let mut kept = login("a");
        let tokens = |refresh: Option<&str>, lasts_s| Tokens {
            access: Secret::new("next"),
            lasts_s,
            refresh: refresh.map(Secret::new),
            scope: None,
        };
        kept.take(tokens(None, Some(60)), 100);
        assert_eq!(kept.refresh, Some(Secret::new("the-refresh")));
        assert_eq!(
            kept.access,
            Some(Access { secret: Secret::new("next"), began_s: 100, ends_s: Some(160) })
        );
        kept.take(tokens(Some("another"), None), 100);
        assert_eq!(kept.refresh, Some(Secret::new("another")));
        assert_eq!(kept.access.unwrap().ends_s, None);
    }

    #[test]
    fn a_process_that_dies_while_it_writes_leaves_the_old_login() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::at(dir.path().join("logins"));
        store.write(&login("a")).unwrap();
        let room = store.room("a").unwrap();
        assert_eq!(store.read("a").unwrap(), login("a"), "only renaming changes it");
        assert_eq!(store.names().unwrap(), ["a"]);
        drop(room);
        assert_eq!(fs::read_dir(dir.path().join("logins")).unwrap().count(), 1);
    }
}

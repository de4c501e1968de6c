//! The keys of tokens' issuers: fetched, kept in files, and used.
//!
//! Decisions are made in [`KeyCache`]; here are the parts that it needs of the world: a source to fetch from, one fetch
//! per issuer at a time, a clock, and a directory. All generations of settings share one `Keys`.

use std::collections::{HashMap, HashSet};
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use gridlane_auth::token::cache::Reason;
use gridlane_auth::token::verified::Fingerprint;
use gridlane_auth::token::{Issuer, KeyCache, KeySet, Unverified, VerifiedTokens, discovery};
use gridlane_auth::{Cause, Identity, Refusal};
use gridlane_core::limits;
use tokio::sync::{Notify, watch};
use tokio::time::{interval, timeout};

use crate::access_log::AccessLog;
use crate::metrics::Counter;
use crate::settings::{AuthSettings, KeySource};

/// The keys of tokens' issuers, and the tokens that they were found good by.
#[derive(Default)]
pub(crate) struct Keys {
    state: Mutex<State>,
    /// Notified of new settings.
    new_settings: Notify,
    /// Fetches that began.
    pub(crate) fetches: Counter,
    /// Those that failed.
    pub(crate) failures: Counter,
    /// Tokens that were found good before.
    pub(crate) known: Counter,
    /// Tokens whose signature was looked at.
    pub(crate) looked_at: Counter,
}

#[derive(Default)]
struct State {
    trusted: Arc<Trusted>,
    source: Option<Arc<dyn KeySource>>,
    directory: Option<PathBuf>,
    log: Option<AccessLog>,
    cache: KeyCache,
    verified: VerifiedTokens,
    /// Fetches that run, by issuer: the waiting tasks are woken when they end.
    running: HashMap<String, watch::Receiver<()>>,
    /// Issuers whose last fetch failed: that was logged, and is logged again only after a success.
    failing: HashSet<String>,
}

/// The issuers whose tokens count, and the names by which tokens may call this server.
#[derive(Default, PartialEq)]
struct Trusted {
    issuers: Vec<Issuer>,
    audiences: Vec<String>,
}

impl Keys {
    /// Goes by these settings from now on. Keys of issuers that stay are kept: settings change with every list of
    /// revoked credentials, and issuers have nothing to do with that. Those of new ones are looked for in the
    /// directory, which blocks.
    pub(crate) fn configure(&self, settings: &AuthSettings, log: &AccessLog) {
        let now_s = now_s();
        let mut state = self.state();
        let trusted = Trusted { issuers: settings.issuers.clone(), audiences: settings.audiences.clone() };
        if *state.trusted != trusted {
            state.cache.set_issuers(trusted.issuers.iter().map(|issuer| issuer.url.as_str()));
            state.trusted = Arc::new(trusted);
        }
        self.new_settings.notify_one();
        state.source = settings.key_source.clone();
        state.directory.clone_from(&settings.keys_directory);
        state.log = Some(log.clone());
        let Some(directory) = state.directory.clone() else { return };
        let issuers: Vec<String> = state.cache.issuers().map(str::to_owned).collect();
        // No lookup of keys waits for this disk.
        drop(state);
        for issuer in issuers {
            let file = file_of(&directory, &issuer);
            let restored = match read(&file) {
                Ok(None) => continue,
                Ok(Some(stored)) => {
                    let restored = self.state().cache.restore(&stored, now_s);
                    restored.map_err(|refusal| refusal.to_string())
                }
                Err(cause) => Err(cause.to_string()),
            };
            if let Err(cause) = restored {
                log.note(&format!("keys of {issuer} are not read from {}: {cause}", file.display()));
            }
        }
    }

    /// Has the keys of all issuers fetched again, however recent they are: an operator knows that one was revoked.
    pub(crate) fn outdate(&self) {
        self.state().cache.outdate();
        self.new_settings.notify_one();
    }

    /// The bearer of a token that was found good before: without a signature, and without waiting.
    pub(crate) fn seen(&self, token: &str, now_s: i64) -> Option<Arc<Identity>> {
        let fingerprint = Fingerprint::of(token);
        let mut state = self.state();
        let generation = state.cache.generation();
        let known = state.verified.get(fingerprint, generation, now_s);
        drop(state);
        known.inspect(|_| {
            self.known.add(1);
        })
    }

    /// When the keys of each issuer were fetched that are used now, in seconds since 1970.
    pub(crate) fn fetched_s(&self) -> Vec<(String, i64)> {
        let state = self.state();
        let issuers = state.cache.issuers();
        issuers.filter_map(|issuer| Some((issuer.to_owned(), state.cache.fetched_s(issuer)?))).collect()
    }

    /// The bearer of a token. Waits for its issuer's keys when it is signed with one that is not known, and they were
    /// not fetched just before.
    pub(crate) async fn verify(self: &Arc<Self>, token: &str, now_s: i64) -> Result<Arc<Identity>, Refusal> {
        if let Some(identity) = self.seen(token, now_s) {
            return Ok(identity);
        }
        self.looked_at.add(1);
        let trusted = Arc::clone(&self.state().trusted);
        let unverified = Unverified::read(token, &trusted.issuers)?;
        let issuer = unverified.issuer().url.as_str();
        let mut is_fetched = false;
        loop {
            let (keys, generation) = {
                let state = self.state();
                (state.cache.keys(issuer, now_s), state.cache.generation())
            };
            let outcome = match &keys {
                Some(keys) => unverified.verify(keys, &trusted.audiences, now_s),
                None => Err(Refusal::new(
                    Cause::Unavailable,
                    "the keys of the token's issuer cannot be had at the moment",
                )),
            };
            match outcome {
                Ok(identity) => {
                    let identity = Arc::new(Identity::Token(identity));
                    let mut state = self.state();
                    // What was found by keys or settings that are no longer those is not kept.
                    if state.cache.generation() == generation && Arc::ptr_eq(&state.trusted, &trusted) {
                        state.verified.insert(Fingerprint::of(token), generation, Arc::clone(&identity));
                    }
                    return Ok(identity);
                }
                Err(refusal) => {
                    let may_help = matches!(refusal.cause, Cause::UnknownKey | Cause::Unavailable);
                    if is_fetched || !may_help || !self.fetch(issuer, Reason::UnknownKey, now_s).await {
                        return Err(refusal);
                    }
                    is_fetched = true;
                }
            }
        }
    }

    /// Fetches keys before they are needed, and again before they are old, for as long as it is polled.
    pub(crate) async fn refresh(self: &Arc<Self>) {
        let mut again = interval(limits::ISSUER_KEYS_FAILED_WAIT);
        loop {
            tokio::select! {
                _ = again.tick() => {}
                () = self.new_settings.notified() => {}
            }
            let now_s = now_s();
            let issuers: Vec<String> = {
                let mut state = self.state();
                state.cache.drop_old(now_s);
                state.cache.issuers().map(str::to_owned).collect()
            };
            for issuer in issuers {
                // One that hangs must not hold up the others.
                drop(self.begin(&issuer, Reason::Age, now_s));
            }
        }
    }

    /// Waits for a fetch, which may be one that runs already; `false` when there is none.
    async fn fetch(self: &Arc<Self>, issuer: &str, reason: Reason, now_s: i64) -> bool {
        let Some(mut fetch_end) = self.begin(issuer, reason, now_s) else { return false };
        // The other end is dropped when it ends, in whatever way.
        let _ = fetch_end.changed().await;
        true
    }

    /// The fetch that runs, or a new one if it is time for one. It goes on when no task waits for it any longer.
    fn begin(self: &Arc<Self>, issuer: &str, reason: Reason, now_s: i64) -> Option<watch::Receiver<()>> {
        let mut state = self.state();
        if let Some(fetch_end) = state.running.get(issuer) {
            return Some(fetch_end.clone());
        }
        let source = state.source.clone()?;
        if !state.cache.wants(issuer, reason, now_s) {
            return None;
        }
        state.cache.begin(issuer, now_s);
        let (ended, fetch_end) = watch::channel(());
        state.running.insert(issuer.to_owned(), fetch_end.clone());
        drop(state);
        self.fetches.add(1);
        let (keys, issuer) = (Arc::clone(self), issuer.to_owned());
        tokio::spawn(async move {
            let landing = RunningFetch { keys, issuer, _ended: ended };
            let outcome = fetched(source.as_ref(), &landing.issuer).await;
            landing.keys.arrived(&landing.issuer, outcome, now_s).await;
        });
        Some(fetch_end)
    }

    async fn arrived(&self, issuer: &str, outcome: Result<KeySet, String>, now_s: i64) {
        let FetchResult { mut notes, stored, log } = self.settle(issuer, outcome, now_s);
        if let Some((file, content)) = stored {
            let shown = file.display().to_string();
            let written = tokio::task::spawn_blocking(move || write(&file, &content)).await;
            if let Ok(Err(cause)) = written {
                notes.push(format!("keys of {issuer} are not kept in {shown}: {cause}"));
            }
        }
        if let Some(log) = log {
            notes.iter().for_each(|note| log.note(note));
        }
    }

    fn settle(&self, issuer: &str, outcome: Result<KeySet, String>, now_s: i64) -> FetchResult {
        let mut state = self.state();
        let mut notes = Vec::new();
        let mut stored = None;
        match outcome {
            Ok(keys) => {
                state.cache.succeed(issuer, keys, now_s);
                if state.failing.remove(issuer) {
                    notes.push(format!("keys of {issuer} are fetched again"));
                }
                let file = state.directory.as_deref().map(|directory| file_of(directory, issuer));
                stored = file.zip(state.cache.stored(issuer));
            }
            Err(cause) => {
                self.failures.add(1);
                if state.failing.insert(issuer.to_owned()) {
                    notes.push(format!("keys of {issuer} are not fetched: {cause}"));
                }
            }
        }
        FetchResult { notes, stored, log: state.log.clone() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The steps after a fetch, which do not hold up lookups of keys.
struct FetchResult {
    notes: Vec<String>,
    stored: Option<(PathBuf, Vec<u8>)>,
    log: Option<AccessLog>,
}

/// A fetch that runs: however it ends, the waiting tasks go on, and another may begin.
struct RunningFetch {
    keys: Arc<Keys>,
    issuer: String,
    /// Its end wakes the waiting tasks.
    _ended: watch::Sender<()>,
}

impl Drop for RunningFetch {
    fn drop(&mut self) {
        self.keys.state().running.remove(&self.issuer);
    }
}

/// The current time in seconds since 1970, as tokens count it.
pub fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// An issuer's keys, by its description at one of two places; when there is none, the error is that of the first.
async fn fetched(source: &dyn KeySource, issuer: &str) -> Result<KeySet, String> {
    let refused = |refusal: Refusal| refusal.to_string();
    let mut first_cause = None;
    for place in discovery::documents(issuer).map_err(refused)? {
        let described = match document(source, &place).await {
            Ok(bytes) => discovery::read(&bytes, issuer).map_err(|refusal| format!("{place}: {refusal}")),
            Err(cause) => Err(cause),
        };
        match described {
            Ok(keys_url) => {
                let bytes = document(source, &keys_url).await?;
                return KeySet::read(&bytes).map_err(|refusal| format!("{keys_url}: {refusal}"));
            }
            Err(cause) => {
                first_cause.get_or_insert(cause);
            }
        }
    }
    Err(first_cause.unwrap_or_default())
}

async fn document(source: &dyn KeySource, url: &str) -> Result<Vec<u8>, String> {
    match timeout(limits::ISSUER_DOCUMENT_MAX, source.fetch(url)).await {
        Ok(outcome) => outcome.map_err(|error| format!("{url}: {}", error.message())),
        Err(_) => Err(format!("{url}: not there within {} s", limits::ISSUER_DOCUMENT_MAX.as_secs())),
    }
}

/// Issuers are URLs, and may be longer than a file's name: each has a file by its digest.
fn file_of(directory: &Path, issuer: &str) -> PathBuf {
    directory.join(format!("{}.json", Fingerprint::of(issuer)))
}

/// The contents of a file; `None` when there is none.
fn read(file: &Path) -> io::Result<Option<Vec<u8>>> {
    let open = match fs::File::open(file) {
        Ok(open) => open,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(cause),
    };
    let mut stored = Vec::new();
    // One more than is taken: it is refused for its length, not cut.
    open.take(limits::ISSUER_DOCUMENT_BYTES_MAX as u64 + 1).read_to_end(&mut stored)?;
    Ok(Some(stored))
}

/// Makes a file of this content appear as a whole. The directory is made as well.
fn write(file: &Path, content: &[u8]) -> io::Result<()> {
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory)?;
    }
    let begun = file.with_extension(format!("{}.new", std::process::id()));
    let written = (|| {
        let mut open = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&begun)?;
        open.write_all(content)?;
        open.sync_all()?;
        fs::rename(&begun, file)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&begun);
    }
    written
}

#[cfg(test)]
mod tests;

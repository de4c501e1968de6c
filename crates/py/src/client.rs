//! What may be asked of servers: the calls of `gridlane-client`, as jobs.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use gridlane_client::credentials::{Wanted, are_shown_to};
use gridlane_client::{
    Existing, Item, KeptSession, Lister, Location, OddKind, TreePath, authorities, typed_url, unsent,
};
use gridlane_core::{ChecksumKind, Result, Secret, Url};
use gridlane_dav::listing::{Entry, EntryKind};
use gridlane_net::tls::Trust;
use gridlane_peer::HostPattern;
use gridlane_read::Choices;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyList;

use crate::arguments::seconds;
use crate::copying::{self, Asked};
use crate::error::OrRaise;
use crate::file;
use crate::job::{Job, nothing, value};
use crate::process::{Own, lock, step};
use crate::upload;

/// Credentials, trust, and the connections that are made with them.
#[pyclass(frozen, module = "gridlane._gridlane")]
pub(crate) struct Client {
    wanted: Wanted,
    trust: Trust,
    forward_to: Vec<HostPattern>,
    /// Made when they are needed: for servers that are shown credentials, and for others.
    sessions: Mutex<Own<Sessions>>,
}

#[derive(Default)]
struct Sessions {
    showing: Option<KeptSession>,
    plain: Option<KeptSession>,
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (*, token=None, token_file=None, cert=None, key=None, ca=Vec::new(), insecure=false, no_credentials=false, forward_credentials_to=Vec::new()))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords")]
    fn new(
        py: Python<'_>,
        token: Option<String>,
        token_file: Option<PathBuf>,
        cert: Option<PathBuf>,
        key: Option<PathBuf>,
        ca: Vec<PathBuf>,
        insecure: bool,
        no_credentials: bool,
        forward_credentials_to: Vec<String>,
    ) -> PyResult<Client> {
        let token = token.map(Secret::new);
        let wanted = Wanted {
            nothing: no_credentials,
            token,
            token_file,
            certificate: cert,
            key,
            ..Wanted::default()
        };
        let trust = Trust { insecure, ..authorities(ca) };
        let hosts = forward_credentials_to.iter().map(|host| HostPattern::parse(host));
        let forward_to = hosts.collect::<Result<_>>().or_raise(py)?;
        Ok(Client { wanted, trust, forward_to, sessions: Mutex::new(Own::new(Sessions::default())) })
    }

    /// Looks at a file or a directory: `(name, kind, size, mtime, etag)`.
    fn stat(&self, py: Python<'_>, url: &str) -> PyResult<Job> {
        let (url, client) = self.one(py, url)?;
        Job::new(py, async move {
            let found = gridlane_client::stat(&client, &url).await?;
            Ok(value(move |py| described(py, &found.entry, found.etag)))
        })
    }

    /// Lists a directory: `(is_file, [(name, kind, size, mtime, url)])`; a file is the only entry of its list.
    fn ls(&self, py: Python<'_>, url: &str) -> PyResult<Job> {
        let (url, client) = self.one(py, url)?;
        Job::new(py, async move {
            let (is_file, entries) = list(&Lister::new(client), &url).await?;
            Ok(value(move |py| {
                let listed = entries.into_iter().map(|(entry, url)| described(py, &entry, Some(url)));
                let listed = PyList::new(py, listed.collect::<PyResult<Vec<_>>>()?)?;
                Ok((is_file, listed).into_pyobject(py)?.into_any().unbind())
            }))
        })
    }

    /// Makes a directory.
    fn mkdir(&self, py: Python<'_>, url: &str, parents: bool) -> PyResult<Job> {
        let (url, client) = self.one(py, url)?;
        Job::new(py, async move {
            gridlane_client::make_directory(&client, &url, parents).await?;
            Ok(nothing())
        })
    }

    /// Removes a file, or with `recursive` anything.
    fn rm(&self, py: Python<'_>, url: &str, recursive: bool) -> PyResult<Job> {
        let (url, client) = self.one(py, url)?;
        Job::new(py, async move {
            match recursive {
                true => gridlane_client::remove_tree(&client, &url).await?,
                false => gridlane_client::remove(&client, &url).await?,
            }
            Ok(nothing())
        })
    }

    /// Removes a directory that is empty.
    fn rmdir(&self, py: Python<'_>, url: &str) -> PyResult<Job> {
        let (url, client) = self.one(py, url)?;
        Job::new(py, async move {
            gridlane_client::remove_directory(&client, &url).await?;
            Ok(nothing())
        })
    }

    /// Gives a file or a directory another name on its server; returns the URL that it has now.
    fn rename(&self, py: Python<'_>, url: &str, to: &str, overwrite: bool) -> PyResult<Job> {
        let (url, to) = (typed_url(url).or_raise(py)?, typed_url(to).or_raise(py)?);
        let client = self.known(py, &[url.clone(), to.clone()])?.client;
        Job::new(py, async move {
            let now = gridlane_client::rename(&client, &url, &to, overwrite).await?.typed();
            Ok(value(move |py| Ok(now.into_pyobject(py)?.into_any().unbind())))
        })
    }

    /// The checksum of a file, `TYPE:HEX`.
    fn checksum(&self, py: Python<'_>, url: &str, kind: &str) -> PyResult<Job> {
        let kind: ChecksumKind = kind.parse().or_raise(py)?;
        let (url, client) = self.one(py, url)?;
        Job::new(py, async move {
            let found = gridlane_client::checksum(&client, &url, kind).await?.to_string();
            Ok(value(move |py| Ok(found.into_pyobject(py)?.into_any().unbind())))
        })
    }

    /// Copies a file from its replicas, as `gridlane cp` does; returns the report as a dictionary.
    #[pyo3(signature = (sources, target, *, overwrite, checksum=None, require_verified=false, streams=None, limit_rate=None, timeout=None, third_party="auto", metalinks=true))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords")]
    fn copy(
        &self,
        py: Python<'_>,
        sources: Vec<String>,
        target: String,
        overwrite: bool,
        checksum: Option<&str>,
        require_verified: bool,
        streams: Option<usize>,
        limit_rate: Option<u64>,
        timeout: Option<f64>,
        third_party: &str,
        metalinks: bool,
    ) -> PyResult<Job> {
        let sources = several(&sources).or_raise(py)?;
        let mut named = sources.clone();
        named.extend(typed_url(&target).ok());
        let known = self.known(py, &named)?;
        let asked = Asked {
            sources,
            target,
            existing: if overwrite { Existing::Replace } else { Existing::Refuse },
            checksum: checksum.map(copying::wanted_checksum).transpose().or_raise(py)?,
            require_verified,
            streams,
            limit_rate,
            timeout: timeout.map(seconds).transpose().or_raise(py)?,
            third_party: copying::third_party(third_party).or_raise(py)?,
            metalinks,
            lasting: known.lasting,
        };
        copying::job(py, asked, known.client)
    }

    /// Writes a file from memory; the directories that it is in may be made.
    fn put(
        &self,
        py: Python<'_>,
        url: &str,
        bytes: PyBackedBytes,
        overwrite: bool,
        parents: bool,
    ) -> PyResult<Job> {
        let (url, client) = self.one(py, url)?;
        upload::job(py, client, url, bytes, overwrite, parents)
    }

    /// Opens a file for reading, from all of its replicas.
    #[pyo3(signature = (sources, *, policy=None, memory=None, budget=None, lanes=None, patience=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords")]
    fn open(
        &self,
        py: Python<'_>,
        sources: Vec<String>,
        policy: Option<&str>,
        memory: Option<u64>,
        budget: Option<f64>,
        lanes: Option<usize>,
        patience: Option<f64>,
    ) -> PyResult<Job> {
        let sources = several(&sources).or_raise(py)?;
        let patience = patience.map(seconds).transpose().or_raise(py)?;
        let choices = Choices { policy, memory_bytes: memory, budget, lanes, patience };
        let settings = choices.settings().or_raise(py)?;
        let client = self.known(py, &sources)?.client;
        file::open(py, sources, client, settings)
    }
}

impl Client {
    /// A URL or path that was typed, and the client for it.
    fn one(&self, py: Python<'_>, text: &str) -> PyResult<(Url, gridlane_peer::Client)> {
        let url = typed_url(text).or_raise(py)?;
        let client = self.known(py, std::slice::from_ref(&url))?.client;
        Ok((url, client))
    }

    /// The client for URLs that the caller named, which see its credentials.
    fn known(&self, py: Python<'_>, urls: &[Url]) -> PyResult<KeptSession> {
        for warning in unsent(urls) {
            warn(py, &warning.message, &warning.advice.to_string())?;
        }
        let shows = urls.iter().any(are_shown_to);
        let found = {
            let mut own = lock(&self.sessions);
            if own.get().is_none() {
                *own = Own::new(Sessions::default());
            }
            own.get()
                .and_then(|sessions| if shows { sessions.showing.clone() } else { sessions.plain.clone() })
        };
        if let Some(known) = found.as_ref().filter(|known| known.serves(urls)) {
            return Ok(known.clone());
        }
        // It reads files.
        let look =
            || KeptSession::look(found, urls, &self.wanted, self.trust.clone(), self.forward_to.clone());
        let (known, warnings) = step(py, look).or_raise(py)?;
        for warning in warnings {
            warn(py, &warning.message, &warning.advice.to_string())?;
        }
        let mut own = lock(&self.sessions);
        let mut sessions = own.take().unwrap_or_default();
        let place = if shows { &mut sessions.showing } else { &mut sessions.plain };
        *place = Some(known.clone());
        *own = Own::new(sessions);
        Ok(known)
    }
}

/// URLs or paths that were typed.
fn several(texts: &[String]) -> Result<Vec<Url>> {
    texts.iter().map(|text| typed_url(text)).collect()
}

/// A warning about credentials.
fn warn(py: Python<'_>, message: &str, advice: &str) -> PyResult<()> {
    py.import("gridlane.errors")?.call_method1("_warn", (message, advice)).map(drop)
}

/// Everything in a directory, each with its URL; true if it is no directory but this file.
async fn list(lister: &Lister, url: &Url) -> Result<(bool, Vec<(Entry, String)>)> {
    let mut listing = lister.list(url).await?;
    let (mut items, mut found) = (Vec::new(), Vec::new());
    let (top, mut is_file) = (Location::of(url), false);
    loop {
        let more = listing.next(&mut items).await?;
        for item in items.drain(..) {
            let entry = match item {
                Item::Entry(entry) => entry,
                Item::Itself(entry) => {
                    is_file = true;
                    found.push((entry, url.typed()));
                    continue;
                }
                // A link, a pipe: something is there that is no file to read.
                Item::Odd { name, kind: OddKind::Link | OddKind::Special(_) } => {
                    Entry { name, kind: EntryKind::File, size_bytes: None, modified: None }
                }
                Item::Odd { kind: OddKind::Unknown(error), .. } => return Err(error),
            };
            let path = TreePath::root().child(&entry.name)?;
            let below = match entry.kind {
                EntryKind::Directory => top.directory(&path)?,
                EntryKind::File => top.file(&path)?,
            };
            found.push((entry, below.typed()));
        }
        if !more {
            return Ok((is_file, found));
        }
    }
}

/// `(name, kind, size, mtime, more)`.
fn described(py: Python<'_>, entry: &Entry, more: Option<String>) -> PyResult<Py<PyAny>> {
    let name = OsString::from_vec(entry.name.clone());
    let modified = entry.modified.map(since_1970);
    let kind = match entry.kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
    };
    Ok((name, kind, entry.size_bytes, modified, more).into_pyobject(py)?.into_any().unbind())
}

fn since_1970(time: SystemTime) -> f64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => after.as_secs_f64(),
        Err(before) => -before.duration().as_secs_f64(),
    }
}

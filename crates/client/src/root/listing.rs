//! A directory as `dirlist` tells it, part by part.

use std::collections::HashSet;

use gridlane_core::limits::LISTING_BATCH;
use gridlane_core::name::is_entry;
use gridlane_core::{Error, ErrorKind, Result, Url};
use gridlane_dav::path::encode_name;
use gridlane_peer::root::{Client, malformed};
use gridlane_xrd::answer::{DirlistReader, Entry};
use gridlane_xrd::flags::DirlistOptions;
use gridlane_xrd::request::Dirlist;
use tokio::sync::mpsc;

use super::{entry, is_special, stat, without_slash};
use crate::item::{Item, OddKind, directory_form};

/// Batches of entries that wait to be taken; then the server waits.
const BATCHES_WAITING_MAX: usize = 4;

/// The entries of a directory that is being listed.
pub(crate) struct Names {
    client: Client,
    url: Url,
    batches: mpsc::Receiver<Result<Vec<Entry>>>,
    /// The first batch, which showed that it is a directory.
    first: Option<Vec<Entry>>,
    /// The same directory on other servers of a cluster, which are listed behind it.
    others: Vec<Url>,
    /// Names that were seen, where there are several servers: a file may be on more than one.
    seen: Option<HashSet<Vec<u8>>>,
}

/// Begins to list a directory. What is no directory is an error, whatever the server calls it.
pub(crate) async fn list(client: &Client, url: &Url) -> Result<Names> {
    match begin(client, url).await {
        // A manager lists its own disk, which has nothing.
        Err(error) if error.kind() == ErrorKind::NotFound => match of_cluster(client, url).await {
            Some(names) => names,
            None => Err(error),
        },
        begun => begun,
    }
}

/// The directory as the servers behind a manager have it; `None`: it is no manager, or knows no server that has it.
async fn of_cluster(client: &Client, url: &Url) -> Option<Result<Names>> {
    if !client.greet(url).await.is_ok_and(|greeting| greeting.session.is_manager()) {
        return None;
    }
    let mut others = client.locate(url).await.ok()?;
    let first = others.pop()?;
    Some(begin(client, &first).await.map(|names| {
        let seen = (!others.is_empty()).then(HashSet::new);
        Names { others, seen, ..names }
    }))
}

async fn begin(client: &Client, url: &Url) -> Result<Names> {
    let (sender, mut batches) = mpsc::channel(BATCHES_WAITING_MAX);
    tokio::spawn(read(client.clone(), url.clone(), sender));
    let first = batches.recv().await.transpose()?;
    let (others, seen) = Default::default();
    Ok(Names { client: client.clone(), url: url.clone(), batches, first, others, seen })
}

/// Asks, and hands on what comes. Ends when the receiver is gone.
async fn read(client: Client, url: Url, sender: mpsc::Sender<Result<Vec<Entry>>>) {
    let mut reader = DirlistReader::default();
    let mut entries = Vec::new();
    let mut part = |bytes: &[u8], is_last: bool| {
        reader.read(bytes, is_last, &mut entries).map_err(|wrong| malformed(&wrong))?;
        if !is_last && entries.len() < LISTING_BATCH {
            return Ok(());
        }
        let batch = Ok(std::mem::take(&mut entries));
        // The receiver of the entries may be slower than the server, which waits then.
        let sent = match sender.try_send(batch) {
            Err(mpsc::error::TrySendError::Full(batch)) => {
                tokio::task::block_in_place(|| sender.blocking_send(batch)).is_ok()
            }
            sent => sent.is_ok(),
        };
        sent.then_some(())
            .ok_or_else(|| Error::new(ErrorKind::Interrupted, "the listing is not wanted any more"))
    };
    let ask = |about| Dirlist { about: without_slash(about), options: DirlistOptions::STAT };
    let outcome = client.call_in_parts(&url, ask, &mut part).await;
    if let Err(error) = outcome {
        // Without a receiver the error is not needed.
        let _ = sender.send(Err(error)).await;
    }
}

impl Names {
    /// Appends the next entries; `false`: there are no more.
    pub(crate) async fn next(&mut self, items: &mut Vec<Item>) -> Result<bool> {
        let batch = match self.first.take() {
            Some(batch) => batch,
            None => match self.batches.recv().await.transpose()? {
                Some(batch) => batch,
                None => return self.go_on().await,
            },
        };
        for found in batch {
            let is_new = self.seen.as_mut().is_none_or(|seen| seen.insert(found.name.clone()));
            // A name that is a path would lead elsewhere.
            if is_new && is_entry(&found.name) {
                items.extend(self.item(found).await);
            }
        }
        Ok(true)
    }

    /// Goes on with the next server, if there is one.
    async fn go_on(&mut self) -> Result<bool> {
        let Some(next) = self.others.pop() else { return Ok(false) };
        match begin(&self.client, &next).await {
            Ok(Names { url, batches, first, .. }) => {
                (self.url, self.batches, self.first) = (url, batches, first)
            }
            // It has gone there meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// The item of an entry; `None` when it has vanished meanwhile.
    async fn item(&self, found: Entry) -> Option<Item> {
        if found.is_unlistable() {
            let message = "its name has a line break in it, which a listing over root:// cannot tell";
            let error = Error::new(ErrorKind::Unsupported, message)
                .hint("copy it by https:// if the server has that, or give it another name there");
            return Some(Item::Odd { name: found.name, kind: OddKind::Unknown(error) });
        }
        let known = match found.stat {
            Some(known) => Ok(known),
            // Some servers give names only.
            None => self.look(&found.name).await,
        };
        let name = found.name;
        match known {
            Ok(known) if is_special(&known) => Some(Item::Odd { name, kind: OddKind::Special("no file") }),
            Ok(known) => Some(Item::Entry(entry(name, &known))),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => Some(Item::Odd { name, kind: OddKind::Unknown(error) }),
        }
    }

    async fn look(&self, name: &[u8]) -> Result<gridlane_xrd::answer::StatText> {
        let directory = directory_form(&self.url)?;
        stat(&self.client, &directory.join(&format!("./{}", encode_name(name)))?).await
    }
}

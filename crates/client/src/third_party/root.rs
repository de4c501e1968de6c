//! The initiator of third-party copies over root://: it brings two servers together, and the destination fetches the file.
//!
//! ```text
//!           placement: open, settings, close
//!  client ──────────────────────────────────────▶ source ◀──────────────┐ open with the key, reads
//!     │     open with the key, kept open           ▲                     │
//!     ├────────────────────────────────────────────┘                     │
//!     └──────────────────────────────────────────────────────────▶ destination
//!           open with the key · sync · … · sync, answered at the end · stat once a second · close
//! ```
//!
//! It is the key ("rendezvous") mode of XRootD's clients: neither server gets a credential of the user. In the delegated ("lite")
//! one the destination gets a proxy of the user's certificate when the client logs in there, and opens the source with that, without
//! a key: the line from the client to the source is only for a look at the file. The bytes are compared
//! by size and, if both servers have one of the same kind, by checksum. What this copy made is removed when it fails.

mod leaving;
mod rendezvous;
mod words;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use gridlane_core::limits::{
    ROOT_TPC_CHECKSUM_BYTES_PER_S, ROOT_TPC_LEAVE_MAX, ROOT_TPC_ORPHAN_MAX, ROOT_TPC_PROGRESS,
    ROOT_TPC_SILENCE_MAX, ROOT_TPC_STALL_MAX, ROOT_WAIT_MAX,
};
use gridlane_core::{Checksum, ChecksumKind, Error, ErrorKind, Fault, Hint, Result, Url};
use gridlane_peer::patience::{Patience, timeout};
use gridlane_peer::root::{Answer, Client, OpenFile, Outcome, malformed};
use gridlane_xrd::StreamId;
use gridlane_xrd::answer::StatText;
use gridlane_xrd::flags::OpenOptions;
use gridlane_xrd::request::{About, Stat, Sync};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::proof::compare_unstated;
use super::terms::{Copied, Progress, Unstated};
use crate::copies::rules::is_itself;
use crate::stop::stopped;
use leaving::Target;
use rendezvous::{Key, Terms, refuse_unsayable};
use words::{at_source, at_target, has_proxy, of_copy, unable};

/// Permissions of a file that is made. The server takes away from them what it does not allow.
const FILE_MODE: u16 = 0o644;
/// The settings of a server that matter here: whether it takes part, and its kinds of checksums.
const SETTINGS: [&str; 2] = ["tpc", "chksum"];
/// The kind of checksum that is asked for when the servers do not say which they have.
const USUAL_KIND: ChecksumKind = ChecksumKind::Adler32;

/// The terms of a copy over root://.
#[derive(Clone, Debug)]
pub struct RootThirdParty {
    /// True if what has the target's name may be replaced.
    pub overwrite: bool,
    /// True if directories that lead to the target are made.
    pub make_parents: bool,
    /// Connections that the destination is asked to read with; at least 1.
    pub streams: u32,
    /// The kind of checksum to compare, and the right one if it is known; `None`: one that both servers have.
    pub checksum: Option<(ChecksumKind, Option<Checksum>)>,
    /// What becomes of a copy when the destination does not state the checksum that is known. But for [`Unstated::Passes`], a
    /// destination that names its kinds of checksums and lacks this one is not asked to copy.
    pub unstated: Unstated,
    /// True if a copy whose checksum could not be compared is a failure.
    pub requires_checksum: bool,
    /// True if the destination gets a proxy of the user's certificate, and reads the source as the user: the source needs to take
    /// no part. The destination has to ask for it, in a login by gsi.
    pub delegates: bool,
    /// Longest time without more bytes at the destination.
    pub stall_max: Duration,
}

impl Default for RootThirdParty {
    fn default() -> RootThirdParty {
        RootThirdParty {
            overwrite: false,
            make_parents: false,
            streams: 1,
            checksum: None,
            unstated: Unstated::Passes,
            requires_checksum: false,
            delegates: false,
            stall_max: ROOT_TPC_STALL_MAX,
        }
    }
}

/// The source, at the server that has it.
struct Source {
    /// Its URL there.
    url: Url,
    stat: StatText,
    /// Kinds of checksums that the server has; `None` if it does not say.
    kinds: Option<Vec<ChecksumKind>>,
}

/// Has the server of `target` fetch `source`, both `root://` or `roots://`. `observer` is told how far it is, about once a
/// second; when `stop` ends, so does the copy.
///
/// An error of kind `Unsupported` says that these two servers cannot do it for this client: nothing has been changed, and the
/// bytes can still come by another way. Every other error says in its endpoint and its words whether the source, the
/// destination or what is between them is at fault. What this copy has made at the target is removed as far as the server
/// allows that; what was there before and has been replaced is not.
pub async fn copy(
    client: &gridlane_peer::Client,
    source: &Url,
    target: &Url,
    options: &RootThirdParty,
    observer: &mut (dyn FnMut(Progress) + Send),
    stop: impl Future<Output = ()> + Send,
) -> Result<Copied> {
    copy_seen(client, source, target, options, observer, &mut false, stop).await
}

/// The same. `is_lost` becomes true when what had the target's name before may be gone.
pub(super) async fn copy_seen(
    any_client: &gridlane_peer::Client,
    source: &Url,
    target: &Url,
    options: &RootThirdParty,
    observer: &mut (dyn FnMut(Progress) + Send),
    is_lost: &mut bool,
    stop: impl Future<Output = ()> + Send,
) -> Result<Copied> {
    refuse_unsayable(source, target)?;
    tokio::pin!(stop);
    let client = any_client.root.clone().for_copies();
    let there = async {
        match options.overwrite {
            true => crate::root::look(&client, target).await.map_err(|error| at_target(error, target)),
            false => Ok(None),
        }
    };
    let stage = if options.delegates { "" } else { "tpc.stage=placement" };
    let looked =
        async { tokio::try_join!(place(&client, source, stage), kinds_at_target(&client, target), there) };
    let (from, mut target_kinds, there) = unless(stop.as_mut(), looked).await?;
    refuse_unsayable(&from.url, target)?;
    refuse_itself(&from, target, there.as_ref())?;
    refuse_unstated(target, target_kinds.as_ref().and_then(Option::as_deref), options)?;
    let key = Key::new()?;
    let terms = Terms {
        first: source,
        placed: &from.url,
        target,
        size_bytes: from.stat.size_bytes,
        streams: options.streams.max(1),
    };
    let cgi = if options.delegates { key.for_delegate(&terms)? } else { key.for_target(&terms)? };
    let opener = if options.delegates { client.clone().delegating() } else { client.clone() };
    let opened = open_target(&opener, target, options, &cgi, there.is_none(), stop.as_mut()).await;
    let may_be_open = |error: &Error| {
        matches!(error.kind(), ErrorKind::Network | ErrorKind::Timeout | ErrorKind::Interrupted)
    };
    *is_lost = there.is_some() && opened.as_ref().err().is_none_or(may_be_open);
    let mut to = opened?;
    let outcome = async {
        if options.delegates {
            has_proxy(&to.file)?;
        }
        if !to.file.url.same_endpoint(target) {
            // The server that a manager has chosen.
            let kinds = unless(stop.as_mut(), kinds(&mut to.file)).await;
            let kinds = kinds.map_err(|error| at_target(error, target))?;
            refuse_unstated(target, kinds.as_deref(), options)?;
            target_kinds = Some(kinds);
        }
        transfer(
            &client,
            &from,
            (!options.delegates).then_some(&key),
            &mut to,
            options,
            observer,
            stop.as_mut(),
        )
        .await
    };
    let outcome = outcome.await;
    let made = match outcome {
        Ok(()) => to.close(&client).await?,
        Err(error) => {
            to.leave(&client).await;
            return Err(error);
        }
    };
    let kinds = (from.kinds.as_deref(), target_kinds.flatten());
    let verified = unless(stop, verify((any_client, &client), &from, &made.url, kinds, options)).await;
    match verified {
        Ok(checksum) => Ok(Copied { size_bytes: from.stat.size_bytes, checksum }),
        Err(error) => {
            made.remove(&client).await;
            Err(error)
        }
    }
}

/// Does something unless it is stopped meanwhile.
async fn unless<T>(
    stop: Pin<&mut impl Future<Output = ()>>,
    doing: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::select! {
        biased;
        () = stop => Err(stopped()),
        done = doing => done,
    }
}

/// Finds the server that has the source, and what it can; `stage` says what for. Without one it need take no part.
async fn place(client: &Client, source: &Url, stage: &str) -> Result<Source> {
    let find = async {
        let options = OpenOptions::READ | OpenOptions::RETSTAT;
        let mut file = client.open(source, options, 0, stage).await?;
        let stat = match file.stat.take() {
            Some(stat) => stat,
            None => stat(&mut file).await?,
        };
        let kinds = match stage.is_empty() {
            true => kinds_of(&known(file.settings(SETTINGS).await)?),
            false => kinds(&mut file).await?,
        };
        let url = file.url.clone();
        file.close().await?;
        Ok(Source { url, stat, kinds })
    };
    find.await.map_err(|error| at_source(error, source))
}

/// Whether the destination takes part, and its kinds of checksums; `None`: the one of its servers that gets the file will
/// say that.
async fn kinds_at_target(client: &Client, target: &Url) -> Result<Option<Option<Vec<ChecksumKind>>>> {
    let ask = async {
        let said = known(client.settings(target, SETTINGS).await)?;
        match takes_part(&said) {
            true => Ok(Some(kinds_of(&said))),
            false if client.greet(target).await?.session.is_manager() => Ok(None),
            false => Err(unable(target)),
        }
    };
    ask.await.map_err(|error| at_target(error, target))
}

/// The kinds of checksums of a server that has a file open; an error if it takes no part.
async fn kinds(file: &mut OpenFile) -> Result<Option<Vec<ChecksumKind>>> {
    let said = known(file.settings(SETTINGS).await)?;
    if takes_part(&said) { Ok(kinds_of(&said)) } else { Err(unable(&file.url)) }
}

/// A server that has no settings knows none of them.
fn known(asked: Result<[Option<String>; 2]>) -> Result<[Option<String>; 2]> {
    match asked {
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok([None, None]),
        asked => asked,
    }
}

/// `1`, or `+1` from a server that does it with TLS too.
fn takes_part([tpc, _]: &[Option<String>; 2]) -> bool {
    tpc.as_ref().is_some_and(|tpc| tpc.parse::<i64>().is_ok_and(|number| number != 0))
}

/// `0:adler32,1:crc32c`, the server's favourite first.
fn kinds_of([_, checksums]: &[Option<String>; 2]) -> Option<Vec<ChecksumKind>> {
    let names = checksums.as_ref()?.split(',');
    Some(names.filter_map(|name| name.rsplit(':').next()?.trim().parse().ok()).collect())
}

/// Fails if both are the same file as far as that can be seen: it would be emptied before it is read.
fn refuse_itself(source: &Source, target: &Url, there: Option<&StatText>) -> Result<()> {
    let is_named_so = source.url.same_endpoint(target) && source.url.wire_path() == target.wire_path();
    let file = |stat: &StatText| (stat.id, stat.size_bytes, stat.modified_s);
    let is_it = there.is_some_and(|there| there.id != 0 && file(there) == file(&source.stat));
    match is_named_so || is_it {
        true => Err(is_itself(target)),
        false => Ok(()),
    }
}

/// Fails if the checksum that is known is of none of the destination's `kinds`, and nothing else would do.
fn refuse_unstated(target: &Url, kinds: Option<&[ChecksumKind]>, options: &RootThirdParty) -> Result<()> {
    match (&options.checksum, kinds) {
        (Some((kind, Some(_))), Some(kinds))
            if options.unstated != Unstated::Passes && !kinds.contains(kind) =>
        {
            let message = format!("the server has no {kind} to compare the copy by");
            Err(Error::new(ErrorKind::Unsupported, message).endpoint(target))
        }
        _ => Ok(()),
    }
}

/// Opens the destination. `is_new`: nothing has the name as far as is known.
async fn open_target(
    client: &Client,
    target: &Url,
    options: &RootThirdParty,
    cgi: &str,
    is_new: bool,
    stop: Pin<&mut impl Future<Output = ()>>,
) -> Result<Target> {
    let make = if options.overwrite { OpenOptions::DELETE } else { OpenOptions::NEW };
    let how = (OpenOptions::UPDATE | OpenOptions::RETSTAT | make)
        .with_if(options.make_parents, OpenOptions::MKPATH);
    let opening = client.open(target, how, FILE_MODE, cgi);
    tokio::pin!(opening);
    let opened = tokio::select! {
        biased;
        () = stop => {
            // It may be there by now, and then it is to be removed.
            if let Ok(Ok(file)) = timeout(ROOT_TPC_LEAVE_MAX, opening).await {
                Target::new(file, is_new).leave(client).await;
            }
            return Err(stopped());
        }
        opened = &mut opening => opened,
    };
    let refused = |error: Error| {
        let is_there = error.kind() == ErrorKind::Precondition && !options.overwrite;
        let error = at_target(error, target);
        if is_there { error.hint(Hint::Replace) } else { error }
    };
    Ok(Target::new(opened.map_err(refused)?, is_new))
}

/// Brings the two together and waits until the destination has all of it.
async fn transfer(
    client: &Client,
    source: &Source,
    key: Option<&Key>,
    to: &mut Target,
    options: &RootThirdParty,
    observer: &mut (dyn FnMut(Progress) + Send),
    mut stop: Pin<&mut (impl Future<Output = ()> + Send)>,
) -> Result<()> {
    let target = to.file.url.clone();
    let host = client.host_for_others(&to.file).await;
    let armed = unless(stop.as_mut(), to.file.call(|handle| Sync { handle })).await;
    armed.map_err(|error| at_target(error, &target))?;
    // Open as long as the destination reads: its end takes the key away.
    let mut from = match key {
        Some(key) => {
            let cgi = key.for_source(&host);
            let opened = unless(stop.as_mut(), client.open(&source.url, OpenOptions::READ, 0, &cgi)).await;
            Some(opened.map_err(|error| at_source(error, &source.url))?)
        }
        None => None,
    };
    let size_bytes = source.stat.size_bytes;
    let told = &mut |done_bytes| observer(Progress { done_bytes, size_bytes: Some(size_bytes) });
    watch(to, from.as_mut(), (source, &host), options.stall_max, told, stop.as_mut()).await?;
    let found = unless(stop, stat(&mut to.file)).await.map_err(|error| at_target(error, &target))?;
    // Whatever it says: all bytes are there.
    if let Some(from) = from {
        let _ = from.close().await;
    }
    match found.size_bytes == size_bytes {
        true => {
            told(size_bytes);
            Ok(())
        }
        false => {
            let message = format!(
                "the destination says that it has made the copy, and has {} of {size_bytes} bytes",
                found.size_bytes
            );
            let short = Error::new(ErrorKind::Protocol, message).endpoint(&target);
            Err(short.hint("has the destination any space left?"))
        }
    }
}

/// The next thing while the destination works.
enum Event {
    Answer(Result<Answer>),
    SourceLost(Error),
    Ask,
    Stop,
}

/// Begins the copy, and asks how far it is until the destination says that it is done. The source was told that the
/// destination is on `host`.
async fn watch(
    to: &mut Target,
    mut from: Option<&mut OpenFile>,
    (source, host): (&Source, &str),
    mut stall_max: Duration,
    told: &mut (dyn FnMut(u64) + Send),
    mut stop: Pin<&mut (impl Future<Output = ()> + Send)>,
) -> Result<()> {
    let target = to.file.url.clone();
    let mut sync = to.begin().await.map_err(|error| at_target(error, &target))?;
    let (mut asked, mut done_bytes): (Option<StreamId>, u64) = (None, 0);
    let (mut stall, mut silence) = (Patience::new(stall_max), Patience::new(ROOT_TPC_SILENCE_MAX));
    let mut ticks = interval_at(Instant::now() + ROOT_TPC_PROGRESS, ROOT_TPC_PROGRESS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut waited, mut lost) = (Duration::ZERO, None);
    loop {
        let next = async {
            tokio::select! {
                biased;
                () = stop.as_mut() => Event::Stop,
                answer = to.file.answer() => Event::Answer(answer),
                error = ended(from.as_deref_mut()), if lost.is_none() => Event::SourceLost(error),
                _ = ticks.tick() => Event::Ask,
            }
        };
        let late = |what: &str, max: Duration| {
            let message = format!("{what} within {} s", max.as_secs());
            at_target(Error::new(ErrorKind::Timeout, message), &target)
        };
        let event = match stall.bear(silence.bear(next)).await {
            Ok(Ok(event)) => event,
            Ok(Err(_)) => return Err(late("the destination answered nothing", ROOT_TPC_SILENCE_MAX)),
            Err(_) => {
                return Err(lost.unwrap_or_else(|| late("the destination got no more bytes", stall_max)));
            }
        };
        let Answer { stream, outcome } = match event {
            Event::Stop => return Err(stopped()),
            Event::SourceLost(error) => {
                stall_max = stall_max.min(ROOT_TPC_ORPHAN_MAX);
                stall.renew(stall_max);
                lost = Some(at_source(error, &source.url));
                continue;
            }
            Event::Ask if asked.is_some() => continue,
            Event::Ask => {
                let send = to.file.send(|handle| stat_of(About::Handle(handle)), &[]);
                asked = Some(send.await.map_err(|error| at_target(error, &target))?);
                continue;
            }
            Event::Answer(answer) => answer.map_err(|error| at_target(error, &target))?,
        };
        silence.renew(ROOT_TPC_SILENCE_MAX);
        if stream == sync {
            to.is_under_way = false;
            match outcome {
                Outcome::Done(_) => return Ok(()),
                Outcome::Failed(error) => return Err(of_copy(error, &source.url, (&target, host))),
                Outcome::Wait(wait) => {
                    waited += wait.max(Duration::from_secs(1));
                    if waited > ROOT_WAIT_MAX {
                        let message = format!("the destination asks for a pause of {} s", wait.as_secs());
                        let busy = Error::new(ErrorKind::Busy, message).retry_after(Some(wait));
                        return Err(at_target(busy, &target));
                    }
                    let pause = async {
                        tokio::time::sleep(wait).await;
                        Ok(())
                    };
                    unless(stop.as_mut(), pause).await?;
                    sync = to.begin().await.map_err(|error| at_target(error, &target))?;
                }
                Outcome::Wrong(_) => {
                    let message = "the destination answered with pages where it was to copy";
                    return Err(at_target(Error::new(ErrorKind::Protocol, message), &target));
                }
            }
        } else if asked == Some(stream) {
            asked = None;
            // A server that does not say how far it is copies all the same.
            let Outcome::Done(body) = outcome else { continue };
            let Ok(found) = StatText::parse(&body) else { continue };
            if found.size_bytes > done_bytes {
                done_bytes = found.size_bytes;
                stall.renew(stall_max);
                told(done_bytes.min(source.stat.size_bytes));
            }
        }
    }
}

/// Waits until the connection of a file ends, of which nothing is asked.
async fn ended(file: Option<&mut OpenFile>) -> Error {
    let Some(file) = file else { return std::future::pending().await };
    loop {
        match file.answer().await {
            // It is quiet, as it should be.
            Err(error) if error.kind() == ErrorKind::Timeout => {}
            Err(error) => return error,
            Ok(_) => {}
        }
    }
}

/// Facts about a file that is open.
async fn stat(file: &mut OpenFile) -> Result<StatText> {
    let said = file.call(|handle| stat_of(About::Handle(handle))).await?;
    StatText::parse(&said).map_err(|wrong| malformed(&wrong).endpoint(&file.url))
}

fn stat_of(about: About) -> Stat {
    Stat { about, is_vfs: false, wants: 0 }
}

/// Compares checksums. Returns that of the target if there was one to compare it with.
async fn verify(
    (any_client, client): (&gridlane_peer::Client, &Client),
    source: &Source,
    target: &Url,
    (of_source, of_target): (Option<&[ChecksumKind]>, Option<Vec<ChecksumKind>>),
    options: &RootThirdParty,
) -> Result<Option<Checksum>> {
    let has = |kind: &ChecksumKind| of_target.as_ref().is_none_or(|kinds| kinds.contains(kind));
    let common = || match of_source {
        Some(kinds) => kinds.iter().copied().find(has),
        None => of_target.as_ref().map_or(Some(USUAL_KIND), |kinds| kinds.first().copied()),
    };
    let mut client = client.clone();
    let computing = Duration::from_secs(source.stat.size_bytes / ROOT_TPC_CHECKSUM_BYTES_PER_S);
    client.answer_max = client.answer_max.saturating_add(computing);
    // Only what is said counts: the size was compared in any case.
    let said = async |url: &Url, kind| client.checksum(url, kind).await.ok().flatten();
    let differs = |found: &Checksum, right: &Checksum| {
        let message = format!(
            "the copy has the {} {}, and it should be {}: bytes changed on their way from {} to the destination",
            found.kind(),
            found.hex(),
            right.hex(),
            source.url
        );
        Error::new(ErrorKind::ChecksumMismatch, message).fault(Fault::Peer).endpoint(target)
    };
    if let Some((kind, Some(right))) = &options.checksum {
        match said(target, *kind).await {
            Some(found) if found == *right => return Ok(Some(found)),
            Some(found) => return Err(differs(&found, right)),
            None if options.unstated == Unstated::Passes => {}
            None => {
                compare_unstated(any_client, target, right, options.unstated).await?;
                return Ok(Some(right.clone()));
            }
        }
    }
    // A kind that the user asked for may be one that they do not have.
    let asked = options.checksum.as_ref().filter(|(_, right)| right.is_none()).map(|(kind, _)| *kind);
    let common = common().filter(|kind| Some(*kind) != asked);
    for kind in asked.into_iter().chain(common) {
        match tokio::join!(said(&source.url, kind), said(target, kind)) {
            (Some(right), Some(found)) if right == found => return Ok(Some(found)),
            (Some(right), Some(found)) => return Err(differs(&found, &right)),
            _ => {}
        }
    }
    if options.requires_checksum {
        let message = "the source and the destination have no checksum of the same kind to compare";
        let unverified = Error::new(ErrorKind::ChecksumMismatch, message).fault(Fault::Peer);
        return Err(unverified.hint(Hint::AcceptUnverified).endpoint(target));
    }
    Ok(None)
}

#[cfg(test)]
mod tests;

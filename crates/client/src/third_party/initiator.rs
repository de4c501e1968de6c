//! Decides who makes a copy, and in which way, and sees to its end.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gridlane_core::limits::{
    THIRD_PARTY_FRESH, THIRD_PARTY_RENEWAL_INTERVAL, THIRD_PARTY_RENEWALS_IN_VAIN_MAX,
    THIRD_PARTY_RENEWALS_MAX,
};
use gridlane_core::{Backoff, Endpoint, Error, ErrorKind, Fault, Result, Scheme, Url};
use gridlane_dav::third_party::SOURCES_FIELD;
use gridlane_engine::{Basis, Options, Outcome};
use gridlane_peer::{Client, Renewal};
use tokio::time::sleep;

use super::ends::{Seen, There, clear, exists, look_at_sources, look_at_target, refuse_itself, remove};
use super::failure::{Failed, is_unable, of_root};
use super::http::{Attempt, Made, Ran, Stop};
use super::passive::{credential, renewed};
use super::proof::compare_unstated;
use super::root::RootThirdParty;
use super::telling::{Compared, Telling};
use super::terms::{Carrier, Detour, FileObserver, Mode, Progress, ThirdParty, Unstated, Wish};
use super::verify::{has_pieces_alone, wanted};
use super::{root, verify};
use crate::copies::rules::FileFacts;
use crate::stop::stopped;

/// A server that refuses so many files in a row, for whatever reason of its own, is taken for one that makes no copies.
const REFUSALS_MAX: u32 = 3;
/// Servers that are remembered. Beyond that all are forgotten, and asking again costs a request.
const SERVERS_MAX: usize = 1024;

/// Has servers copy, and remembers what they can. One is for all files of a request.
#[derive(Debug, Default)]
pub(crate) struct Initiator {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Servers that make no copies as the active one.
    unable: HashMap<(Endpoint, Mode), Error>,
    /// Refusals of servers since the last copy that one of them has begun.
    refusals: HashMap<(Endpoint, Mode), u32>,
    /// The number of sources that a server takes.
    sources_max: HashMap<Endpoint, usize>,
    /// Servers of which that was told.
    told: HashSet<Endpoint>,
}

/// A file to copy.
#[derive(Clone, Copy)]
pub(crate) struct Task<'a> {
    pub(crate) client: &'a Client,
    pub(crate) sources: &'a [Url],
    pub(crate) target: &'a Url,
    /// What is known of the source.
    pub(crate) facts: &'a FileFacts,
    pub(crate) options: &'a Options,
    /// What has the target's name may be replaced.
    pub(crate) replaces: bool,
    /// The target gets the time of the source's last change.
    pub(crate) preserves_times: bool,
    pub(crate) wish: Wish,
}

/// The outcome of having servers copy.
#[derive(Debug)]
pub(crate) enum Tried {
    /// The copy has ended, well or badly; with the server that made it, if one did.
    Ended(Box<Outcome>, Option<Carrier>),
    /// It has not begun: the bytes go through this process.
    Streams,
}

/// The protocols of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pair {
    Http,
    Root,
    Mixed,
}

impl Pair {
    /// Of a copy between servers; `None` if an end is on this machine, or the user wants none of it.
    fn of(task: &Task<'_>) -> Option<Pair> {
        let is_remote = |url: &Url| url.scheme().is_http() || url.scheme().is_root();
        let is_between = task.sources.iter().all(is_remote) && is_remote(task.target);
        if task.wish.third_party == ThirdParty::Never || !is_between {
            return None;
        }
        // Replicas of another protocol than the target's do not keep the others from being used.
        let has = |is: fn(Scheme) -> bool| task.sources.iter().any(|url| is(url.scheme()));
        Some(match task.target.scheme() {
            target if target.is_http() && has(Scheme::is_http) => Pair::Http,
            target if target.is_root() && has(Scheme::is_root) => Pair::Root,
            _ => Pair::Mixed,
        })
    }
}

/// The modes of a wish, the first to be tried first.
fn modes(wish: Wish) -> Vec<Mode> {
    wish.mode.map_or_else(|| vec![Mode::Pull, Mode::Push], |mode| vec![mode])
}

/// What is to be known of both ends before the copy.
struct Looked {
    facts: FileFacts,
    there: There,
}

/// A copy that has ended well, with what is to be told of it.
struct Done {
    compared: Compared,
    carrier: Carrier,
    /// The target has the source's time; `None` if that was not looked at.
    keeps_time: Option<bool>,
}

impl Initiator {
    /// Has servers make a copy, if both ends are at servers and these can.
    pub(crate) async fn copy(
        &self,
        task: &Task<'_>,
        observer: &mut dyn FileObserver,
        mut stop: Stop<'_>,
    ) -> Tried {
        let mut telling = Telling::new(observer, task.sources);
        let Some(pair) = Pair::of(task) else {
            if task.wish.third_party != ThirdParty::Only {
                return Tried::Streams;
            }
            let message = "a source is on this machine, and only servers were to copy";
            let error = Error::new(ErrorKind::Usage, message).fault(Fault::Caller).endpoint(task.target);
            return Tried::Ended(Box::new(telling.end(Err(error))), None);
        };
        telling.size(task.options.known.size_bytes.or(task.facts.size_bytes));
        let done = match pair {
            _ if task.options.limit.is_some() => {
                let message = "a limit of the rate holds for bytes that pass here, and not between servers";
                Err(Failed::Way(Error::new(ErrorKind::Unsupported, message).fault(Fault::Caller)))
            }
            _ if task.wish.third_party == ThirdParty::Auto && has_pieces_alone(task.options) => {
                let message = "its metalink has checksums of pieces, which are compared where the bytes pass";
                Err(Failed::Way(Error::new(ErrorKind::Unsupported, message).fault(Fault::Caller)))
            }
            Pair::Mixed => {
                let message = "one end speaks HTTP and the other one root://";
                Err(Failed::Way(Error::new(ErrorKind::Unsupported, message).endpoint(task.target)))
            }
            Pair::Root => self.by_root(task, &mut telling, stop.as_mut()).await,
            Pair::Http => self.by_http(task, &mut telling, stop.as_mut()).await,
        };
        let done = match done {
            Err(Failed::Way(why)) if task.wish.third_party == ThirdParty::Auto => {
                telling.detour(Detour::Streamed, &why);
                return Tried::Streams;
            }
            Ok(None) => return Tried::Streams,
            Ok(Some(done)) => Ok(done),
            Err(Failed::Way(error) | Failed::File(error) | Failed::Busy(error) | Failed::Unknown(error)) => {
                Err(if error.endpoint_text().is_none() { error.endpoint(task.target) } else { error })
            }
        };
        let (result, carrier, keeps_time) = match done {
            Ok(Done { compared, carrier, keeps_time }) => (Ok(compared), Some(carrier), keeps_time),
            Err(error) => (Err(error), None, None),
        };
        let mut outcome = telling.end(result);
        outcome.report.modified_accepted = keeps_time;
        Tried::Ended(Box::new(outcome), carrier)
    }

    /// Between two servers of root://, from one source after the other until one does.
    async fn by_root(
        &self,
        task: &Task<'_>,
        telling: &mut Telling<'_>,
        mut stop: Stop<'_>,
    ) -> std::result::Result<Option<Done>, Failed> {
        let way = |message: &str| {
            let error = Error::new(ErrorKind::Unsupported, message).fault(Fault::Caller);
            Failed::Way(error.endpoint(task.target))
        };
        if task.wish.mode == Some(Mode::Push) {
            return Err(way("a server of root:// fetches files, and sends none by itself"));
        }
        if task.sources.len() > 1 && self.tells_of(task.target) {
            telling.detour(Detour::OneSource, &one_source(task.target));
        }
        let (mut last, mut absent) = (None, None);
        for source in task.sources.iter().filter(|url| url.scheme().is_root()) {
            match Self::from_root(task, source, telling, stop.as_mut()).await {
                Ok(done) => return Ok(Some(done)),
                // Another replica may be there; and this one does not come here either.
                Err(Failed::Way(error)) if is_away(&error, source) => absent = Some(error),
                Err(Failed::File(error)) if error.kind() == ErrorKind::NotFound => absent = Some(error),
                Err(Failed::Way(error)) => last = Some(error),
                Err(failed) => return Err(failed),
            }
        }
        Err(match (last, absent) {
            (Some(error), _) => Failed::Way(error),
            (None, Some(error)) if task.sources.iter().any(|url| url.scheme().is_http()) => {
                Failed::Way(error)
            }
            (None, Some(error)) => Failed::File(error),
            (None, None) => way("there is no source"),
        })
    }

    /// From one server of root://.
    async fn from_root(
        task: &Task<'_>,
        source: &Url,
        telling: &mut Telling<'_>,
        stop: Stop<'_>,
    ) -> std::result::Result<Done, Failed> {
        let Task { client, sources, target, options, .. } = *task;
        telling.uses(&[source]);
        let (checksum, basis) = wanted(options);
        let terms = RootThirdParty {
            overwrite: task.replaces,
            streams: options.streams.and_then(|streams| u32::try_from(streams).ok()).unwrap_or(1),
            checksum: checksum.clone(),
            unstated: unstated(task),
            requires_checksum: options.require_verified,
            delegates: task.wish.delegates,
            ..RootThirdParty::default()
        };
        let (mut is_new, mut has_moved, mut is_lost) = (true, false, false);
        let mut told = |progress: Progress| {
            telling.size(progress.size_bytes);
            if std::mem::replace(&mut is_new, false) {
                telling.begins();
            }
            has_moved |= progress.done_bytes > 0;
            telling.reached(progress, 1);
        };
        let copied = root::copy_seen(client, source, target, &terms, &mut told, &mut is_lost, stop).await;
        let copied = copied.map_err(|error| of_root(error, target, has_moved, is_lost))?;
        telling.size(Some(copied.size_bytes));
        if is_new {
            telling.begins();
        }
        telling.verifies(copied.size_bytes);
        let votes = Basis::Sources { agreeing: 1, said: 1, named: sources.len() };
        let right = checksum.as_ref().and_then(|(_, right)| right.as_ref());
        let is_known = right.is_some() && copied.checksum.as_ref() == right;
        let asked = options.checksum.as_ref().map(|(kind, _)| *kind);
        let compared = Compared {
            basis: copied.checksum.as_ref().map(|_| basis.filter(|_| is_known).unwrap_or(votes)),
            unstated: asked.filter(|kind| copied.checksum.as_ref().is_none_or(|found| found.kind() != *kind)),
            checksum: copied.checksum,
        };
        telling.compared(&compared);
        Ok(Done { compared, carrier: carrier(Mode::Pull, target), keeps_time: None })
    }

    /// Between two servers of HTTP. `None`: the source is a metalink, which the engine finds as well.
    async fn by_http(
        &self,
        task: &Task<'_>,
        telling: &mut Telling<'_>,
        mut stop: Stop<'_>,
    ) -> std::result::Result<Option<Done>, Failed> {
        let looked = tokio::select! {
            biased;
            () = stop.as_mut() => return Err(Failed::File(stopped())),
            looked = Self::look(task) => looked.map_err(|error| {
                let has_others = task.sources.iter().any(|url| !url.scheme().is_http());
                match has_others && error.is_unreached() {
                    true => Failed::Way(error),
                    false => Failed::File(error),
                }
            })?,
        };
        let Some(mut looked) = looked else { return Ok(None) };
        if matches!(looked.there, There::File(_)) && !task.replaces {
            return Err(Failed::File(exists(task.target)));
        }
        telling.size(task.options.known.size_bytes.or(looked.facts.size_bytes));
        let mut refused: Option<(Mode, Error)> = None;
        for mode in modes(task.wish) {
            let may = tokio::select! {
                biased;
                () = stop.as_mut() => return Err(Failed::File(stopped())),
                may = may_upload(mode, task, &mut looked) => may,
            };
            let tried = match may {
                Err(failed) => Err(failed),
                Ok(()) => {
                    if let Some((_, why)) = &refused
                        && !self.is_hopeless(mode, task)
                    {
                        telling.detour(Detour::OtherMode(mode), why);
                    }
                    self.in_mode(mode, task, &looked, telling, stop.as_mut()).await
                }
            };
            match tried {
                Ok(done) => return Ok(Some(done)),
                Err(Failed::Way(error)) => {
                    refused = Some(match refused.take() {
                        None => (mode, error),
                        Some((first, why)) => (first, both(first, why, mode, &error)),
                    });
                }
                Err(failed) => return Err(failed),
            }
        }
        let nothing = || Error::new(ErrorKind::Other, "no way was tried");
        Err(Failed::Way(refused.map_or_else(nothing, |(_, error)| error)))
    }

    /// Looks at both ends as far as it is not known what is there; `None` for a metalink that stands for files.
    async fn look(task: &Task<'_>) -> Result<Option<Looked>> {
        let Task { client, sources, target, facts, options, .. } = *task;
        let at_source = async {
            match facts.size_bytes {
                Some(_) if !options.stop_at_metalink => Ok(None),
                _ => look_at_sources(client, sources).await.map(Some),
            }
        };
        let at_target = async {
            // Of such a server nothing is visible that is not complete, and it replaces nothing that it shall not when it is
            // asked to fetch it. An upload by another server is looked for later.
            match !task.replaces && client.http.keeps_existing(target) {
                true => Ok(There::Unknown),
                false => look_at_target(client, target).await,
            }
        };
        let (seen, there) = tokio::try_join!(at_source, at_target)?;
        if seen.as_ref().is_some_and(|seen| seen.is_metalink && options.stop_at_metalink) {
            return Ok(None);
        }
        let seen = seen.unwrap_or_default();
        let seen = Seen {
            size_bytes: facts.size_bytes.or(seen.size_bytes),
            modified: facts.modified.or(seen.modified),
            ..seen
        };
        if let There::File(at_target) = &there
            && task.replaces
        {
            for source in sources {
                refuse_itself((source, &seen), (target, at_target)).await?;
            }
        }
        let facts = FileFacts { size_bytes: seen.size_bytes, modified: seen.modified };
        Ok(Some(Looked { facts, there }))
    }

    /// Tries one mode: with all sources at once where the active server takes several, else with one after the other.
    async fn in_mode(
        &self,
        mode: Mode,
        task: &Task<'_>,
        looked: &Looked,
        telling: &mut Telling<'_>,
        mut stop: Stop<'_>,
    ) -> std::result::Result<Done, Failed> {
        // The first source of a COPY is one of HTTP.
        let (own, others): (Vec<&Url>, Vec<&Url>) =
            task.sources.iter().partition(|url| url.scheme().is_http());
        let mut takes_all = false;
        if mode == Mode::Pull && task.sources.len() > 1 {
            takes_all = tokio::select! {
                biased;
                () = stop.as_mut() => return Err(Failed::File(stopped())),
                most = self.sources_max(task.client, task.target) => most >= task.sources.len(),
            };
        }
        if let Some(first) = own.first()
            && task.sources.len() > 1
            && !takes_all
        {
            let active = if mode == Mode::Pull { task.target } else { *first };
            if self.tells_of(active) {
                telling.detour(Detour::OneSource, &one_source(active));
            }
        }
        let turns: Vec<Vec<&Url>> = match takes_all {
            true => vec![own.into_iter().chain(others).collect()],
            false => own.into_iter().map(|url| vec![url]).collect(),
        };
        let mut last = None;
        for sources in turns {
            match self.attempt(mode, sources, task, looked, telling, stop.as_mut()).await {
                Err(Failed::Way(error)) => last = Some(error),
                ended => return ended,
            }
        }
        let nothing = || Error::new(ErrorKind::Unsupported, "no source is reached by HTTP");
        Err(Failed::Way(last.unwrap_or_else(nothing)))
    }

    /// One COPY, repeated while the active server has too much to do.
    async fn attempt(
        &self,
        mode: Mode,
        sources: Vec<&Url>,
        task: &Task<'_>,
        looked: &Looked,
        telling: &mut Telling<'_>,
        mut stop: Stop<'_>,
    ) -> std::result::Result<Done, Failed> {
        let Task { client, target, options, .. } = *task;
        let active = if mode == Mode::Pull { target } else { sources[0] };
        let key = (active.endpoint(), mode);
        if let Some(why) = self.lock().unable.get(&key) {
            return Err(Failed::Way(why.clone()));
        }
        let passive = if mode == Mode::Pull { sources.clone() } else { vec![target] };
        let (mut credentials, mut lacks) = (Vec::new(), None);
        for url in &passive {
            let found = tokio::select! {
                biased;
                () = stop.as_mut() => return Err(Failed::File(stopped())),
                found = credential(client, url, mode, looked.facts.size_bytes) => found.map_err(Failed::File)?,
            };
            credentials.push(found.value);
            lacks = lacks.or(found.lacks);
        }
        telling.uses(&sources);
        let mut attempt = Attempt {
            mode,
            sources,
            target,
            credentials,
            overwrite: task.replaces,
            requires_checksum: options.require_verified && wanted(options).1.is_none(),
            streams: options.streams,
            modified: looked.facts.modified.filter(|_| task.preserves_times),
            size_bytes: options.known.size_bytes.or(looked.facts.size_bytes),
            is_new: looked.there == There::Nothing,
        };
        let (mut backoff, mut waited, mut ran) = (Backoff::new(), Duration::ZERO, Ran::default());
        let mut renewals = Renewals::default();
        let mut asked = Instant::now();
        let ended = loop {
            match attempt.run(client, telling, &mut ran, stop.as_mut()).await {
                Err(Failed::Busy(error)) if waited < options.patience => {
                    let pause = error.wait().unwrap_or_else(|| backoff.pause());
                    let pause = pause.clamp(Duration::from_millis(100), options.patience - waited);
                    waited += pause;
                    tokio::select! {
                        biased;
                        () = stop.as_mut() => break Err(Failed::File(stopped())),
                        () = sleep(pause) => {}
                    }
                }
                Err(Failed::Way(error)) if error.kind() == ErrorKind::Denied => {
                    let is_fresh = asked.elapsed() < THIRD_PARTY_FRESH;
                    let next = Self::renew(&mut attempt, task, looked, (ran, is_fresh), &mut renewals, error);
                    match tokio::select! { biased; () = stop.as_mut() => Err(stopped()), next = next => next }
                    {
                        Ok(()) => asked = Instant::now(),
                        Err(error) => break Err(Failed::Way(error)),
                    }
                }
                Err(Failed::File(error)) if error.kind() == ErrorKind::Denied => {
                    let is_fresh = asked.elapsed() < THIRD_PARTY_FRESH;
                    let next = Self::renew(&mut attempt, task, looked, (ran, is_fresh), &mut renewals, error);
                    match tokio::select! { biased; () = stop.as_mut() => Err(stopped()), next = next => next }
                    {
                        Ok(()) => asked = Instant::now(),
                        Err(error) => break Err(Failed::File(error)),
                    }
                }
                ended => break ended,
            }
        };
        let lacking = |error: Error| match &lacks {
            Some(why) => {
                error.more(format!("no credential could be passed on to the other server: {}", why.message()))
            }
            None => error,
        };
        let failed = match ended {
            Ok(made) => {
                self.lock().refusals.remove(&key);
                return self.conclude(&attempt, made, task, looked, telling, stop).await;
            }
            Err(Failed::Unknown(error)) => {
                return self.settle(&attempt, (error, ran), task, looked, telling, stop).await;
            }
            Err(Failed::Way(error)) => {
                self.refused(key, &error);
                Failed::Way(lacking(error))
            }
            Err(Failed::File(error)) => {
                let is_of_old = matches!(looked.there, There::File(_))
                    && !client.http.keeps_existing(target)
                    && error.kind() != ErrorKind::Precondition;
                let error = lacking(error);
                Failed::File(match is_of_old {
                    true => error.more("the file that was at the target may be lost"),
                    false => error,
                })
            }
            Err(Failed::Busy(error)) => Failed::Busy(error),
        };
        let is_about_another =
            matches!(&failed, Failed::File(error) if error.kind() == ErrorKind::Precondition);
        if !is_about_another {
            self.leave(task, looked, ran).await;
        }
        Err(failed)
    }

    /// Gives the COPY other credentials for the passive servers, after one that may have been refused; `Ok`: it may be sent again,
    /// and a server that keeps what it has goes on from there.
    async fn renew(
        attempt: &mut Attempt<'_>,
        task: &Task<'_>,
        looked: &Looked,
        (ran, is_fresh): (Ran, bool),
        renewals: &mut Renewals,
        refused: Error,
    ) -> Result<()> {
        if !renewals.may_be_one_more(ran.moved_bytes) {
            return Err(refused);
        }
        let (mut next, mut is_another) = (Vec::new(), false);
        for (url, before) in attempt.passive().into_iter().zip(&attempt.credentials) {
            match renewed(task.client, url, attempt.mode, attempt.size_bytes, before.as_ref(), is_fresh).await
            {
                Ok((found, renewal)) => {
                    is_another |= matches!(renewal, Renewal::Another);
                    if let Renewal::Over(_) = renewal {
                        return Err(renewal.explain(refused));
                    }
                    next.push(found.value);
                }
                Err(why) => return Err(Renewal::Over(why).explain(refused)),
            }
        }
        if !is_another {
            return Err(refused);
        }
        if let Some(pause) = renewals.pause() {
            sleep(pause).await;
        }
        if ran.has_begun && looked.there == There::Nothing && !task.client.http.keeps_existing(task.target) {
            // It begins again, and may have left a part under the file's name.
            clear(task.client, task.target, !ran.has_ended).await;
        }
        attempt.credentials = next;
        Ok(())
    }

    /// Compares both ends of a copy that the server says it has made.
    async fn conclude(
        &self,
        attempt: &Attempt<'_>,
        made: Made,
        task: &Task<'_>,
        looked: &Looked,
        telling: &mut Telling<'_>,
        mut stop: Stop<'_>,
    ) -> std::result::Result<Done, Failed> {
        if attempt.sources.len() > 1 && made.sources.is_none() && attempt.mode == Mode::Pull {
            self.lock().sources_max.insert(attempt.active().endpoint(), 1);
        }
        let Task { client, target, options, .. } = *task;
        let size_bytes = options.known.size_bytes.or(looked.facts.size_bytes);
        telling.verifies(size_bytes.unwrap_or(0));
        let used: Vec<Url> = attempt.sources.iter().map(|url| (*url).clone()).collect();
        let ends = tokio::select! {
            biased;
            () = stop.as_mut() => return Err(given_up(task, looked).await),
            ends = verify::look(client, &used, target, size_bytes, options) => ends.map_err(Failed::File)?,
        };
        let compared = match ends.compare(target, size_bytes, options) {
            Ok(compared) if lacks_proof(&compared, task) => tokio::select! {
                biased;
                () = stop.as_mut() => return Err(given_up(task, looked).await),
                compared = prove(task) => compared,
            },
            compared => compared,
        };
        let compared = match compared {
            Ok(compared) => compared,
            Err(_) if matches!(&looked.there, There::File(before) if ends.are_still(before)) => {
                let message =
                    "the server says that the copy is made, and what was at the target before is still there";
                let error = Error::new(ErrorKind::Protocol, message).fault(Fault::Peer);
                return Err(Failed::File(error.endpoint(target)));
            }
            Err(error) => {
                let error = match remove(client, target).await {
                    Ok(()) => error.more("it was removed"),
                    Err(why) => error
                        .more(format!("it stays at the target, which was not removed: {}", why.message())),
                };
                return Err(Failed::File(error));
            }
        };
        let size_bytes = size_bytes.or(ends.size_bytes());
        telling.size(size_bytes);
        telling.verifies(size_bytes.unwrap_or(0));
        telling.compared(&compared);
        let modified = looked.facts.modified.filter(|_| task.preserves_times);
        let keeps_time = modified.map(|modified| ends.keeps(modified));
        Ok(Done { compared, carrier: carrier(attempt.mode, attempt.active()), keeps_time })
    }

    /// Looks at the target when the active server has not said how it has ended. Only a copy whose checksum is right is
    /// taken for one that has succeeded.
    async fn settle(
        &self,
        attempt: &Attempt<'_>,
        (unknown, ran): (Error, Ran),
        task: &Task<'_>,
        looked: &Looked,
        telling: &mut Telling<'_>,
        mut stop: Stop<'_>,
    ) -> std::result::Result<Done, Failed> {
        let Task { client, target, options, .. } = *task;
        let size_bytes = options.known.size_bytes.or(looked.facts.size_bytes);
        let used: Vec<Url> = attempt.sources.iter().map(|url| (*url).clone()).collect();
        let looking = verify::look(client, &used, target, size_bytes, options);
        let ends = tokio::select! {
            biased;
            () = stop.as_mut() => {
                self.leave(task, looked, ran).await;
                return Err(Failed::File(stopped()));
            }
            ends = looking => ends,
        };
        let compared = ends.and_then(|ends| ends.compare(target, size_bytes, options));
        let why = match compared {
            Ok(compared) if compared.basis.is_some() && !lacks_proof(&compared, task) => {
                telling.verifies(size_bytes.unwrap_or(0));
                telling.compared(&compared);
                return Ok(Done {
                    compared,
                    carrier: carrier(attempt.mode, attempt.active()),
                    keeps_time: None,
                });
            }
            Ok(_) => "what is at the target cannot be verified".to_owned(),
            Err(_)
                if !ran.has_moved && matches!(look_at_target(client, target).await, Ok(There::Nothing)) =>
            {
                return Err(Failed::Way(unknown));
            }
            Err(error) if error.kind() == ErrorKind::Protocol => "there is no file at the target".to_owned(),
            Err(error) => format!("a look at the target: {}", error.message()),
        };
        self.leave(task, looked, ran).await;
        Err(Failed::File(unknown.more(why)))
    }

    /// Sees to it that nothing is left of a new file. What is there without a server that had begun is another's.
    async fn leave(&self, task: &Task<'_>, looked: &Looked, ran: Ran) {
        if ran.has_begun && looked.there == There::Nothing {
            clear(task.client, task.target, !ran.has_ended).await;
        }
    }

    /// The number of sources that a server takes; it is asked once.
    async fn sources_max(&self, client: &Client, active: &Url) -> usize {
        let endpoint = active.endpoint();
        if let Some(known) = self.lock().sources_max.get(&endpoint) {
            return *known;
        }
        let said = client.http.request("OPTIONS", active, &[]).await.ok();
        let said = said.and_then(|said| said.response.head.headers.single(SOURCES_FIELD)?.parse().ok());
        let sources_max = said.unwrap_or(1);
        let mut known = self.lock();
        if known.sources_max.len() >= SERVERS_MAX {
            known.sources_max.clear();
        }
        known.sources_max.insert(endpoint, sources_max);
        sources_max
    }

    /// A server has refused to make a copy.
    fn refused(&self, key: (Endpoint, Mode), why: &Error) {
        // What it says of credentials may be another thing in another directory, as what it says of a file that it was to send; and
        // words in markers are about the other server, as are these statuses of gateways.
        let is_its_own = why.status().is_some_and(|status| match status {
            401 | 403 | 502 | 504 => false,
            404 => key.1 == Mode::Pull,
            _ => true,
        });
        let mut known = self.lock();
        if known.unable.len() + known.refusals.len() >= SERVERS_MAX {
            (known.unable, known.refusals) = Default::default();
        }
        let refusals = known.refusals.entry(key.clone()).or_default();
        *refusals += u32::from(is_its_own);
        if is_unable(why) || *refusals >= REFUSALS_MAX {
            known.unable.insert(key, why.clone());
        }
    }

    /// True if the active server of a mode is known to make no copies.
    fn is_hopeless(&self, mode: Mode, task: &Task<'_>) -> bool {
        let active = match mode {
            Mode::Pull => Some(task.target),
            Mode::Push => task.sources.iter().find(|url| url.scheme().is_http()),
        };
        active.is_some_and(|active| self.lock().unable.contains_key(&(active.endpoint(), mode)))
    }

    /// True if it is to be told that a server takes one source: once.
    fn tells_of(&self, active: &Url) -> bool {
        let mut known = self.lock();
        if known.told.len() >= SERVERS_MAX {
            known.told.clear();
        }
        known.told.insert(active.endpoint())
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The renewals of the credentials for a passive server in one copy: never a loop, whatever both servers say.
#[derive(Debug, Default)]
struct Renewals {
    count: u32,
    /// Since the copy went on the last time.
    in_vain: u32,
    /// Bytes that had been told of at the last one.
    moved_bytes: Option<u64>,
    /// When the last one was.
    at: Option<Instant>,
}

impl Renewals {
    /// True if there may be another one, of a copy of which so many bytes were told of; counts it.
    fn may_be_one_more(&mut self, moved_bytes: u64) -> bool {
        let goes_on = self.moved_bytes.is_none_or(|before| moved_bytes > before);
        self.in_vain = if goes_on { 1 } else { self.in_vain + 1 };
        self.count += 1;
        self.moved_bytes = Some(self.moved_bytes.unwrap_or(0).max(moved_bytes));
        self.in_vain <= THIRD_PARTY_RENEWALS_IN_VAIN_MAX && self.count <= THIRD_PARTY_RENEWALS_MAX
    }

    /// The time to wait before it, if the last one was just now; notes the moment.
    fn pause(&mut self) -> Option<Duration> {
        let since = self.at.replace(Instant::now())?.elapsed();
        THIRD_PARTY_RENEWAL_INTERVAL.checked_sub(since)
    }
}

/// Before a push that may replace nothing: the source's server may upload without a word of that, whatever it was told. So only
/// a target that is known to be absent will do.
async fn may_upload(mode: Mode, task: &Task<'_>, looked: &mut Looked) -> std::result::Result<(), Failed> {
    if mode == Mode::Pull || task.replaces {
        return Ok(());
    }
    if looked.there == There::Unknown {
        looked.there = look_at_target(task.client, task.target).await.map_err(Failed::File)?;
    }
    match looked.there {
        There::Nothing => Ok(()),
        There::File(_) => Err(Failed::File(exists(task.target))),
        There::Unknown => {
            let message = "whether the target exists is not known, and the source's server may replace it";
            Err(Failed::Way(Error::new(ErrorKind::Unsupported, message).endpoint(task.target)))
        }
    }
}

/// Ends a copy that a server has made and that is not compared any more: whether it is right is not known. What has replaced nothing is
/// removed.
async fn given_up(task: &Task<'_>, looked: &Looked) -> Failed {
    // Where it was to replace nothing, and was made, nothing was there.
    if !task.replaces || looked.there == There::Nothing {
        let _ = remove(task.client, task.target).await;
    }
    Failed::File(stopped())
}

/// True if the server of a source is not reached.
fn is_away(error: &Error, source: &Url) -> bool {
    error.is_unreached() && error.endpoint_text() == Some(source.to_string().as_str())
}

fn carrier(mode: Mode, active: &Url) -> Carrier {
    Carrier { mode, server: format!("{}://{}", active.scheme().name(), active.host_header()) }
}

fn one_source(active: &Url) -> Error {
    let message = "the server that makes the copy takes one source";
    Error::new(ErrorKind::Unsupported, message).endpoint(active)
}

/// The failures of both modes in one error: the kind is that of the first.
fn both(first: Mode, error: Error, second: Mode, other: &Error) -> Error {
    let message = format!("{first}: {}; {second}: {}", error.message(), other.message());
    let both = Error::new(error.kind(), message).fault(error.whose_fault()).retryable(error.is_retryable());
    let both = match error.advice() {
        Some(hint) => both.hint(hint.clone()),
        None => both,
    };
    match error.endpoint_text() {
        Some(endpoint) => both.endpoint(endpoint),
        None => both,
    }
}

/// What is to be done where the target's server does not state a checksum of the kind that is known.
fn unstated(task: &Task<'_>) -> Unstated {
    let is_users = wanted(task.options).1 == Some(Basis::User);
    match task.wish.third_party {
        ThirdParty::Only if is_users => Unstated::Fails,
        ThirdParty::Only => Unstated::Passes,
        ThirdParty::Auto | ThirdParty::Never => Unstated::Reads,
    }
}

/// True if a checksum is known, and the target's was not compared with it, though it has to be.
fn lacks_proof(compared: &Compared, task: &Task<'_>) -> bool {
    let is_known = matches!(wanted(task.options).0, Some((_, Some(_))));
    let is_proven = matches!(compared.basis, Some(Basis::User | Basis::Metalink));
    is_known && !is_proven && unstated(task) != Unstated::Passes
}

/// Compares the target with the checksum that is known, though its server does not state one of that kind.
async fn prove(task: &Task<'_>) -> Result<Compared> {
    let (known, basis) = wanted(task.options);
    let checksum = known.and_then(|(_, right)| right);
    if let Some(right) = &checksum {
        compare_unstated(task.client, task.target, right, unstated(task)).await?;
    }
    Ok(Compared { basis, checksum, unstated: None })
}

#[cfg(test)]
mod tests;

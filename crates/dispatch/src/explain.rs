//! Decisions in words: why a file waits, why a link is not faster.

use std::fmt;

use gridlane_core::Time;
use gridlane_core::units::format_seconds;
use gridlane_jobs::{FileId, Link, Storage};

use crate::breaker::Side;
use crate::dispatcher::{Block, Dispatcher};
use crate::optimizer::{Decision, Reason};
use crate::queue::{LinkId, Obstacle};
use crate::rules::HoldReason;

/// Why a file is not being copied. Times are seconds from now.
#[derive(Clone, Debug, PartialEq)]
pub enum Wait {
    /// It does not wait here, and is not copied here.
    Unknown,
    /// It is being copied, for so long.
    Copied(f64),
    /// It is there, and is being verified.
    Verified,
    /// It failed before, and waits for so long.
    Pause(f64),
    /// A storage is on hold.
    Hold(Storage, HoldReason),
    /// Its VO has no share on its link.
    NoShare(String),
    /// Nothing starts at all.
    Paused,
    /// Its path or a storage is down, for so long, and is probed: in so long, or (`None`) at the moment.
    Down(f64, Option<f64>),
    /// Its link has as many copies as it may.
    LinkFull(u32),
    /// A storage has as many copies, in this direction, as it may.
    StorageFull(Storage, Side, u32),
    /// Starts of its link are spread over time: in so long.
    Staggered(f64),
    /// Others of its link are before it, by share, priority or age: files of its own list.
    Behind(u32),
    /// It is the next one.
    Next,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |seconds: &f64| format_seconds(*seconds);
        match self {
            Wait::Unknown => f.write_str("it does not wait, and is not being copied"),
            Wait::Copied(for_s) => write!(f, "it has been copied for {}", time(for_s)),
            Wait::Verified => f.write_str("its bytes are there, and are being verified"),
            Wait::Pause(in_s) => {
                write!(f, "it is tried again in {}, after an attempt that failed", time(in_s))
            }
            Wait::Hold(storage, why) => write!(f, "{storage} {why}"),
            Wait::NoShare(vo) => write!(f, "no share of its link is configured for {vo}"),
            Wait::Paused => f.write_str("the service is paused"),
            Wait::Down(for_s, Some(in_s)) => {
                write!(f, "its path has been down for {}, and is probed in {}", time(for_s), time(in_s))
            }
            Wait::Down(for_s, None) => {
                write!(f, "its path has been down for {}, and is being probed", time(for_s))
            }
            Wait::LinkFull(limit) => write!(f, "its link has {limit} copies at once, as many as it may"),
            Wait::StorageFull(storage, Side::Source, limit) => {
                write!(f, "{limit} copies are being read from {storage}, as many as may be")
            }
            Wait::StorageFull(storage, Side::Destination, limit) => {
                write!(f, "{limit} copies are being written to {storage}, as many as may be")
            }
            Wait::Staggered(in_s) => {
                write!(f, "starts of its link are spread over time, the next is in {}", time(in_s))
            }
            Wait::Behind(list) => {
                write!(f, "others are before it by share, priority or age; {list} files of its kind wait")
            }
            Wait::Next => f.write_str("it is the next one of its link"),
        }
    }
}

/// Why a link is not faster. Times are seconds.
#[derive(Clone, Debug, PartialEq)]
pub enum Pace {
    /// There is nothing to copy.
    Idle,
    /// Its path or a storage has been down for so long.
    Down(f64),
    /// Nothing starts.
    Held,
    /// A storage has as many copies as it may.
    StorageFull(Storage, Side, u32),
    /// It has fewer files than it may have copies: so many are copied, of so many.
    FewFiles(u32, u32),
    /// It shares a bottleneck with these.
    Shared(Vec<Link>, u32),
    /// More copies are being tried.
    Growing(Decision),
    /// As many copies as are configured.
    Range(u32),
    /// The best number is known, by the last decision if there was one.
    Settled(u32, Option<Decision>),
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pace::Idle => f.write_str("there is nothing to copy"),
            Pace::Down(for_s) => {
                write!(f, "the path or a storage has been down for {}", format_seconds(*for_s))
            }
            Pace::Held => f.write_str("nothing of what waits may start: see its files"),
            Pace::StorageFull(storage, Side::Source, limit) => {
                write!(f, "{limit} copies are being read from {storage}, as many as may be")
            }
            Pace::StorageFull(storage, Side::Destination, limit) => {
                write!(f, "{limit} copies are being written to {storage}, as many as may be")
            }
            Pace::FewFiles(active, limit) => {
                write!(f, "{active} files are being copied, and no more wait; {limit} could be at once")
            }
            Pace::Shared(links, copies) => {
                write!(f, "it has {copies} copies at once, and shares a bottleneck with ")?;
                for (place, link) in links.iter().enumerate() {
                    write!(f, "{}{link}", if place > 0 { ", " } else { "" })?;
                }
                Ok(())
            }
            Pace::Growing(decision) => write!(f, "{decision}"),
            Pace::Range(copies) => write!(f, "it has {copies} copies at once, as many as are configured"),
            Pace::Settled(_, Some(decision)) => write!(f, "{decision}"),
            Pace::Settled(copies, None) => write!(f, "it has {copies} copies at once"),
        }
    }
}

/// Figures of a link, for the choice among replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Files of the VO that wait.
    pub files: u32,
    /// Their bytes, as far as they are known.
    pub bytes: u64,
    /// Bytes per second of the link in the last ten seconds.
    pub bytes_per_s: f64,
    /// Copies that run.
    pub active: u32,
    /// The share of copies that went well, where storages and path were to blame for the others; `None`: there were none.
    pub success: Option<f64>,
}

impl Dispatcher {
    /// Why a file waits.
    pub fn why_waits(&self, file: FileId, now: Time) -> Wait {
        if let Some(running) = self.running_file(file) {
            return match running.has_moved {
                true => Wait::Verified,
                false => Wait::Copied(now.since(running.started).as_secs_f64()),
            };
        }
        let Some(place) = self.queue.place(file) else { return Wait::Unknown };
        if let Some(at) = place.not_before {
            return Wait::Pause(at.since(now).as_secs_f64());
        }
        match self.queue.obstacle(place.link, place.vo) {
            Some(Obstacle::Hold(storage, why)) => return Wait::Hold(storage, why),
            Some(Obstacle::NoShare) => return Wait::NoShare(self.queue.vos.get(place.vo).to_string()),
            None => {}
        }
        match self.block(place.link, now) {
            Some(Block::Paused) => Wait::Paused,
            Some(Block::Down(at)) => Wait::Down(
                self.down_since(place.link).map_or(0.0, |since| now.since(since).as_secs_f64()),
                at.map(|at| at.since(now).as_secs_f64()),
            ),
            Some(Block::Full) => Wait::LinkFull(self.limit(place.link).unwrap_or_default()),
            Some(Block::Storage(storage, side)) => {
                let (name, limit) = self.storage_limit(storage, side);
                Wait::StorageFull(name, side, limit)
            }
            Some(Block::Later(at)) => Wait::Staggered(at.since(now).as_secs_f64()),
            Some(Block::Empty) | None if place.is_first => Wait::Next,
            Some(Block::Empty) | None => Wait::Behind(place.list),
        }
    }

    /// Why a link is not faster; `None`: there is no such link.
    pub fn why_slow(&self, id: LinkId, now: Time) -> Option<Pace> {
        let link = self.state(id)?;
        let (ready, total) = self.queue.waiting(id);
        let active = link.meter.active();
        if active == 0 && total == 0 {
            return Some(Pace::Idle);
        }
        if let Some(since) = self.down_since(id) {
            return Some(Pace::Down(now.since(since).as_secs_f64()));
        }
        if ready == 0 {
            return Some(if active == 0 { Pace::Held } else { Pace::FewFiles(active, link.limit) });
        }
        match self.block(id, now) {
            Some(Block::Paused) => return Some(Pace::Held),
            Some(Block::Storage(storage, side)) => {
                let (name, limit) = self.storage_limit(storage, side);
                return Some(Pace::StorageFull(name, side, limit));
            }
            _ => {}
        }
        let others = self.optimizer.group(id).into_iter().filter(|other| *other != id);
        let others: Vec<Link> = others.filter_map(|other| self.link(other)).collect();
        if !others.is_empty() {
            return Some(Pace::Shared(others, link.limit));
        }
        let max = self.link(id).map(|name| self.rules.range(&name).max);
        Some(match &link.last {
            Some(last)
                if matches!(
                    last.why,
                    Reason::Grows(_) | Reason::Trial(_) | Reason::Compares(_) | Reason::Fewer(_)
                ) =>
            {
                Pace::Growing(last.clone())
            }
            _ if max == Some(link.limit) => Pace::Range(link.limit),
            last => Pace::Settled(link.limit, last.clone()),
        })
    }

    /// What the choice among replicas looks at (fts3-rest 4.3); of a link that had nothing to do lately, nothing.
    pub fn figures(&self, link: &Link, vo: &str) -> Figures {
        let Some(id) = self.link_id(link) else { return Figures::default() };
        let Some(state) = self.state(id) else { return Figures::default() };
        let (files, bytes) = self.queue.waiting_of(id, vo);
        let ended = state.finished + state.failed;
        Figures {
            files,
            bytes,
            bytes_per_s: state.bytes_per_s,
            active: state.meter.active(),
            success: (ended > 0).then(|| state.finished as f64 / ended as f64),
        }
    }

    /// The rate of a link when it was last looked at, in bytes per second, and its copies now.
    pub fn pace(&self, id: LinkId) -> Option<(f64, u32)> {
        self.state(id).map(|link| (link.bytes_per_s, link.meter.active()))
    }

    fn storage_limit(&self, storage: u32, side: Side) -> (Storage, u32) {
        let limit = self.storage_state(storage).map_or(0, |state| state.limits[side as usize]);
        (self.storage_name(storage), limit)
    }
}

//! Files that wait, in memory: by link, VO, activity and priority.
//!
//! A file is a record of 48 bytes in a table, and 5 to 11 bytes in an index by its number; with a time of expiry or one before
//! which it does not start, 8 to 16 bytes more for each. So 10⁷ files take less than 1 GB. Nothing here scans them: lists are linked
//! through the records, times are in heaps, and a hold of a storage is a mark at its links.
//!
//! Within an activity, files have ranks: the time of coming, and [`DISPATCH_AGING`] earlier for each step of priority. The first
//! in a list is its oldest, so that five are compared, and what waits is overtaken by no more than what comes within a few hours.

use std::collections::HashMap;

use gridlane_core::Time;
use gridlane_core::limits::{DISPATCH_ACTIVITIES_MAX, DISPATCH_AGING, DISPATCH_FILE_COST_BYTES};
use gridlane_jobs::{FileId, Link, Storage};
use hashbrown::HashTable;

use crate::names::Names;
use crate::records::{List, NONE, Record, Records, State};
use crate::rules::{HoldReason, Rules, activity_weight};
use crate::timers::Timers;

/// Priorities, 1 to 5.
const PRIORITIES: usize = 5;
/// Bytes of a file whose size nobody knows, for shares: a usual one.
const UNKNOWN_SIZE_BYTES: u64 = 1_000_000_000;

/// A link, by its number as long as it is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// A file that is to wait.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The file.
    pub file: FileId,
    /// Its storages.
    pub link: Link,
    /// Its VO.
    pub vo: String,
    /// Its activity.
    pub activity: String,
    /// 1 to 5, of which 5 is first; others count as the nearest.
    pub priority: u8,
    /// Bytes; 0: not known.
    pub size_bytes: u64,
    /// Seconds that it has waited already.
    pub waited_s: u32,
    /// Not before this.
    pub not_before: Option<Time>,
    /// It is given back if it still waits then.
    pub expires: Option<Time>,
}

/// A file that was taken out of the queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Taken {
    pub(crate) file: FileId,
    pub(crate) link: LinkId,
    pub(crate) vo: u32,
    pub(crate) size_bytes: u64,
    /// What its VO was charged.
    pub(crate) charge: f64,
}

/// Where a file that waits stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place {
    pub(crate) link: LinkId,
    pub(crate) vo: u32,
    /// Not before this.
    pub(crate) not_before: Option<Time>,
    /// Files of its list that may start, itself included.
    pub(crate) list: u32,
    pub(crate) is_first: bool,
}

/// Files of an activity.
#[derive(Debug)]
struct Bin {
    link: u32,
    vo: u32,
    activity: u32,
    lists: [List; PRIORITIES],
    /// Those that wait for their time.
    delayed: u32,
    /// Bytes that it has had, by weight.
    served: f64,
}

/// What an activity had, of which no file waits.
#[derive(Clone, Copy, Debug)]
struct Past {
    activity: u32,
    served: f64,
}

/// Files of a VO on a link.
#[derive(Debug)]
struct VoQueue {
    vo: u32,
    bins: Vec<u32>,
    /// Activities that had more than the one that was served last, and have nothing now: they do not begin anew.
    past: Vec<Past>,
    /// The bytes by weight that the activity had had which was served last.
    activity_served: f64,
    ready: u32,
    total: u32,
    /// Bytes of all of them, as far as they are known.
    bytes: u64,
    served: f64,
    /// `None`: no share is configured for it. True: its share is that of `public`.
    weight: Option<(f64, bool)>,
    hold: Option<(Storage, HoldReason)>,
}

/// Files of a link.
#[derive(Debug)]
struct LinkQueue {
    source: u32,
    destination: u32,
    vos: Vec<VoQueue>,
    /// Those that may start, those of VOs on hold and without a share apart.
    ready: u32,
    total: u32,
    /// The bytes by weight that the VO has had which was served last: one that comes anew begins here.
    served: f64,
}

/// Files that wait.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    records: Records,
    index: HashTable<u32>,
    bins: Vec<Bin>,
    bins_free: Vec<u32>,
    links: Vec<Option<LinkQueue>>,
    links_free: Vec<u32>,
    link_of: HashMap<(u32, u32), u32>,
    pub(crate) storages: Names,
    pub(crate) vos: Names,
    activities: Names,
    wakes: Timers,
    expiries: Timers,
}

/// Whole seconds, the next one for a part of one: nothing is due too early.
fn up_s(time: Time) -> u32 {
    let since = time.since_origin();
    u32::try_from(since.as_secs() + u64::from(since.subsec_nanos() > 0)).unwrap_or(u32::MAX).max(1)
}

fn down_s(time: Time) -> u32 {
    u32::try_from(time.since_origin().as_secs()).unwrap_or(u32::MAX)
}

/// Numbers of files come one after the other: all bits of the result depend on all of theirs.
fn hash(file: FileId) -> u64 {
    crate::random::mix(file.0 as u64)
}

impl VoQueue {
    fn is_eligible(&self) -> bool {
        self.ready > 0 && self.hold.is_none() && self.weight.is_some()
    }
}

impl VoQueue {
    /// Where an activity begins that comes anew, where the one with files that has had least stands at `least`.
    fn begin(&mut self, activity: Option<u32>, least: Option<f64>) -> (f64, Option<Past>) {
        let place = self.past.iter().position(|past| Some(past.activity) == activity);
        let past = place.map(|place| self.past.swap_remove(place));
        let begin = least.unwrap_or(self.activity_served);
        (past.map_or(begin, |past| past.served.max(begin)), past)
    }

    /// Remembers what an activity had that has no more files; gives back the one that need not be remembered any more, if it is one.
    fn remember(&mut self, activity: u32, served: f64) -> Option<u32> {
        if served <= self.activity_served {
            return Some(activity);
        }
        self.past.push(Past { activity, served });
        let least = self.past.iter().enumerate().min_by(|one, other| one.1.served.total_cmp(&other.1.served));
        let (place, past) = least?;
        let is_over = past.served <= self.activity_served || self.past.len() > DISPATCH_ACTIVITIES_MAX;
        is_over.then(|| self.past.swap_remove(place).activity)
    }
}

impl Bin {
    fn ready(&self) -> u32 {
        self.lists.iter().map(|list| list.len).sum()
    }
}

impl LinkQueue {
    fn count(&mut self) {
        self.ready = self.vos.iter().filter(|vo| vo.is_eligible()).map(|vo| vo.ready).sum();
    }

    fn vo(&mut self, vo: u32) -> Option<&mut VoQueue> {
        self.vos.iter_mut().find(|queue| queue.vo == vo)
    }
}

impl Queue {
    /// Files that wait, for whatever.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// Numbers of links, in use and free.
    pub(crate) fn links(&self) -> impl Iterator<Item = LinkId> {
        self.links
            .iter()
            .enumerate()
            .filter(|(_, link)| link.is_some())
            .map(|(number, _)| LinkId(number as u32))
    }

    /// The number of a link, which is made if it is not there.
    pub(crate) fn link_id(&mut self, link: &Link) -> LinkId {
        let (source, destination) =
            (self.storages.take(&link.source.0), self.storages.take(&link.destination.0));
        if let Some(&id) = self.link_of.get(&(source, destination)) {
            self.storages.release(source);
            self.storages.release(destination);
            return LinkId(id);
        }
        let queue = LinkQueue { source, destination, vos: Vec::new(), ready: 0, total: 0, served: 0.0 };
        let id = match self.links_free.pop() {
            Some(id) => {
                self.links[id as usize] = Some(queue);
                id
            }
            None => {
                self.links.push(Some(queue));
                self.links.len() as u32 - 1
            }
        };
        self.link_of.insert((source, destination), id);
        LinkId(id)
    }

    /// The number of a link, if it is in use.
    pub(crate) fn find_link(&self, link: &Link) -> Option<LinkId> {
        let (source, destination) =
            (self.storages.find(&link.source.0)?, self.storages.find(&link.destination.0)?);
        self.link_of.get(&(source, destination)).map(|id| LinkId(*id))
    }

    /// The storages of a link, by number.
    pub(crate) fn ends(&self, link: LinkId) -> Option<(u32, u32)> {
        self.links.get(link.0 as usize)?.as_ref().map(|link| (link.source, link.destination))
    }

    /// The names of a link's storages.
    pub(crate) fn link(&self, link: LinkId) -> Option<Link> {
        let (source, destination) = self.ends(link)?;
        let name = |number| Storage(self.storages.get(number).clone());
        Some(Link { source: name(source), destination: name(destination) })
    }

    /// Forgets a link on which nothing waits; false if something does.
    pub(crate) fn forget_link(&mut self, id: LinkId) -> bool {
        let Some(slot) = self.links.get_mut(id.0 as usize) else { return false };
        match slot {
            Some(link) if link.total == 0 => {
                let ends = (link.source, link.destination);
                for vo in link.vos.drain(..) {
                    self.vos.release(vo.vo);
                    for past in vo.past {
                        self.activities.release(past.activity);
                    }
                }
                *slot = None;
                self.links_free.push(id.0);
                self.link_of.remove(&ends);
                self.storages.release(ends.0);
                self.storages.release(ends.1);
                true
            }
            _ => false,
        }
    }

    /// Files that may start, and all that wait.
    pub(crate) fn waiting(&self, link: LinkId) -> (u32, u32) {
        self.links
            .get(link.0 as usize)
            .and_then(Option::as_ref)
            .map_or((0, 0), |link| (link.ready, link.total))
    }

    /// Files of a VO that wait, and their bytes as far as they are known.
    pub(crate) fn waiting_of(&self, link: LinkId, vo: &str) -> (u32, u64) {
        let vo = self.vos.find(vo);
        let link = self.links.get(link.0 as usize).and_then(Option::as_ref);
        let queue = link.and_then(|link| link.vos.iter().find(|queue| Some(queue.vo) == vo));
        queue.map_or((0, 0), |queue| (queue.total, queue.bytes))
    }

    /// Files of VOs without a share on this link: they are taken out.
    pub(crate) fn refused(&mut self, id: LinkId, limit: usize) -> Vec<FileId> {
        let Some(link) = self.links.get(id.0 as usize).and_then(Option::as_ref) else { return Vec::new() };
        let bins = link.vos.iter().filter(|vo| vo.weight.is_none()).flat_map(|vo| &vo.bins);
        let lists = bins.flat_map(|bin| self.bins[*bin as usize].lists.iter());
        let places: Vec<u32> = lists.flat_map(|list| self.records.iter(list)).take(limit).collect();
        places.into_iter().map(|place| self.take(place).file).collect()
    }

    /// A file begins to wait; `None` if it does already.
    pub(crate) fn insert(&mut self, entry: &Entry, rules: &Rules, now: Time) -> Option<LinkId> {
        if self.find(entry.file).is_some() {
            return None;
        }
        let link = self.link_id(&entry.link);
        let vo = self.vo_queue(link, &entry.vo, rules)?;
        let bin = self.bin(link, vo, &entry.activity);
        let waits_until = entry.not_before.filter(|at| *at > now).map_or(0, up_s);
        let since_s = down_s(now).cast_signed().saturating_sub_unsigned(entry.waited_s);
        let priority = entry.priority.clamp(1, PRIORITIES as u8) - 1;
        let expires_s = entry.expires.map_or(0, up_s);
        let place = self.records.add(Record {
            file: entry.file.0,
            size_bytes: entry.size_bytes,
            bin,
            since_s,
            wakes_s: waits_until,
            expires_s,
            priority,
            ..Record::default()
        });
        let records = &self.records;
        self.index.insert_unique(hash(entry.file), place, |place| hash(FileId(records.get(*place).file)));
        if expires_s > 0 {
            self.expiries.push(expires_s, place, |at_s, place| records.get(place).is_expiring(at_s));
        }
        self.count_total(bin, 1, entry.size_bytes);
        if waits_until > 0 {
            self.delay(place);
        } else {
            self.make_ready(place);
        }
        Some(link)
    }

    /// The queue of a VO on a link, which is made if it is not there: its number.
    fn vo_queue(&mut self, id: LinkId, name: &str, rules: &Rules) -> Option<u32> {
        let known = self.vos.find(name);
        let link = self.links.get_mut(id.0 as usize)?.as_mut()?;
        if let Some(vo) = known
            && link.vo(vo).is_some()
        {
            return Some(vo);
        }
        let vo = self.vos.take(name);
        let names = self.link(id)?;
        let link = self.links.get_mut(id.0 as usize)?.as_mut()?;
        link.vos.push(VoQueue {
            vo,
            bins: Vec::new(),
            past: Vec::new(),
            activity_served: 0.0,
            ready: 0,
            total: 0,
            bytes: 0,
            served: link.served,
            weight: rules.weight(&names, name),
            hold: rules.hold(&names, name),
        });
        Some(vo)
    }

    /// The place of an activity's files, which is made if it is not there.
    fn bin(&mut self, id: LinkId, vo: u32, activity: &str) -> u32 {
        let known = self.activities.find(activity);
        let Some(queue) = self.links[id.0 as usize].as_mut().and_then(|link| link.vo(vo)) else {
            return NONE;
        };
        let found = queue.bins.iter().find(|bin| Some(self.bins[**bin as usize].activity) == known);
        if let Some(bin) = found {
            return *bin;
        }
        if queue.bins.len() >= DISPATCH_ACTIVITIES_MAX && activity != "default" {
            return self.bin(id, vo, "default");
        }
        // It begins where the one stands that has had least, but not behind itself.
        let least = queue.bins.iter().map(|bin| self.bins[*bin as usize].served).reduce(f64::min);
        let (served, past) = queue.begin(known, least);
        // What is remembered has the use of its name.
        let activity = past.map_or_else(|| self.activities.take(activity), |past| past.activity);
        let new = Bin { link: id.0, vo, activity, lists: Default::default(), delayed: 0, served };
        let bin = match self.bins_free.pop() {
            Some(bin) => {
                self.bins[bin as usize] = new;
                bin
            }
            None => {
                self.bins.push(new);
                self.bins.len() as u32 - 1
            }
        };
        queue.bins.push(bin);
        bin
    }

    /// One file more or less in a bin, which goes when it is empty.
    fn count_total(&mut self, number: u32, more: i32, bytes: u64) {
        let bin = &self.bins[number as usize];
        let (vo, is_empty) = (bin.vo, more < 0 && bin.ready() == 0 && bin.delayed == 0);
        let Some(link) = self.links[bin.link as usize].as_mut() else { return };
        link.total = link.total.saturating_add_signed(more);
        if let Some(queue) = link.vo(vo) {
            queue.total = queue.total.saturating_add_signed(more);
            queue.bytes =
                if more > 0 { queue.bytes.saturating_add(bytes) } else { queue.bytes.saturating_sub(bytes) };
            if is_empty {
                queue.bins.retain(|bin| *bin != number);
                if let Some(activity) = queue.remember(bin.activity, bin.served) {
                    self.activities.release(activity);
                }
                self.bins_free.push(number);
            }
        }
    }

    /// A number of ready files more or less in a bin.
    fn count_ready(&mut self, number: u32, more: i32) {
        let bin = &self.bins[number as usize];
        let vo = bin.vo;
        let Some(link) = self.links[bin.link as usize].as_mut() else { return };
        let served = link.served;
        if let Some(queue) = link.vo(vo) {
            if queue.ready == 0 && more > 0 {
                // What it did not use while it had nothing is not owed to it.
                queue.served = queue.served.max(served);
            }
            queue.ready = queue.ready.saturating_add_signed(more);
            if queue.hold.is_none() && queue.weight.is_some() {
                link.ready = link.ready.saturating_add_signed(more);
            }
        }
    }

    fn delay(&mut self, place: u32) {
        let (bin, at_s) = {
            let record = self.records.get_mut(place);
            record.state = State::Delayed;
            (record.bin, record.wakes_s)
        };
        self.bins[bin as usize].delayed += 1;
        let records = &self.records;
        self.wakes.push(at_s, place, |at_s, place| records.get(place).is_waking(at_s));
    }

    fn make_ready(&mut self, place: u32) {
        let record = self.records.get_mut(place);
        record.state = State::Ready;
        record.wakes_s = 0;
        let (bin, priority) = (record.bin, record.priority);
        self.records.append(&mut self.bins[bin as usize].lists[priority as usize], place);
        self.count_ready(bin, 1);
    }

    fn find(&self, file: FileId) -> Option<u32> {
        self.index.find(hash(file), |place| self.records.get(*place).file == file.0).copied()
    }

    /// Takes a file out of the queue.
    fn take(&mut self, place: u32) -> Taken {
        let record = *self.records.get(place);
        self.unlink(place);
        if record.expires_s > 0 {
            self.expiries.forget();
        }
        let file = FileId(record.file);
        if let Ok(entry) = self.index.find_entry(hash(file), |other| *other == place) {
            entry.remove();
        }
        let (link, vo) = {
            let bin = &self.bins[record.bin as usize];
            (LinkId(bin.link), bin.vo)
        };
        self.records.remove(place);
        self.count_total(record.bin, -1, record.size_bytes);
        Taken { file, link, vo, size_bytes: record.size_bytes, charge: 0.0 }
    }

    /// Takes a file out of its list, or from the timers.
    fn unlink(&mut self, place: u32) {
        let record = *self.records.get(place);
        let bin = &mut self.bins[record.bin as usize];
        if record.state == State::Delayed {
            bin.delayed -= 1;
            self.wakes.forget();
        } else {
            self.records.unlink(&mut bin.lists[record.priority as usize], place);
            self.count_ready(record.bin, -1);
        }
    }

    /// Takes a file out of the queue; `None` if it is not there.
    pub(crate) fn remove(&mut self, file: FileId) -> Option<Taken> {
        self.find(file).map(|place| self.take(place))
    }

    /// Changes the priority of a file; false if it is not there.
    pub(crate) fn set_priority(&mut self, file: FileId, priority: u8) -> bool {
        let Some(place) = self.find(file) else { return false };
        let priority = priority.clamp(1, PRIORITIES as u8) - 1;
        let is_ready = self.records.get(place).state == State::Ready;
        if is_ready {
            self.unlink(place);
        }
        self.records.get_mut(place).priority = priority;
        if is_ready {
            self.make_ready(place);
        }
        true
    }

    /// Files whose time has come may start: a link for each.
    pub(crate) fn wake(&mut self, now: Time, mut woken: impl FnMut(LinkId)) {
        loop {
            let records = &self.records;
            let Some(place) = self.wakes.due(down_s(now), |at_s, place| records.get(place).is_waking(at_s))
            else {
                return;
            };
            let bin = self.records.get(place).bin;
            self.bins[bin as usize].delayed -= 1;
            self.make_ready(place);
            woken(LinkId(self.bins[bin as usize].link));
        }
    }

    /// A file that has waited for too long, which is taken out.
    pub(crate) fn expire(&mut self, now: Time) -> Option<FileId> {
        let records = &self.records;
        let due = self.expiries.due(down_s(now), |at_s, place| records.get(place).is_expiring(at_s));
        let place = due?;
        self.records.get_mut(place).expires_s = 0;
        Some(self.take(place).file)
    }

    /// When a file's time comes, or is over.
    pub(crate) fn next_due(&mut self) -> Option<Time> {
        let records = &self.records;
        let wake = self.wakes.next_s(|at_s, place| records.get(place).is_waking(at_s));
        let expiry = self.expiries.next_s(|at_s, place| records.get(place).is_expiring(at_s));
        let at_s = [wake, expiry].into_iter().flatten().min()?;
        Some(Time::from_origin(std::time::Duration::from_secs(u64::from(at_s))))
    }

    /// The rules have changed: shares and holds of a link are looked up again.
    pub(crate) fn configured(&mut self, id: LinkId, rules: &Rules) {
        let Some(names) = self.link(id) else { return };
        let Some(link) = self.links[id.0 as usize].as_mut() else { return };
        for queue in &mut link.vos {
            let vo = self.vos.get(queue.vo);
            queue.weight = rules.weight(&names, vo);
            let hold = rules.hold(&names, vo);
            if queue.hold.is_some() && hold.is_none() {
                queue.served = queue.served.max(link.served);
            }
            queue.hold = hold;
        }
        link.count();
    }

    /// The file that a link starts next, by the shares of VOs and activities, by priority and age.
    pub(crate) fn choose(&mut self, id: LinkId, rules: &Rules) -> Option<Taken> {
        let link = self.links.get_mut(id.0 as usize)?.as_mut()?;
        let in_public =
            link.vos.iter().filter(|vo| vo.ready > 0 && vo.weight.is_some_and(|(_, is)| is)).count();
        let queue = link
            .vos
            .iter_mut()
            .filter(|vo| vo.is_eligible())
            .min_by(|one, other| one.served.total_cmp(&other.served))?;
        let name = self.vos.get(queue.vo);
        let ready = queue.bins.iter().copied().filter(|bin| self.bins[*bin as usize].ready() > 0);
        let activity_weights = rules.activity_weights(name);
        let bin = match activity_weights {
            Some(_) => ready.min_by(|one, other| {
                self.bins[*one as usize].served.total_cmp(&self.bins[*other as usize].served)
            })?,
            None => ready.min_by_key(|bin| self.records.first(&self.bins[*bin as usize].lists).map(rank))?,
        };
        let first = self.records.first(&self.bins[bin as usize].lists)?;
        let (size_bytes, place) = (first.1.size_bytes, first.0);
        let charge = cost(size_bytes);
        let (weight, is_public) = queue.weight.unwrap_or((1.0, false));
        let weight = if is_public { weight / in_public.max(1) as f64 } else { weight };
        link.served = link.served.max(queue.served);
        queue.served += charge / weight;
        if let Some(weights) = activity_weights {
            // An activity that had nothing for a while has no more to come than the others.
            let least = queue.bins.iter().filter(|bin| self.bins[**bin as usize].ready() > 0);
            let least = least.map(|bin| self.bins[*bin as usize].served).reduce(f64::min).unwrap_or(0.0);
            queue.activity_served = queue.activity_served.max(least);
            let empty: Vec<u32> =
                queue.bins.iter().copied().filter(|bin| self.bins[*bin as usize].ready() == 0).collect();
            for bin in empty {
                let bin = &mut self.bins[bin as usize];
                bin.served = bin.served.max(least);
            }
            let bin = &mut self.bins[bin as usize];
            bin.served += charge / activity_weight(weights, self.activities.get(bin.activity));
        }
        Some(Taken { charge: charge / weight, ..self.take(place) })
    }

    /// A copy has ended after so many bytes: the VO is charged for these, and not for what was said of the file.
    pub(crate) fn charge(&mut self, taken: &Taken, bytes: u64) {
        let said = cost(taken.size_bytes);
        let Some(link) = self.links.get_mut(taken.link.0 as usize).and_then(Option::as_mut) else { return };
        if let Some(queue) = link.vo(taken.vo) {
            queue.served += taken.charge * (cost(bytes.max(1)) / said - 1.0);
        }
    }

    /// Where a file stands; `None` if it does not wait.
    pub(crate) fn place(&self, file: FileId) -> Option<Place> {
        let place = self.find(file)?;
        let record = self.records.get(place);
        let bin = &self.bins[record.bin as usize];
        let list = &bin.lists[record.priority as usize];
        let not_before = (record.state == State::Delayed)
            .then(|| Time::from_origin(std::time::Duration::from_secs(u64::from(record.wakes_s))));
        let is_first = self.records.first(&bin.lists).is_some_and(|first| first.0 == place);
        Some(Place { link: LinkId(bin.link), vo: bin.vo, not_before, list: list.len, is_first })
    }

    /// Why a VO's files on a link do not start, if it is its own affair.
    pub(crate) fn obstacle(&self, id: LinkId, vo: u32) -> Option<Obstacle> {
        let link = self.links.get(id.0 as usize)?.as_ref()?;
        let queue = link.vos.iter().find(|queue| queue.vo == vo)?;
        match &queue.hold {
            Some((storage, why)) => Some(Obstacle::Hold(storage.clone(), *why)),
            None if queue.weight.is_none() => Some(Obstacle::NoShare),
            None => None,
        }
    }

    /// Bytes that the queue takes, but for names.
    pub(crate) fn bytes(&self) -> usize {
        self.records.bytes()
            + self.index.allocation_size()
            + self.bins.capacity() * size_of::<Bin>()
            + self.links.capacity() * size_of::<Option<LinkQueue>>()
            + self.wakes.bytes()
            + self.expiries.bytes()
    }
}

/// Why files of a VO on a link do not start.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Obstacle {
    /// A storage is on hold.
    Hold(Storage, HoldReason),
    /// No share is configured.
    NoShare,
}

/// The bytes that a file counts as, in shares.
fn cost(size_bytes: u64) -> f64 {
    let size_bytes = if size_bytes == 0 { UNKNOWN_SIZE_BYTES } else { size_bytes };
    size_bytes.saturating_add(DISPATCH_FILE_COST_BYTES) as f64
}

/// Smaller is sooner: the time of coming, earlier for what has a higher priority.
fn rank((_, record): (u32, &Record)) -> i64 {
    i64::from(record.since_s) - i64::from(record.priority) * DISPATCH_AGING.as_secs().cast_signed()
}

impl Records {
    /// The first one of these lists, by rank.
    fn first(&self, lists: &[List; PRIORITIES]) -> Option<(u32, &Record)> {
        let heads = lists.iter().filter(|list| list.len > 0).map(|list| (list.head, self.get(list.head)));
        heads.min_by_key(|head| rank(*head))
    }
}

#[cfg(test)]
mod tests;

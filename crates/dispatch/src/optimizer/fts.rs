//! FTS3's optimiser, by fts3-rest 10.1 to 10.6, for comparison.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use gridlane_core::Time;
use gridlane_jobs::FileId;

use super::decision::{Decision, Reason, Sample};
use crate::queue::LinkId;
use crate::rules::Range;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_secs(60);
/// Nothing new for so long is no reason to skip a look.
const STEADY: Duration = Duration::from_secs(300);
/// Weight of a new rate in the average.
const ALPHA: f64 = 0.1;
/// Success in per cent below which there are fewer copies, and from which on it may get better.
const LOW_SUCCESS: u64 = 97;
const BASE_SUCCESS: u64 = 96;
/// The past that is kept.
const PAST_S: u64 = 1800;

#[derive(Clone, Copy, Debug)]
struct Running {
    started: Time,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Past {
    started: Time,
    ended: Time,
    bytes: u64,
    is_good: bool,
}

/// What was seen of a pair when it was last looked at.
#[derive(Clone, Copy, Debug)]
struct Seen {
    success: u64,
    ema: f64,
    retries: u64,
    size: f64,
    changed_at: Time,
}

#[derive(Debug, Default)]
struct Pair {
    past: VecDeque<Past>,
    running: BTreeMap<FileId, Running>,
    /// Files that wait after having failed, with their attempts and when.
    requeued: VecDeque<(Time, u32)>,
    decided: u32,
    before: Option<Seen>,
}

/// FTS3's optimiser.
#[derive(Debug)]
pub(crate) struct Fts {
    has_memory: bool,
    next_at: Time,
    pairs: HashMap<LinkId, Pair>,
    link_of: HashMap<FileId, LinkId>,
}

impl Fts {
    /// That of 3.13, which remembers, or of 3.14.
    pub(crate) fn new(has_memory: bool) -> Fts {
        Fts { has_memory, next_at: Time::ZERO, pairs: HashMap::new(), link_of: HashMap::new() }
    }

    pub(crate) fn next_at(&self) -> Time {
        self.next_at
    }

    pub(crate) fn started(&mut self, file: FileId, link: LinkId, now: Time) {
        let pair = self.pairs.entry(link).or_default();
        pair.running.insert(file, Running { started: now, bytes: 0 });
        pair.requeued.pop_front();
        self.link_of.insert(file, link);
    }

    pub(crate) fn progress(&mut self, file: FileId, bytes: u64) {
        let pair = self.link_of.get(&file).and_then(|link| self.pairs.get_mut(link));
        if let Some(running) = pair.and_then(|pair| pair.running.get_mut(&file)) {
            running.bytes = bytes;
        }
    }

    pub(crate) fn ended(&mut self, file: FileId, is_good: Option<bool>, bytes: u64, now: Time) {
        let Some(pair) = self.link_of.remove(&file).and_then(|link| self.pairs.get_mut(&link)) else {
            return;
        };
        if let (Some(running), Some(is_good)) = (pair.running.remove(&file), is_good) {
            pair.past.push_back(Past { started: running.started, ended: now, bytes, is_good });
        }
    }

    pub(crate) fn requeued(&mut self, link: LinkId, attempts: u32, now: Time) {
        self.pairs.entry(link).or_default().requeued.push_back((now, attempts));
    }

    pub(crate) fn forget(&mut self, link: LinkId) {
        if let Some(pair) = self.pairs.remove(&link) {
            for running in pair.running.keys() {
                self.link_of.remove(running);
            }
        }
    }

    pub(crate) fn look(&mut self, now: Time, samples: &[Sample]) -> Vec<Decision> {
        if now < self.next_at {
            return Vec::new();
        }
        self.next_at = now + INTERVAL;
        let has_memory = self.has_memory;
        samples
            .iter()
            .filter_map(|sample| {
                let pair = self.pairs.entry(sample.link).or_default();
                let (to, rule) = pair.step(sample, now, has_memory);
                let from = sample.limit;
                pair.decided = to;
                let why = if rule == 0 { Reason::Range } else { Reason::Fts(rule) };
                (to != from).then_some(Decision { link: sample.link, at: now, from, to, why })
            })
            .collect()
    }
}

impl Pair {
    /// The next number of connections, and the rule that said so; 0: the range, or the first time.
    fn step(&mut self, sample: &Sample, now: Time, has_memory: bool) -> (u32, u8) {
        while self.past.front().is_some_and(|past| now.since(past.ended).as_secs() > PAST_S) {
            self.past.pop_front();
        }
        let Range { min, max, mode, is_specific } = sample.range;
        let seen = self.see(now, has_memory);
        let before = self.before.replace(seen);
        let decided = self.decided;
        if decided == 0 {
            return (if is_specific { max } else { (min + max) / 2 }, 0);
        }
        if min == max {
            return (min, 1);
        }
        if sample.rate_share > 1.0 {
            // It may fall below the range, even to nothing, which counts as no value.
            return (decided - 1, 2);
        }
        // What 3.14 calls the state before is the present one.
        let before = if has_memory { before.unwrap_or(seen) } else { seen };
        if has_memory
            && now.since(seen.changed_at) < STEADY
            && before.success == seen.success
            && before.ema == seen.ema
        {
            return (decided, 3);
        }
        let step = if mode >= 2 { 2 } else { 1 };
        let waiting = sample.waiting;
        let (to, rule) = if seen.success < LOW_SUCCESS {
            let is_better = seen.success > before.success && seen.success >= BASE_SUCCESS;
            let to =
                if is_better && seen.retries <= before.retries { decided } else { decided.saturating_sub(1) };
            (to, 4)
        } else if seen.ema == 0.0 {
            (decided, 5)
        } else if waiting < decided {
            (decided, 6)
        } else if seen.ema < before.ema {
            let magnitude = |value: f64| value.max(1.0).log10().round();
            if magnitude(seen.size) < magnitude(before.size) {
                (decided + step, 7)
            } else if magnitude(seen.ema) < magnitude(before.ema) {
                (decided.saturating_sub(1), 7)
            } else {
                (decided, 7)
            }
        } else {
            (decided + step, 8)
        };
        let to = to.clamp(min, max);
        let is_held = match mode {
            0 => false,
            1 => to > decided && waiting < to,
            _ => to > decided && u64::from(to) > 16 * u64::from(waiting),
        };
        (if is_held { decided } else { to }, rule)
    }

    /// The figures of fts3-rest 10.1.
    fn see(&mut self, now: Time, has_memory: bool) -> Seen {
        let seconds = |past: &Past| past.ended.since(past.started).as_secs();
        let good = || self.past.iter().filter(|past| past.is_good);
        let count = good().count() as f64;
        let mean_s = if count > 0.0 { good().map(seconds).sum::<u64>() as f64 / count } else { 0.0 };
        let window_s: u64 = match mean_s {
            mean if mean > 0.0 && mean < 30.0 => 300,
            mean if mean > 30.0 && mean < 900.0 => 900,
            _ => 1800,
        };
        let in_window = |past: &&Past| now.since(past.ended).as_secs() <= window_s;
        // Bytes of the window: a file's rate, in whole bytes per second, by its seconds inside of it.
        let part = |bytes: u64, started: Time, ended: Time| {
            let lasted_s = ended.since(started).as_secs();
            let outside_s = now.since(started).as_secs().saturating_sub(window_s);
            bytes.checked_div(lasted_s).map_or(bytes, |rate| rate * lasted_s.saturating_sub(outside_s))
        };
        let finished = good().filter(in_window).map(|past| part(past.bytes, past.started, past.ended));
        let running = self.running.values().map(|running| part(running.bytes, running.started, now));
        let rate = (finished.sum::<u64>() + running.sum::<u64>()) as f64 / window_s as f64;
        let ended = good().filter(in_window).count() as u64;
        let failed =
            self.past.iter().filter(in_window).filter(|past| !past.is_good).count() + self.requeued.len();
        let all = ended + failed as u64;
        let success = if all == 0 { 100 } else { (100 * ended).div_ceil(all) };
        let retries = self.requeued.iter().map(|(_, attempts)| u64::from(*attempts)).sum();
        let size = if count > 0.0 { good().map(|past| past.bytes as f64).sum::<f64>() / count } else { 0.0 };
        let ema = match self.before {
            Some(before) if has_memory && rate > 0.0 => ALPHA * rate + (1.0 - ALPHA) * before.ema,
            Some(before) if has_memory => before.ema,
            _ => rate,
        };
        let is_same = self.before.is_some_and(|before| before.success == success && before.ema == ema);
        let changed_at = self.before.filter(|_| is_same).map_or(now, |before| before.changed_at);
        Seen { success, ema, retries, size, changed_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    fn sample(decided: u32, waiting: u32, mode: u8) -> Sample {
        let range = Range { min: 2, max: 130, mode, is_specific: false };
        Sample {
            link: LinkId(0),
            source: 0,
            destination: 1,
            range,
            limit: decided,
            waiting,
            bytes: 0.0,
            marker_s: 1.0,
            slot_s: 0.0,
            finished: 0,
            failed: 0,
            is_down: false,
            rate_share: 0.0,
        }
    }

    /// An optimiser after so many minutes in each of which ten files of ten seconds have ended, so many of them badly.
    fn after(has_memory: bool, minutes: &[(u64, u32)], waiting: u32) -> Vec<u32> {
        let mut fts = Fts::new(has_memory);
        let (mut limit, mut number, mut decided) = (0, 0, Vec::new());
        for (minute, &(bytes, bad)) in minutes.iter().enumerate() {
            let at = |second: u64| Time::from_origin(Duration::from_secs(60 * minute as u64 + second));
            for file in 0..10 {
                number += 1;
                fts.started(FileId(number), LinkId(0), at(10));
                fts.ended(FileId(number), Some(file >= bad), bytes, at(20));
            }
            for decision in fts.look(at(60), &[sample(limit, waiting, 2)]) {
                limit = decision.to;
            }
            decided.push(limit);
        }
        decided
    }

    #[test]
    fn it_begins_in_the_middle_and_needs_half_an_hour_to_the_top() {
        let minutes = [(10 * MB, 0); 35];
        let decided = after(false, &minutes, 100_000);
        assert_eq!(decided[..4], [66, 68, 70, 72]);
        assert_eq!((decided[31], decided[32], decided[34]), (128, 130, 130), "10.7");
    }

    #[test]
    fn failures_take_one_a_minute() {
        let decided = after(false, &[(MB, 1); 4], 100_000);
        assert_eq!(decided, [66, 65, 64, 63]);
        assert_eq!(after(false, &[(MB, 0); 3], 10), [66, 66, 66], "the queue empties");
    }

    #[test]
    fn what_remembers_notices_that_rates_fall_and_what_forgets_does_not() {
        let mut minutes = vec![(1000 * MB, 0); 6];
        minutes.extend(vec![(MB, 0); 12]);
        let (kept, lost) = (after(true, &minutes, 100_000), after(false, &minutes, 100_000));
        assert!(kept.windows(2).skip(8).all(|pair| pair[1] <= pair[0] + 2));
        assert!(kept.last() < lost.last(), "{kept:?} {lost:?}");
        assert_eq!(lost.last(), Some(&(66 + 2 * 17)));
    }

    #[test]
    fn a_limit_of_a_storage_can_take_all_and_begins_in_the_middle_again() {
        let mut pair = Pair { decided: 1, ..Pair::default() };
        let over = Sample { rate_share: 1.5, ..sample(1, 1000, 2) };
        assert_eq!(pair.step(&over, Time::ZERO, true), (0, 2));
        pair.decided = 0;
        assert_eq!(pair.step(&over, Time::ZERO, true), (66, 0));
    }
}

//! The optimiser of the service.
//!
//! Time goes in rounds, the same for all links: a while in which a change takes effect, and a while in which rates are measured. So
//! links that begin together double together, and those behind one bottleneck see together that it does not help.
//!
//! A *unit* is one link, or several that share a bottleneck: its copies are one budget, of which each link has an equal part, or as
//! many as it has files.
//!
//! - **Ramp.** The budget is doubled each round as long as the rate rises.
//! - **Trim.** Then it is made smaller as long as the rate stays: a path that is full is full with fewer.
//! - **Settled.** It stays. After a rest, which gets longer each time that it is in vain, more are tried for a round.
//! - **Trial.** A round with more, and a round with as many as before: what the unit has gained, and what others have lost and got
//!   back, tells of a better number, or of a bottleneck that they share: then they become one unit.
//!
//! A unit that ramps while others are settled looks at what they lose, as well: what is taken from them is no gain.
//! Nothing is concluded from a round in which a link had fewer copies than it might, since the rate was that of its files.

use std::collections::BTreeMap;
use std::time::Duration;

use gridlane_core::Time;
use gridlane_core::limits::{
    OPTIMIZER_GROUP_MEMORY, OPTIMIZER_MEASURE, OPTIMIZER_MEMORY, OPTIMIZER_REST, OPTIMIZER_REST_MAX,
    OPTIMIZER_SETTLE,
};

use super::decision::{Decision, Level, Reason, Sample};
use crate::queue::LinkId;
use crate::rules::Range;

/// Copies of a link to begin with.
const START: u32 = 4;
/// A doubling is worth it that brings so much more.
const GAIN: f64 = 0.05;
/// Fewer copies are as good that bring no less than this.
const AS_GOOD: f64 = 0.975;
/// A link's loss is one that is more than this part of its rate.
const LOSS: f64 = 0.04;
/// And more than so many times its usual changes.
const LOSS_NOISES: f64 = 2.5;
/// The loss of all others together is one that is more than so many times its usual changes.
const ALL_NOISES: f64 = 2.0;
/// What others lose is held against a gain from this part of it on.
const STOLEN: f64 = 0.4;
/// A rate is another one that differs by this part.
const CHANGE: f64 = 0.25;
/// In so many rounds one after the other.
const CHANGE_ROUNDS: u32 = 2;
/// A link uses its copies if so many of them run on average.
const BUSY: f64 = 0.75;
/// The share of copies that fail from which on there are too many.
const FAILING: f64 = 0.3;
/// Copies that must have failed in a round for that.
const FAILED_MIN: u64 = 3;
/// Of fewer units than this, each may have to do with each.
const FEW: usize = 32;
/// Copies that a trial adds at most.
const TRIAL_MAX: u32 = 32;

/// The part of the round that ends next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    #[default]
    Settle,
    Measure,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    at: Time,
    slot_s: f64,
    finished: u64,
    failed: u64,
}

/// A link that has something to do.
#[derive(Debug)]
struct Member {
    unit: u32,
    source: u32,
    destination: u32,
    range: Range,
    limit: u32,
    mark: Option<Mark>,
    /// Of the last round and the one before, in bytes per second.
    rate: f64,
    rate_before: Option<f64>,
    /// Usual changes from round to round, as part of the rate.
    noise: f64,
    /// Copies on average.
    copies: f64,
    is_busy: bool,
    was_busy: bool,
    is_down: bool,
    failing: f64,
    rate_share: f64,
}

#[derive(Debug)]
enum Phase {
    /// With the level before the last doubling, and the largest number that is known to be too small.
    Ramp {
        before: Option<Level>,
        floor: u32,
    },
    Trim {
        good: Level,
        floor: u32,
    },
    Settled {
        rate: f64,
        odd_rounds: u32,
    },
    Up {
        base: Level,
    },
    /// Back from so many bytes per second; links that lost meanwhile, with what they had and lost.
    Back {
        base: Level,
        up: f64,
        losses: Vec<Loss>,
    },
}

/// The change of a link that had as many copies as before, in bytes per second.
#[derive(Clone, Copy, Debug)]
struct Loss {
    link: LinkId,
    before: f64,
    /// Less than nothing if it gained.
    lost: f64,
    /// Its usual change.
    noise: f64,
}

impl Loss {
    /// True if the link alone shows it.
    fn is_plain(&self) -> bool {
        self.lost > (LOSS * self.before).max(LOSS_NOISES * self.noise)
    }
}

/// The losses of others together, in bytes per second: of those that show it alone, or of all if that is more than chance.
fn stolen(losses: &[Loss]) -> f64 {
    let plain: f64 = losses.iter().filter(|loss| loss.is_plain()).map(|loss| loss.lost).sum();
    let total: f64 = losses.iter().map(|loss| loss.lost).sum();
    let noise = losses.iter().map(|loss| loss.noise * loss.noise).sum::<f64>().sqrt();
    if total > ALL_NOISES * noise { plain.max(total) } else { plain }
}

/// Links that have lost: plainly, or about as much as all have on average.
fn losers(losses: &[Loss]) -> Vec<LinkId> {
    let (lost, before) =
        losses.iter().fold((0.0, 0.0), |sums, loss| (sums.0 + loss.lost, sums.1 + loss.before));
    let is_one =
        |loss: &&Loss| loss.is_plain() || loss.lost * before > 0.4 * lost * loss.before && lost > 0.0;
    losses.iter().filter(is_one).map(|loss| loss.link).collect()
}

#[derive(Debug)]
struct Unit {
    members: Vec<LinkId>,
    budget: u32,
    phase: Phase,
    /// No trial, and no other reaction to a change of the rate, before this.
    rest_until: Time,
    rest: Duration,
    /// When its links were last seen to share a bottleneck.
    grouped_at: Time,
}

/// The result of a unit's round: the budget and why, or a group with others.
enum Step {
    Stay,
    Budget(u32, Reason),
    Join(Vec<LinkId>),
}

/// The optimiser.
#[derive(Debug, Default)]
pub(crate) struct Ours {
    members: BTreeMap<LinkId, Member>,
    units: BTreeMap<u32, Unit>,
    units_made: u32,
    part: Part,
    measured_at: Time,
    next_at: Time,
    /// Links that are idle: copies at once, and since when.
    idle: BTreeMap<LinkId, (u32, Time)>,
}

impl Ours {
    pub(crate) fn next_at(&self) -> Time {
        self.next_at
    }

    pub(crate) fn measures_since(&self) -> Option<Time> {
        (self.part == Part::Measure).then_some(self.measured_at)
    }

    pub(crate) fn first(&self, link: LinkId, range: Range) -> u32 {
        let known = self.idle.get(&link).map_or(START, |(copies, _)| *copies);
        known.clamp(range.min, range.max)
    }

    pub(crate) fn forget(&mut self, link: LinkId) {
        self.idle.remove(&link);
        self.leave(link);
    }

    pub(crate) fn group(&self, link: LinkId) -> Vec<LinkId> {
        let unit = self.members.get(&link).and_then(|member| self.units.get(&member.unit));
        unit.map_or_else(|| vec![link], |unit| unit.members.clone())
    }

    pub(crate) fn look(&mut self, now: Time, samples: &[Sample]) -> Vec<Decision> {
        if now < self.next_at {
            return Vec::new();
        }
        match self.part {
            Part::Settle => {
                // Two reports of each copy: the first may be of before.
                let marker_s = samples.first().map_or(0.0, |sample| sample.marker_s);
                let two = Duration::from_secs_f64(2.0 * marker_s).saturating_sub(OPTIMIZER_SETTLE);
                (self.part, self.measured_at) = (Part::Measure, now);
                self.next_at = now + OPTIMIZER_MEASURE.max(two);
                self.mark(now, samples);
                Vec::new()
            }
            Part::Measure => {
                (self.part, self.next_at) = (Part::Settle, now + OPTIMIZER_SETTLE);
                self.measure(now, samples);
                self.decide(now)
            }
        }
    }

    /// The measurement begins: links that are new or idle come and go.
    fn mark(&mut self, now: Time, samples: &[Sample]) {
        let busy: BTreeMap<LinkId, &Sample> = samples.iter().map(|sample| (sample.link, sample)).collect();
        let gone: Vec<LinkId> =
            self.members.keys().copied().filter(|link| !busy.contains_key(link)).collect();
        for link in gone {
            if let Some(member) = self.members.get(&link) {
                self.idle.insert(link, (member.limit, now));
                self.make_room(link, now);
            }
            self.leave(link);
        }
        self.idle.retain(|_, (_, since)| now.since(*since) < OPTIMIZER_MEMORY);
        for sample in samples {
            if !self.members.contains_key(&sample.link) {
                self.join(sample, now);
            }
            if let Some(member) = self.members.get_mut(&sample.link) {
                member.range = sample.range;
                member.limit = sample.limit;
                member.mark = Some(Mark {
                    at: now,
                    slot_s: sample.slot_s,
                    finished: sample.finished,
                    failed: sample.failed,
                });
            }
        }
    }

    /// A unit of its own for a link that has something to do.
    fn join(&mut self, sample: &Sample, now: Time) {
        self.idle.remove(&sample.link);
        let unit =
            self.new_unit(vec![sample.link], sample.limit, Phase::Ramp { before: None, floor: 0 }, now);
        self.members.insert(
            sample.link,
            Member {
                unit,
                source: sample.source,
                destination: sample.destination,
                range: sample.range,
                limit: sample.limit,
                mark: None,
                rate: 0.0,
                rate_before: None,
                noise: 0.02,
                copies: 0.0,
                is_busy: false,
                was_busy: false,
                is_down: false,
                failing: 0.0,
                rate_share: 0.0,
            },
        );
    }

    fn new_unit(&mut self, members: Vec<LinkId>, budget: u32, phase: Phase, now: Time) -> u32 {
        self.units_made += 1;
        let unit = Unit { members, budget, phase, rest_until: now, rest: OPTIMIZER_REST, grouped_at: now };
        self.units.insert(self.units_made, unit);
        self.units_made
    }

    /// A link leaves its unit. Those that stay have its copies: the bottleneck is the same.
    fn leave(&mut self, link: LinkId) {
        let Some(member) = self.members.remove(&link) else { return };
        if let Some(unit) = self.units.get_mut(&member.unit) {
            unit.members.retain(|other| *other != link);
            if unit.members.is_empty() {
                self.units.remove(&member.unit);
            }
        }
    }

    /// A link that leaves its storages leaves room to others there, which do not rest for long then.
    fn make_room(&mut self, link: LinkId, now: Time) {
        let Some(gone) = self.members.get(&link) else { return };
        let is_near = |other: &LinkId| {
            let other = self.members.get(other);
            other.is_some_and(|it| it.source == gone.source || it.destination == gone.destination)
        };
        for unit in self.units.values_mut().filter(|unit| unit.members.iter().any(is_near)) {
            unit.rest = OPTIMIZER_REST;
            unit.rest_until = unit.rest_until.min(now + OPTIMIZER_REST / 4);
        }
    }

    /// The measurement ends.
    fn measure(&mut self, now: Time, samples: &[Sample]) {
        for member in self.members.values_mut() {
            member.was_busy = member.is_busy;
            member.rate_before = member.mark.is_some().then_some(member.rate);
            member.is_busy = false;
        }
        for sample in samples {
            let Some(member) = self.members.get_mut(&sample.link) else { continue };
            let Some(mark) = member.mark.take() else { continue };
            let seconds = now.since(mark.at).as_secs_f64().max(1e-3);
            let (finished, failed) = (sample.finished - mark.finished, sample.failed - mark.failed);
            member.failing =
                if failed < FAILED_MIN { 0.0 } else { failed as f64 / (finished + failed).max(1) as f64 };
            // What fails is moved again.
            member.rate = sample.bytes / seconds * (1.0 - member.failing);
            member.copies = (sample.slot_s - mark.slot_s) / seconds;
            member.is_down = sample.is_down;
            member.rate_share = sample.rate_share;
            member.range = sample.range;
            member.is_busy = sample.waiting > 0
                && !sample.is_down
                && member.copies >= BUSY * f64::from(sample.limit) - 0.5;
        }
    }

    /// Changes in this round of links that had as many copies as before.
    fn losses(&self) -> Vec<Loss> {
        let steady = self.members.iter().filter(|(_, member)| {
            let phase = self.units.get(&member.unit).map(|unit| &unit.phase);
            member.is_busy && member.was_busy && matches!(phase, Some(Phase::Settled { .. }))
        });
        steady
            .filter_map(|(link, member)| {
                let before = member.rate_before?;
                let noise = member.noise * before;
                Some(Loss { link: *link, before, lost: before - member.rate, noise })
            })
            .collect()
    }

    fn decide(&mut self, now: Time) -> Vec<Decision> {
        let losses = self.losses();
        let is_calm = self.units.values().all(|unit| matches!(unit.phase, Phase::Settled { .. }));
        if is_calm {
            for member in self.members.values_mut().filter(|member| member.is_busy && member.was_busy) {
                if let Some(before) = member.rate_before.filter(|before| *before > 0.0) {
                    let change = ((member.rate - before) / before).abs().min(1.0);
                    member.noise += 0.2 * (change - member.noise);
                }
            }
        }
        let ids: Vec<u32> = self.units.keys().copied().collect();
        let mut decisions = Vec::new();
        for id in ids {
            // It may have become part of another one.
            let Some(mut unit) = self.units.remove(&id) else { continue };
            let may_try = !self.is_restless(&unit);
            let (losses, movers) = self.concerning(&unit, &losses);
            let step = unit.step(&self.members, &losses, movers, may_try, now);
            let why = match step {
                Step::Stay if unit.members.len() > 1 => Reason::Shared(unit.members.len(), unit.budget),
                Step::Stay => Reason::Range,
                Step::Budget(budget, why) => {
                    unit.budget = budget;
                    why
                }
                Step::Join(others) => self.merge(&mut unit, &others, now),
            };
            if unit.members.len() > 1 && now.since(unit.grouped_at) >= OPTIMIZER_GROUP_MEMORY {
                self.dissolve(unit, now);
                continue;
            }
            self.share(id, &unit, &why, now, &mut decisions);
            self.units.insert(id, unit);
        }
        decisions
    }

    /// Busy links of other units that change their copies. Of many units there are always some: then those at the same storages count.
    fn moving<'a>(&'a self, unit: &'a Unit) -> impl Iterator<Item = &'a Member> {
        let units = self.units.values().filter(|other| !matches!(other.phase, Phase::Settled { .. }));
        let members = units.flat_map(|other| &other.members).filter_map(|link| self.members.get(link));
        members.filter(|member| member.is_busy && self.is_near(unit, member))
    }

    /// True if a link may have something to do with a unit: there are few, or they have a storage in common.
    fn is_near(&self, unit: &Unit, member: &Member) -> bool {
        self.units.len() < FEW
            || unit
                .members
                .iter()
                .filter_map(|link| self.members.get(link))
                .any(|my| my.source == member.source || my.destination == member.destination)
    }

    /// True if another unit changes its copies: a trial would not know whose doing it sees.
    fn is_restless(&self, unit: &Unit) -> bool {
        self.moving(unit).next().is_some()
    }

    /// Losses that may be a unit's doing, and the number of links whose doing they may be.
    fn concerning(&self, unit: &Unit, losses: &[Loss]) -> (Vec<Loss>, usize) {
        let near = losses.iter().filter(|loss| {
            let is_own = unit.members.contains(&loss.link);
            !is_own && self.members.get(&loss.link).is_some_and(|member| self.is_near(unit, member))
        });
        (near.copied().collect(), 1 + self.moving(unit).count())
    }

    /// The unit and those of other links become one.
    fn merge(&mut self, unit: &mut Unit, others: &[LinkId], now: Time) -> Reason {
        for link in others {
            let Some(other) = self.members.get(link).map(|member| member.unit) else { continue };
            let Some(mut other) = self.units.remove(&other) else { continue };
            unit.budget += other.budget;
            unit.members.append(&mut other.members);
        }
        let level = unit.level(&self.members);
        unit.grouped_at = now;
        // The first budget is what all had together: it is shared anew first, and then it is seen whether fewer are enough.
        unit.phase = Phase::Trim { good: level, floor: unit.members.len() as u32 };
        Reason::Shared(unit.members.len(), unit.budget)
    }

    /// Its links are on their own again, as they are.
    fn dissolve(&mut self, unit: Unit, now: Time) {
        for link in unit.members {
            let Some(member) = self.members.get(&link) else { continue };
            let phase = Phase::Settled { rate: member.rate, odd_rounds: 0 };
            let id = self.new_unit(vec![link], member.limit, phase, now);
            if let Some(member) = self.members.get_mut(&link) {
                member.unit = id;
            }
        }
    }

    /// Gives each link of a unit its part of the budget.
    fn share(&mut self, id: u32, unit: &Unit, why: &Reason, now: Time, decisions: &mut Vec<Decision>) {
        // Those that use less first: what they leave is for the others.
        let mut wants: Vec<(u32, LinkId)> = unit
            .members
            .iter()
            .filter_map(|link| {
                let member = self.members.get(link)?;
                let is_alone = unit.members.len() == 1;
                let needs = member.copies.ceil() as u32 + 1;
                // A little too much is left to it: what changes all the time is of no use to others.
                let needs = if (needs..=needs + 2).contains(&member.limit) { member.limit } else { needs };
                Some((if member.is_busy || is_alone { u32::MAX } else { needs }, *link))
            })
            .collect();
        wants.sort_unstable();
        let mut left = unit.budget;
        let count = wants.len() as u32;
        for (place, (needs, link)) in wants.into_iter().enumerate() {
            let Some(member) = self.members.get_mut(&link) else { continue };
            let part = left / (count - place as u32);
            let to = part.min(needs).clamp(member.range.min, member.range.max);
            left = left.saturating_sub(to);
            member.unit = id;
            if to != member.limit {
                let why = why.clone();
                decisions.push(Decision { link, at: now, from: member.limit, to, why });
                member.limit = to;
            }
        }
    }
}

impl Unit {
    /// Its copies and rate in the round that ends.
    fn level(&self, members: &BTreeMap<LinkId, Member>) -> Level {
        let rates = self.members.iter().filter_map(|link| members.get(link)).map(|member| member.rate);
        Level { copies: self.budget, bytes_per_s: rates.sum() }
    }

    fn settle(&mut self, rate: f64, now: Time) {
        self.rest_until = now + self.rest;
        self.phase = Phase::Settled { rate, odd_rounds: 0 };
    }

    /// The end of a round.
    fn step(
        &mut self,
        members: &BTreeMap<LinkId, Member>,
        losses: &[Loss],
        movers: usize,
        may_try: bool,
        now: Time,
    ) -> Step {
        let own: Vec<&Member> = self.members.iter().filter_map(|link| members.get(link)).collect();
        let (min, max) =
            own.iter().fold((0, 0), |(min, max), member| (min + member.range.min, max + member.range.max));
        let budget = self.budget;
        if budget < min || budget > max {
            return Step::Budget(budget.clamp(min, max), Reason::Range);
        }
        if min == max || own.iter().any(|member| member.is_down) {
            return Step::Stay;
        }
        let share = own.iter().map(|member| member.rate_share).fold(0.0, f64::max);
        if share > 1.02 {
            let fewer = (f64::from(budget) / share).floor() as u32;
            self.settle(self.level(members).bytes_per_s / share, now);
            return Step::Budget(fewer.clamp(min, budget), Reason::RateLimit(share));
        }
        let now_level = self.level(members);
        let failing = own.iter().map(|member| member.failing).fold(0.0, f64::max);
        if failing > FAILING && now_level.bytes_per_s > 0.0 && budget > min && now >= self.rest_until {
            let fewer = (budget * 3 / 4).max(min);
            self.settle(now_level.bytes_per_s, now);
            return Step::Budget(fewer, Reason::Failing(failing));
        }
        // Most of its links have as many copies as they may.
        let busy = own.iter().filter(|member| member.is_busy).count();
        if 2 * busy < own.len() || busy == 0 {
            if let Phase::Up { base } | Phase::Back { base, .. } = self.phase {
                self.settle(base.bytes_per_s, now);
                return Step::Budget(base.copies, Reason::Range);
            }
            return Step::Stay;
        }
        // Another doubling would be too much for a storage's limit of bytes per second.
        let may_grow = share < 0.9 && budget < max;
        self.judge(now_level, Bounds { min, max, may_grow, may_try, movers }, losses, members, now)
    }

    fn judge(
        &mut self,
        level: Level,
        bounds: Bounds,
        losses: &[Loss],
        members: &BTreeMap<LinkId, Member>,
        now: Time,
    ) -> Step {
        let Bounds { min, max, may_grow, may_try, movers } = bounds;
        let rate = level.bytes_per_s;
        match std::mem::replace(&mut self.phase, Phase::Settled { rate, odd_rounds: 0 }) {
            Phase::Ramp { before: None, floor } => self.grow(level, floor, may_grow, max, now),
            Phase::Ramp { before: Some(before), floor } => {
                let gain = rate - before.bytes_per_s;
                let lost = stolen(losses) / movers as f64;
                if gain < GAIN * before.bytes_per_s {
                    let good = Level { bytes_per_s: rate.max(before.bytes_per_s), ..before };
                    let to = self.trim(good, floor.max(min.saturating_sub(1)), now);
                    return Step::Budget(to, Reason::NoGain(level, before));
                }
                if lost >= STOLEN * gain {
                    // A trial of its own will tell.
                    self.settle(before.bytes_per_s, now);
                    self.rest_until = now;
                    return Step::Budget(before.copies, Reason::Suspicion(losers(losses).len()));
                }
                self.grow(level, before.copies, may_grow, max, now)
            }
            Phase::Trim { good, floor } => {
                if rate >= AS_GOOD * good.bytes_per_s {
                    let good = Level { copies: level.copies, ..good };
                    let to = self.trim(good, floor.max(min.saturating_sub(1)), now);
                    return if to == level.copies {
                        Step::Stay
                    } else {
                        Step::Budget(to, Reason::Fewer(level))
                    };
                }
                self.settle(good.bytes_per_s, now);
                Step::Budget(good.copies, Reason::TooFew(level, good))
            }
            Phase::Settled { rate: usual, odd_rounds } => {
                let is_odd = (rate - usual).abs() > CHANGE * usual;
                let odd_rounds = if is_odd { odd_rounds + 1 } else { 0 };
                let usual = if is_odd { usual } else { usual + 0.2 * (rate - usual) };
                self.phase = Phase::Settled { rate: usual, odd_rounds };
                let has_changed = odd_rounds >= CHANGE_ROUNDS;
                if now < self.rest_until || rate == 0.0 || !may_try || !may_grow || is_odd && !has_changed {
                    return Step::Stay;
                }
                let to = (2 * level.copies).min(level.copies + TRIAL_MAX).min(max);
                self.phase = Phase::Up { base: level };
                if has_changed {
                    self.rest = OPTIMIZER_REST;
                    return Step::Budget(to, Reason::Changed(rate, usual));
                }
                Step::Budget(to, Reason::Trial(level))
            }
            Phase::Up { base } => {
                self.phase = Phase::Back { base, up: rate, losses: losses.to_vec() };
                Step::Budget(base.copies, Reason::Compares(level))
            }
            Phase::Back { base, up, losses } => {
                let usual = (base.bytes_per_s + rate) / 2.0;
                let gain = up - usual;
                // Less noise than in one change: what was lost, and what was got back.
                let losses: Vec<Loss> = losses
                    .iter()
                    .filter_map(|loss| {
                        let back = members.get(&loss.link)?.rate - (loss.before - loss.lost);
                        Some(Loss { lost: (loss.lost + back) / 2.0, ..*loss })
                    })
                    .collect();
                let noise = own_noise(&self.members, members);
                if gain > noise && stolen(&losses) >= STOLEN * gain {
                    self.rest = OPTIMIZER_REST;
                    return Step::Join(losers(&losses));
                }
                let gain = gain - noise;
                if gain >= GAIN * usual && may_grow {
                    self.rest = OPTIMIZER_REST;
                    self.phase = Phase::Ramp { before: Some(base), floor: 0 };
                    return Step::Budget((2 * base.copies).min(max), Reason::Grows(base));
                }
                self.rest = (2 * self.rest).min(OPTIMIZER_REST_MAX);
                self.settle(usual, now);
                Step::Stay
            }
        }
    }

    /// More copies, if there may be more.
    fn grow(&mut self, level: Level, floor: u32, may_grow: bool, max: u32, now: Time) -> Step {
        if !may_grow {
            self.settle(level.bytes_per_s, now);
            return Step::Stay;
        }
        self.phase = Phase::Ramp { before: Some(level), floor };
        Step::Budget((2 * level.copies).min(max), Reason::Grows(level))
    }

    /// A quarter fewer copies than a good number, if that is not known to be too few: else it settles.
    fn trim(&mut self, good: Level, floor: u32, now: Time) -> u32 {
        let fewer = (good.copies * 3).div_ceil(4).min(good.copies.saturating_sub(1));
        if fewer <= floor || fewer == 0 {
            self.settle(good.bytes_per_s, now);
            return good.copies;
        }
        self.phase = Phase::Trim { good, floor };
        fewer
    }
}

/// The usual change of some links together, in bytes per second.
fn own_noise(links: &[LinkId], members: &BTreeMap<LinkId, Member>) -> f64 {
    let noises = links.iter().filter_map(|link| members.get(link)).map(|it| it.noise * it.rate);
    noises.map(|noise| noise * noise).sum::<f64>().sqrt()
}

/// The numbers that a unit may have.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    min: u32,
    max: u32,
    may_grow: bool,
    may_try: bool,
    /// Links that change their copies at the same time, itself included.
    movers: usize,
}

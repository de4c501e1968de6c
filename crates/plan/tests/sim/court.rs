//! The engine's part in judging: it holds a ledger and a file of real bytes, does what the judge wants, and tells what came of
//! it, late and in bits as a real one.

use std::collections::BTreeMap;
use std::time::Duration;

use gridlane_core::checksum::adler32;
use gridlane_core::{ByteRange, Checksum, ChecksumKind, RangeSet, Time};
use gridlane_plan::judge::{
    Action, Basis, Bytes, EARLIER, Event, Failure, Judge, Ledger, Piece, ReadBack, Scene, Sender, Terms, Why,
    adler32_of,
};
use gridlane_plan::{Outcome, Plan, SourceId, Stuck};

use super::liar::{Holding, When, checksum};
use super::{Sim, World};

/// Time between two ticks of the engine.
const TICK_S: f64 = 0.1;

/// The case to be judged.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) holdings: Vec<Holding>,
    pub(crate) terms: Terms,
    /// Time to compute a checksum, or to read the file back.
    pub(crate) reading_s: f64,
    /// An earlier run has left this part of the file, of that many bytes in all.
    pub(crate) earlier: Option<(Vec<u8>, u64)>,
    /// Another program changes a byte of the file when all are there, once.
    pub(crate) spoils: bool,
}

impl Case {
    pub(crate) fn new(holdings: Vec<Holding>) -> Case {
        let terms = Terms {
            checksum: None,
            require_verified: false,
            known: gridlane_plan::judge::Known::default(),
            patience: Duration::from_secs(60),
            in_order: false,
            is_own_word: false,
        };
        Case { holdings, terms, reading_s: 0.0, earlier: None, spoils: false }
    }
}

/// The end of a copy.
#[derive(Debug)]
pub(crate) struct Judged {
    /// Why it failed, if it did.
    pub(crate) result: Result<(), Ended>,
    pub(crate) verified: Option<Basis>,
    pub(crate) bytes: Vec<u8>,
    /// Sources that were named, with what was said, in order.
    pub(crate) named: Vec<(usize, Why)>,
    /// Sources that are not believed at the end.
    pub(crate) distrusted: Vec<usize>,
    pub(crate) received_bytes: u64,
    pub(crate) starts: u32,
    pub(crate) mismatches: u32,
    /// Number of calls of the judge and the plan.
    pub(crate) turns: u64,
    pub(crate) finish_s: f64,
}

#[derive(Debug)]
pub(crate) enum Ended {
    Failed(Failure),
    Stuck(Stuck),
    GaveUp,
}

/// Events on their way to the judge.
#[derive(Debug)]
enum Coming {
    Word { source: usize, is_strong: bool },
    Heard(Event),
    Read { ticket: u64, what: ReadBack },
    Committed(Piece),
    Dies { source: usize },
}

pub(super) struct Court {
    pub(super) case: Case,
    judge: Judge,
    pub(super) ledger: Ledger,
    pub(super) file: Vec<u8>,
    coming: Vec<(f64, u64, Coming)>,
    numbers: u64,
    identified: Vec<bool>,
    /// Bytes that each server has sent already.
    sent: Vec<RangeSet>,
    /// Parts of pieces that were wrong.
    wrong: BTreeMap<u64, Vec<Piece>>,
    awaits_whole: Vec<(usize, bool)>,
    was_spoiled: bool,
    next_tick_s: f64,
    pub(super) judged: Option<Judged>,
    named: Vec<(usize, Why)>,
    received_bytes: u64,
    starts: u32,
    mismatches: u32,
    turns: u64,
}

impl Court {
    pub(super) fn new(case: &Case) -> Court {
        let mut judge = Judge::new(case.terms.clone());
        for _ in &case.holdings {
            judge.add_source(Time::ZERO, true);
        }
        let pieces = case.terms.known.pieces.as_ref();
        let count = case.holdings.len();
        Court {
            ledger: Ledger::with_boundaries(pieces.map_or(0, |pieces| pieces.piece_bytes())),
            judge,
            file: Vec::new(),
            coming: Vec::new(),
            numbers: 0,
            identified: vec![false; count],
            sent: vec![RangeSet::new(); count],
            wrong: BTreeMap::new(),
            awaits_whole: Vec::new(),
            was_spoiled: false,
            next_tick_s: TICK_S,
            judged: None,
            named: Vec::new(),
            received_bytes: 0,
            starts: 0,
            mismatches: 0,
            turns: 0,
            case: case.clone(),
        }
    }

    fn later(&mut self, at_s: f64, coming: Coming) {
        self.numbers += 1;
        self.coming.push((at_s, self.numbers, coming));
    }

    fn ask(&mut self, now_s: f64, source: usize, is_strong: bool) {
        if self.judge.is_described() {
            self.judge.votes_mut().silent(source);
            return;
        }
        match self.case.holdings[source].answers {
            When::After(s) => self.later(now_s + s, Coming::Word { source, is_strong }),
            When::AfterWhole(_) => self.awaits_whole.push((source, is_strong)),
            When::Never => {}
        }
    }

    /// The time of the next event or deadline.
    pub(super) fn next_s(&self) -> f64 {
        let due = self.judge.deadline().map(|at| at.since_origin().as_secs_f64());
        let coming = self.coming.iter().map(|(at_s, ..)| *at_s);
        coming.chain(due).fold(self.next_tick_s, f64::min)
    }

    pub(super) fn size_bytes(&self) -> Option<u64> {
        self.judge.size_bytes()
    }

    /// The parts of `range` that are there, by the ledger.
    pub(super) fn there(&self, range: ByteRange) -> Vec<ByteRange> {
        let missing: RangeSet = self.ledger.missing_in(range).into_iter().collect();
        missing.missing(range)
    }

    fn end(&mut self, now_s: f64, result: Result<(), Ended>) {
        let distrusted = self.judge.members().iter().enumerate().filter(|(_, member)| member.is_distrusted);
        self.judged = Some(Judged {
            result,
            verified: self.judge.verified(),
            bytes: std::mem::take(&mut self.file),
            named: std::mem::take(&mut self.named),
            distrusted: distrusted.map(|(number, _)| number).collect(),
            received_bytes: self.received_bytes,
            starts: self.starts,
            mismatches: self.mismatches,
            turns: self.turns,
            finish_s: now_s,
        });
    }
}

impl World {
    pub(crate) fn judge(&self, case: &Case, servers: &[super::Server]) -> Judged {
        let mut sim = Sim::new(self, servers);
        sim.court = Some(Court::new(case));
        sim.hold_court()
    }
}

impl Sim<'_> {
    fn hold_court(mut self) -> Judged {
        self.begin();
        loop {
            self.attend();
            let court = self.court.as_mut().expect("it is held");
            if let Some(judged) = court.judged.take() {
                return judged;
            }
            if self.now_s >= self.world.give_up_s {
                court.end(self.now_s, Err(Ended::GaveUp));
                continue;
            }
            let flowed = self.flow();
            let next_s = self.next_s().min(self.court().next_s().max(self.now_s + self.world.step_s));
            self.now_s = if flowed { self.now_s + self.world.step_s } else { next_s };
            self.deliver_pending();
            self.break_and_blame();
            self.release();
        }
    }

    pub(super) fn court(&mut self) -> &mut Court {
        self.court.as_mut().expect("it is held")
    }

    fn begin(&mut self) {
        let earlier = self.court().case.earlier.clone();
        if let Some((bytes, size_bytes)) = earlier {
            let court = self.court();
            for (number, part) in bytes.chunks(50_000).enumerate() {
                let range = ByteRange::at(number as u64 * 50_000, part.len() as u64);
                court.ledger.restore(Piece { range, adler32: adler32(part), sender: EARLIER });
            }
            court.file = bytes;
            self.hear(Event::Continued { size_bytes: Some(size_bytes) });
        }
        let now_s = self.now_s;
        for source in 0..self.servers.len() {
            let court = self.court();
            court.ask(now_s, source, false);
            if let Some(at_s) = court.case.holdings[source].contradicts_itself_at_s {
                court.later(at_s, Coming::Dies { source });
            }
        }
        self.court().judge.agree_on_known();
        self.new_plan();
    }

    fn hear(&mut self, event: Event) {
        let now = self.now();
        let Some(court) = &mut self.court else { return };
        court.judge.handle(now, event, &mut Scene { plan: &self.plan, ledger: &mut court.ledger });
        while let Some(action) = self.court().judge.next_action() {
            self.comply(action);
        }
    }

    /// Everything that has come, and all that the plan and the judge want.
    fn attend(&mut self) {
        self.arrive();
        for turn in 0.. {
            if self.court().judged.is_some() {
                return;
            }
            assert!(turn < 1_000, "the judge never ends at {} s", self.now_s);
            self.court().turns += 1;
            self.obey();
            let now = self.now();
            let mut is_news = false;
            while let Some(action) = self.next_of_judge(now) {
                is_news = true;
                self.comply(action);
                if self.court().judged.is_some() {
                    return;
                }
            }
            if is_news {
                continue;
            }
            let Outcome::Stuck(why) = self.plan.outcome(now) else { return };
            let court = self.court.as_mut().expect("it is held");
            let scene = &mut Scene { plan: &self.plan, ledger: &mut court.ledger };
            if !court.judge.try_others(why, scene) {
                court.end(self.now_s, Err(Ended::Stuck(why)));
            }
            if !self.court().judge.wants() {
                return;
            }
        }
    }

    fn next_of_judge(&mut self, now: Time) -> Option<Action> {
        let court = self.court.as_mut().expect("it is held");
        court.judge.poll(now, &mut Scene { plan: &self.plan, ledger: &mut court.ledger })
    }

    fn arrive(&mut self) {
        let now_s = self.now_s;
        if self.court().next_tick_s <= now_s {
            self.court().next_tick_s = now_s + TICK_S;
            self.hear(Event::Tick);
        }
        loop {
            let court = self.court();
            let due = court.coming.iter().filter(|(at_s, ..)| *at_s <= now_s);
            let first =
                due.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))).map(|(_, number, _)| *number);
            let Some(first) = first else { return };
            let at = court.coming.iter().position(|(_, number, _)| *number == first).expect("it was there");
            let (.., coming) = court.coming.remove(at);
            self.comes(coming);
        }
    }

    fn comes(&mut self, coming: Coming) {
        match coming {
            Coming::Word { source, is_strong } => self.says(source, is_strong),
            Coming::Heard(event) => self.hear(event),
            Coming::Read { ticket, what } => {
                let answer = what.answer(&Bytes(&self.court().file));
                self.hear(Event::WasRead { ticket, answer });
            }
            Coming::Committed(piece) => self.commit(piece),
            Coming::Dies { source } => self.hear(Event::Died { source, forget: true }),
        }
    }

    fn says(&mut self, source: usize, is_strong: bool) {
        let now_s = self.now_s;
        if self.servers[source].is_silent(now_s) || self.servers[source].is_down(now_s) {
            return;
        }
        let court = self.court();
        let holding = &court.case.holdings[source];
        let sizes = holding.other_size_bytes.map(|asked| (holding.size_bytes, asked));
        let size_bytes = holding.other_size_bytes.unwrap_or(holding.size_bytes);
        let (says, strong) = (holding.says.clone(), holding.says_strong.clone());
        if is_strong {
            return self.hear(Event::SaidStrong { source, checksums: Some(strong) });
        }
        court.judge.votes_mut().heard(source, Time::ZERO.plus_s(now_s));
        if !std::mem::replace(&mut court.identified[source], true) {
            self.hear(Event::Identified { source, size_bytes: Some(size_bytes) });
        }
        self.hear(Event::TwoSizes { source, sizes });
        self.hear(Event::Said { source, checksums: says });
    }

    // --- Bytes -----------------------------------------------------------------------------------

    /// The size that a server tells with its bytes, and how many it has.
    pub(super) fn sizes_of(&self, source: usize) -> (u64, u64) {
        match &self.court {
            None => (self.world.size_bytes, self.world.size_bytes),
            Some(court) => {
                let holding = &court.case.holdings[source];
                (holding.size_bytes, holding.sends(self.now_s, false).len() as u64)
            }
        }
    }

    /// A head has come.
    pub(super) fn identify(&mut self, source: usize) {
        let (now_s, size_bytes) = (self.now_s, self.sizes_of(source).0);
        let court = self.court();
        if !std::mem::replace(&mut court.identified[source], true) {
            court.later(now_s, Coming::Heard(Event::Identified { source, size_bytes: Some(size_bytes) }));
        }
    }

    /// Bytes have come: how many of them were new.
    pub(super) fn take(&mut self, source: usize, arrived: ByteRange) -> u64 {
        let (now, now_s) = (self.now(), self.now_s);
        let court = self.court();
        court.received_bytes += arrived.len();
        court.judge.received(now, source, arrived.len());
        let is_again = !court.sent[source].intersection(arrived).is_empty();
        court.sent[source].insert(arrived);
        let parts = court.ledger.claim(arrived, source as Sender);
        let mut fresh_bytes = 0;
        for part in parts {
            fresh_bytes += part.len();
            let (start, end) = (part.start() as usize, part.end() as usize);
            let bytes = court.case.holdings[source].sends(now_s, is_again)[start..end].to_vec();
            court.file.resize(court.file.len().max(end), 0);
            court.file[start..end].copy_from_slice(&bytes);
            let pieces = court.case.terms.known.pieces.clone();
            let cut: Vec<ByteRange> = match &pieces {
                Some(pieces) => pieces.cut(part).collect(),
                None => vec![part],
            };
            let writes_s = court.case.holdings[source].writes_s;
            for range in cut {
                let from = (range.start() - part.start()) as usize;
                let sum = adler32(&bytes[from..from + range.len() as usize]);
                let piece = Piece { range, adler32: sum, sender: source as Sender };
                court.later(now_s + writes_s, Coming::Committed(piece));
            }
        }
        fresh_bytes
    }

    fn commit(&mut self, piece: Piece) {
        let court = self.court();
        court.ledger.commit(piece);
        let Some(pieces) = court.case.terms.known.pieces.clone() else { return };
        let index = pieces.index_of(piece.range.start());
        if court.ledger.is_committed(pieces.range(index)) {
            self.compare(index);
        }
    }

    /// Like the engine's lanes, but for the parts of wrong pieces: these compare them by SHA-256 as well.
    fn compare(&mut self, index: u64) {
        let court = self.court();
        let Some(pieces) = court.case.terms.known.pieces.clone() else { return };
        let range = pieces.range(index);
        let epoch = court.ledger.epoch(range.start());
        let found = checksum(pieces.kind(), &court.file[range.start() as usize..range.end() as usize]);
        if pieces.is_right(index, &found) {
            court.ledger.verify(range, epoch);
            if let Some(parts) = court.wrong.remove(&index) {
                let reader = Bytes(&court.file);
                let differs = |part: &&Piece| adler32_of(&reader, part.range, |_| {}) != Some(part.adler32);
                let doubtful = parts.iter().filter(|part| part.range != range).filter(differs);
                let mut liars: Vec<Sender> = doubtful.map(|part| part.sender).collect();
                liars.sort_unstable();
                liars.dedup();
                self.hear(Event::PieceMended { index, liars });
            }
        } else if let Some(parts) = court.ledger.reject(range, epoch).filter(|parts| !parts.is_empty()) {
            court.wrong.entry(index).or_default().extend(&parts);
            self.hear(Event::PieceWrong { index, parts });
        }
    }

    // --- What the judge wants --------------------------------------------------------------------

    fn comply(&mut self, action: Action) {
        let now_s = self.now_s;
        match action {
            Action::Plan(event) => {
                if let gridlane_plan::Event::Invalidate { not_from, .. } = &event {
                    // What they still send of it is not counted on.
                    let lanes = self.lanes.values_mut();
                    lanes
                        .filter(|lane| not_from.contains(&SourceId(lane.source as u32)))
                        .for_each(|lane| lane.is_discounted = true);
                }
                self.tell(event);
            }
            Action::Agree { size_bytes } => {
                self.is_size_known = true;
                self.tell(gridlane_plan::Event::SizeKnown { size_bytes });
            }
            Action::Stop { source, why } | Action::Name { source, why } => {
                self.court().named.push((source, why));
            }
            Action::Blame { source, count } => self.court().named.push((source, Why::WrongPieces(count))),
            Action::Revive { source } => self.court().ask(now_s, source, false),
            Action::AskStrong { source } => self.court().ask(now_s, source, true),
            Action::AskOthers => {
                let court = self.court();
                for (source, is_strong) in std::mem::take(&mut court.awaits_whole) {
                    if let When::AfterWhole(s) = court.case.holdings[source].answers {
                        court.later(now_s + s, Coming::Word { source, is_strong });
                    }
                }
            }
            Action::Settled(_) | Action::WrongPiece { .. } => {}
            Action::Mismatch { .. } => self.court().mismatches += 1,
            Action::ComparePieces => {
                let court = self.court();
                let size_bytes = court.size_bytes().unwrap_or(0);
                let pieces = court.case.terms.known.pieces.clone().expect("they are known");
                let rest = court.ledger.unverified(size_bytes);
                for index in rest.into_iter().flat_map(|range| pieces.touched(range)) {
                    if self.court().ledger.is_committed(pieces.range(index)) {
                        self.compare(index);
                    }
                }
                self.hear(Event::PiecesCompared);
            }
            Action::Hash { ticket, kinds } => {
                let court = self.court();
                let size_bytes = court.size_bytes().unwrap_or(0);
                court.file.truncate(size_bytes as usize);
                let of = |kind: ChecksumKind| match kind {
                    ChecksumKind::Adler32 => {
                        let sum = court.ledger.adler32(size_bytes);
                        Checksum::adler32(sum.expect("every byte is there that is hashed"))
                    }
                    kind => checksum(kind, &court.file),
                };
                let checksums = kinds.into_iter().map(of).collect();
                let reading_s = court.case.reading_s;
                court.later(now_s + reading_s, Coming::Heard(Event::Hashed { ticket, checksums }));
            }
            Action::ReadBack { ticket, what } => {
                let reading_s = self.court().case.reading_s;
                self.court().later(now_s + reading_s, Coming::Read { ticket, what });
            }
            Action::LookAtFile => {
                let court = self.court();
                let is_doubtful = court.case.spoils && !std::mem::replace(&mut court.was_spoiled, true);
                if let Some(byte) = court.file.first_mut().filter(|_| is_doubtful) {
                    *byte ^= 1;
                }
                let took = Duration::from_secs_f64(now_s);
                let reading_s = court.case.reading_s;
                court.later(now_s + reading_s, Coming::Heard(Event::Looked { is_doubtful, took }));
            }
            Action::CloseLanes => self.close_lanes(),
            Action::Restart => {
                self.court().file.clear();
                self.court().starts += 1;
            }
            Action::NewPlan => self.new_plan(),
            Action::Finish => {
                let size_bytes = self.court().size_bytes().unwrap_or(0);
                self.court().file.truncate(size_bytes as usize);
                self.court().end(now_s, Ok(()));
            }
            Action::Fail(failure) => self.court().end(now_s, Err(Ended::Failed(failure))),
        }
    }

    /// Lanes end behind the write that they are in, and tell the last of what they know.
    fn close_lanes(&mut self) {
        self.lanes.clear();
        self.pending.clear();
        let now = self.now();
        let court = self.court();
        let mut last: Vec<Event> = Vec::new();
        let (written, others) = std::mem::take(&mut court.coming).into_iter().partition(|(_, _, coming)| {
            matches!(coming, Coming::Committed(_) | Coming::Heard(Event::Identified { .. }))
        });
        court.coming = others;
        for (_, _, coming) in written {
            match coming {
                Coming::Committed(piece) => court.ledger.commit(piece),
                Coming::Heard(event) => last.push(event),
                _ => {}
            }
        }
        for source in 0..court.case.holdings.len() {
            let holding = &mut court.case.holdings[source];
            if std::mem::take(&mut holding.contradicts_itself_at_last) {
                last.push(Event::Died { source, forget: true });
            }
        }
        last.push(Event::LanesClosed);
        for event in last {
            let court = self.court.as_mut().expect("it is held");
            court.judge.handle(now, event, &mut Scene { plan: &self.plan, ledger: &mut court.ledger });
        }
    }

    /// The same as the engine's: over the pieces of the ledger.
    fn new_plan(&mut self) {
        let now = self.now();
        self.plan = Plan::new(self.world.settings.clone());
        let court = self.court.as_mut().expect("it is held");
        for (number, member) in court.judge.members().iter().enumerate() {
            self.plan.add_source(now);
            if member.is_dead {
                self.plan.handle(now, gridlane_plan::Event::SourceDead { source: SourceId(number as u32) });
            }
        }
        for piece in court.ledger.pieces() {
            self.plan.handle(now, gridlane_plan::Event::AlreadyDone { range: piece.range });
        }
        self.is_size_known = court.judge.size_bytes().is_some();
        if let Some(size_bytes) = court.judge.size_bytes() {
            self.plan.handle(now, gridlane_plan::Event::SizeKnown { size_bytes });
        }
    }
}

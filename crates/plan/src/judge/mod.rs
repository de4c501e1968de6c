//! Which bytes are right, which source lied, and what has to be fetched again.
//!
//! Pure, as the [`Plan`] is: the engine tells what happened ([`Judge::handle`]) and when, asks what to do
//! ([`Judge::poll`], until it answers `None`), and wakes the judge at [`Judge::deadline`]. The plan decides which bytes are
//! fetched next on which lane; the judge takes bytes back from it. Both are run in the same simulator, with liars of every
//! kind (`tests/liars.rs`).
//!
//! # A copy, as the judge sees it
//!
//! 1. *Moving*: bytes come. Sources state sizes and checksums, which are [`Votes`]. The size of the first one counts until
//!    more state another one: then the copy starts over. What more than half state already is settled, and those that state
//!    something else are stopped. Pieces with checksums of their own are compared by the lanes, and wrong ones are fetched again.
//! 2. *Settling*: the plan is complete. Lanes that write still are waited for, and what is missing all the same goes back to the
//!    plan.
//! 3. *Hearing*: every byte is there, and checksums of all kinds that any source states are computed. Words that could change
//!    the verdict are waited for.
//! 4. *Right*, *wrong* or *neither*. When the bytes are wrong, what an earlier run has left is fetched again first; then one
//!    set of senders after the other is believed, and the bytes of all others are fetched again (`suspects`). When they
//!    are right at last, those are named whose bytes had been others (`thrown`).
//! 5. *Fit*: the file is looked at, and read back where there is a reason to.
//! 6. *Closing*: lanes are closed before the target becomes visible. Something that they tell at the last moment still
//!    counts: bytes of a source that contradicts itself, and that no checksum says to be right, are fetched again from the
//!    others.
//!
//! # What it promises
//!
//! With every liar that `tests/liars.rs` knows, and as long as most sources that state a checksum are honest and live: the copy
//! ends with the right bytes; no source is named that did not lie; and no more bytes are fetched than a bound that does not
//! depend on the order of events.
//!
//! # Reading order
//!
//! `event` (what goes in and out), [`votes`](Votes), `phase` and `comparing` (the way from the last byte to the end), `words`,
//! `sizes`, `doubts`, `pieces`; below them the [`Ledger`], `known`, `suspects`, `thrown`, `wrong_pieces`.

mod comparing;
mod doubts;
mod event;
mod finding;
mod known;
mod ledger;
mod phase;
mod pieces;
mod sizes;
mod suspects;
mod terms;
mod thrown;
mod votes;
mod words;
mod wrong_pieces;

use std::collections::VecDeque;

use gridlane_core::{ByteRange, Checksum, ChecksumKind, Time};

use crate::{Plan, SourceId};

pub use event::{Action, Event};
pub use finding::{Basis, Failure, Hopeless, Why};
pub use known::{Known, PieceHashes};
pub use ledger::{EARLIER, Ledger, Piece, Sender};
pub use terms::{Member, Terms, kinds};
pub use thrown::{Answer, Bytes, ReadBack, Reader, Thrown, adler32_of};
pub use votes::{Found, Split, Verdict, Votes, first_answer_max, reading_max};

use phase::Phase;
use suspects::Suspects;
use wrong_pieces::WrongPieces;

/// The things that the judge looks at, beside what it is told.
#[derive(Debug)]
pub struct Scene<'a> {
    /// The plan, which is told nothing by the judge itself: see [`Action::Plan`].
    pub plan: &'a Plan,
    /// The bytes of the target. Lanes write into it meanwhile.
    pub ledger: &'a mut Ledger,
}

/// Judges one copy.
///
/// The order of calls: [`add_source`](Judge::add_source) for each replica, in the order in which the plan knows them; then again
/// and again [`handle`](Judge::handle) what happened, and [`poll`](Judge::poll) until it answers `None`, doing what it says
/// at once. When the plan is stuck, [`try_others`](Judge::try_others) may still know a way.
#[derive(Debug)]
pub struct Judge {
    terms: Terms,
    votes: Votes,
    members: Vec<Member>,
    /// The latest time that was passed in.
    now: Time,
    /// The agreed size.
    size_bytes: Option<u64>,
    phase: Phase,
    actions: VecDeque<Action>,
    /// Names questions that wait for an answer.
    tickets: u64,
    /// Counts how often bytes were taken from the ledger. An answer about bytes that were there before is not used.
    changes: u64,
    /// Bytes of an earlier run that are used.
    resumed_bytes: u64,
    /// Where these are; nowhere once they were thrown away, or where something else proves them.
    earlier: Vec<ByteRange>,
    /// The sources were asked for strong checksums because of them.
    is_compared_strongly: bool,
    /// Counts how often the file was read back and had other bytes than had come.
    damages: u32,
    /// Bytes that came in this run and were thrown away.
    wrong_bytes: u64,
    wrong_pieces: WrongPieces,
    /// Bytes of these that are there, as the plan was told last.
    there_bytes: u64,
    suspects: Option<Suspects>,
    /// The bytes that were thrown away while looking for the liar.
    thrown: Vec<Thrown>,
    /// The checksums that the bytes had and should have had when they were last wrong.
    mismatch: Option<(Checksum, Checksum)>,
    verified: Option<Basis>,
    /// The kinds of checksums that the bytes were compared with and have.
    verified_with: Vec<ChecksumKind>,
    /// The checksum that was compared.
    checksum: Option<Checksum>,
    /// All checksums of the bytes that were computed to compare them.
    compared: Vec<Checksum>,
    /// The kind of checksum that was asked for, when no source states one.
    unstated: Option<ChecksumKind>,
    /// The bytes are wrong, and there are no right ones: not to be resumed.
    is_worthless: bool,
    /// Every byte is there and is being compared.
    is_verifying: bool,
}

impl Judge {
    /// A judge of a copy without sources.
    pub fn new(terms: Terms) -> Judge {
        Judge {
            votes: Votes::new(terms.patience),
            terms,
            members: Vec::new(),
            now: Time::ZERO,
            size_bytes: None,
            phase: Phase::Moving,
            actions: VecDeque::new(),
            tickets: 0,
            changes: 0,
            resumed_bytes: 0,
            earlier: Vec::new(),
            is_compared_strongly: false,
            damages: 0,
            wrong_bytes: 0,
            wrong_pieces: WrongPieces::default(),
            there_bytes: 0,
            suspects: None,
            thrown: Vec::new(),
            mismatch: None,
            verified: None,
            verified_with: Vec::new(),
            checksum: None,
            compared: Vec::new(),
            unstated: None,
            is_worthless: false,
            is_verifying: false,
        }
    }

    /// Adds a source, which has a vote if a person named it; its number is the next one. It is asked at `now`.
    pub fn add_source(&mut self, now: Time, has_vote: bool) -> usize {
        self.members.push(Member { is_served: !has_vote, ..Member::default() });
        self.votes.add(now, has_vote)
    }

    /// Takes in what happened. Events about sources that were not added are ignored.
    pub fn handle(&mut self, now: Time, event: Event, scene: &mut Scene<'_>) {
        self.now = self.now.max(now);
        match event {
            Event::Identified { source, size_bytes } => self.identified(source, size_bytes, scene),
            Event::Said { source, checksums } => self.said(source, checksums, scene),
            Event::SaidStrong { source, checksums } => self.said_strong(source, checksums, scene),
            Event::States { source, checksums } => self.states(source, checksums, scene),
            Event::TwoSizes { source, sizes } => self.with(source, |member| member.two_sizes = sizes),
            Event::Died { source, forget } => self.died(source, forget, scene),
            Event::PieceWrong { index, parts } => self.piece_is_wrong(index, &parts, scene),
            Event::PieceMended { index, liars } => self.piece_is_mended(index, &liars, scene),
            Event::Continued { size_bytes } => self.continues(size_bytes, scene),
            // A lane may have told of bytes after they had turned out to be wrong.
            Event::Tick => {
                self.refetch_wrong_pieces(scene);
            }
            Event::PiecesCompared => self.pieces_were_compared(),
            Event::Hashed { ticket, checksums } => self.hashed(ticket, checksums),
            Event::WasRead { ticket, answer } => self.was_read(ticket, answer, scene),
            Event::Looked { is_doubtful, took } => self.looked(is_doubtful, took, scene),
            Event::LanesClosed => self.lanes_closed(scene),
        }
    }

    /// Bytes came from a source. Cheap: this is told with every read.
    pub fn received(&mut self, now: Time, source: usize, bytes: u64) {
        self.now = self.now.max(now);
        self.votes.heard(source, self.now);
        self.with(source, |member| member.received_bytes += bytes);
    }

    /// True if something follows at once from what was [handled](Judge::handle).
    pub fn wants(&self) -> bool {
        !self.actions.is_empty()
    }

    /// The next action that follows at once from what was [handled](Judge::handle).
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The next thing to do; `None`: nothing until something happens, or until [`deadline`](Judge::deadline).
    pub fn poll(&mut self, now: Time, scene: &mut Scene<'_>) -> Option<Action> {
        self.now = self.now.max(now);
        loop {
            if let Some(action) = self.actions.pop_front() {
                return Some(action);
            }
            // What was wanted has been done: the plan knows of it.
            if !self.advance(scene) {
                return self.actions.pop_front();
            }
        }
    }

    /// When [`poll`](Judge::poll) may answer something else although nothing has happened.
    pub fn deadline(&self) -> Option<Time> {
        match self.is_verifying {
            true => self.votes.deadline(self.now),
            false => None,
        }
    }

    // --- What is known ---------------------------------------------------------------------------

    /// The statements of the sources.
    pub fn votes(&self) -> &Votes {
        &self.votes
    }

    /// The statements of the sources: for news that are about words alone (a connection was made, a question was asked).
    pub fn votes_mut(&mut self) -> &mut Votes {
        &mut self.votes
    }

    /// The standing of the sources, by their numbers.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The agreed size of the file.
    pub fn size_bytes(&self) -> Option<u64> {
        self.size_bytes
    }

    /// Bytes of an earlier run that are used.
    pub fn resumed_bytes(&self) -> u64 {
        self.resumed_bytes
    }

    /// Bytes that came in this run and were thrown away.
    pub fn wrong_bytes(&self) -> u64 {
        self.wrong_bytes
    }

    /// By what the bytes are right, as far as that was found out.
    pub fn verified(&self) -> Option<Basis> {
        self.verified
    }

    /// The checksum that was compared.
    pub fn checksum(&self) -> Option<&Checksum> {
        self.checksum.as_ref()
    }

    /// The kind of checksum that was asked for, when no source states one.
    pub fn unstated(&self) -> Option<ChecksumKind> {
        self.unstated
    }

    /// True while every byte is there and is being compared.
    pub fn is_verifying(&self) -> bool {
        self.is_verifying
    }

    /// True if the bytes are wrong and no right ones are to be had, so that nothing of them is worth keeping.
    pub fn is_worthless(&self) -> bool {
        self.is_worthless
    }

    /// Notes that the bytes are not those of the file that is wanted.
    pub fn give_up_bytes(&mut self) {
        self.is_worthless = true;
    }

    /// The strongest kind of checksum that the bytes were compared with.
    pub fn verified_with(&self) -> Option<ChecksumKind> {
        let pieces = self.terms.known.pieces.as_ref().filter(|_| self.verified == Some(Basis::Metalink));
        let kinds = self.verified_with.iter().copied().chain(pieces.map(PieceHashes::kind));
        kinds.filter(|_| self.verified.is_some()).max_by_key(|kind| kind.strength())
    }

    /// Sources that may deliver: neither distrusted nor doubted at the moment.
    fn believed(&self) -> Vec<Sender> {
        let believed = self.members.iter().enumerate().filter(|(_, member)| member.is_believed());
        believed.map(|(number, _)| number as Sender).collect()
    }

    fn with(&mut self, source: usize, change: impl FnOnce(&mut Member)) {
        if let Some(member) = self.members.get_mut(source) {
            change(member);
        }
    }

    fn act(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    // --- Bytes that are fetched again ------------------------------------------------------------

    /// Takes no more bytes from sources that are not believed, and has what they sent fetched again. `true`
    /// when bytes are missing now.
    fn disbelieve(&mut self, scene: &mut Scene<'_>) -> bool {
        if self.terms.in_order {
            // What it has taken cannot be called back: only the checksum can tell whether it is right.
            return false;
        }
        let believed = self.believed();
        let everybody = 0..self.members.len() as Sender;
        scene.ledger.refuse(everybody.filter(|number| !believed.contains(number)).collect());
        let missing = scene.ledger.forget_refused();
        self.lost(&missing);
        let ranges: Vec<ByteRange> = missing.iter().map(|piece| piece.range).collect();
        self.refetch(&ranges, &believed);
        if self.suspects.is_some() {
            self.thrown.extend(missing.iter().copied().map(Thrown::from));
        }
        !missing.is_empty()
    }

    /// Counts pieces that were taken from the ledger.
    fn lost(&mut self, pieces: &[Piece]) {
        self.wrong_bytes += self.bytes_of_this_run(pieces);
        self.changes += u64::from(!pieces.is_empty());
    }

    fn bytes_of_this_run(&self, pieces: &[Piece]) -> u64 {
        let is_ours = |piece: &&Piece| (piece.sender as usize) < self.members.len();
        pieces.iter().filter(is_ours).map(|piece| piece.range.len()).sum()
    }

    /// Has ranges fetched again, from `believed` sources only.
    fn refetch(&mut self, missing: &[ByteRange], believed: &[Sender]) {
        let not_from: Vec<SourceId> =
            (0..self.members.len() as Sender).filter(|n| !believed.contains(n)).map(SourceId).collect();
        for range in missing {
            let event = crate::Event::Invalidate { range: *range, not_from: not_from.clone() };
            self.act(Action::Plan(event));
        }
    }

    /// The ledger knows best: a lane may have thrown away its copy of bytes that another source had brought,
    /// and told the plan that they are there, while that source's bytes were being forgotten.
    pub(super) fn refetch_missing(&mut self, scene: &mut Scene<'_>) -> bool {
        let missing = scene.ledger.missing(self.size_bytes.unwrap_or(0));
        let believed = self.believed();
        self.refetch(&missing, &believed);
        self.refetch_wrong_pieces(scene);
        !missing.is_empty()
    }

    // --- Sources that are not used any more ------------------------------------------------------

    /// A source is of no use any more; the engine has said why.
    fn died(&mut self, source: usize, forget: bool, scene: &mut Scene<'_>) {
        if forget {
            self.votes.discredit(source);
            // Whichever size counts in the end, it is not used again.
            self.with(source, |member| member.is_outvoted = false);
        }
        self.kill(source, None, forget, scene);
        self.recount_sizes();
    }

    /// Never uses a source again; with `forget`, nor what it sent. What it has stated stays a vote.
    fn kill(&mut self, source: usize, why: Option<Why>, forget: bool, scene: &mut Scene<'_>) {
        let Some(member) = self.members.get_mut(source) else { return };
        member.is_distrusted |= forget;
        let was_dead = std::mem::replace(&mut member.is_dead, true);
        if let Some(why) = why.filter(|_| !was_dead) {
            self.act(Action::Stop { source, why });
        }
        self.votes.silent(source);
        self.votes.silent_strong(source);
        self.act(Action::Plan(crate::Event::SourceDead { source: SourceId(source as u32) }));
        if forget {
            self.disbelieve(scene);
        }
        self.refetch_wrong_pieces(scene);
    }
}

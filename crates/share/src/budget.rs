//! What clients share: there is so much of it, and one client has a part of it at most.
//!
//! Connections, open files, turns at the disk, memory: whatever a server has a bounded number of, one client alone could
//! take all of, and nothing would be left for others. So each of these is a [`Budget`]: what is taken of it is a [`Lease`]
//! in some [`Holder`]'s name, and given back when that is dropped. A holder beyond its share is refused, or waits, while
//! others are served. Of those that wait, holders have their turns one after the other, however many requests each has.
//!
//! A holder is an IPv4 address or the first 64 bits of an IPv6 one, as everywhere ([`host_of`]). What the server does by
//! itself has no share. The holder for which a task works is known all along it ([`current`]), so that whatever takes of
//! a budget deep inside need not be told.
//!
//! All budgets, with their shares: docs/reference/budgets.md.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::task::futures::TaskLocalFuture;

use gridlane_core::limits;

/// Stands for a host, which has all the addresses behind the first 64 bits of an IPv6 one.
pub fn host_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
    }
}

/// The amount of something, and the part of it that one client has at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// For all.
    pub all: usize,
    /// For one client.
    pub one: usize,
}

impl Share {
    /// So much, and the usual part of it for one client.
    pub fn of(all: usize) -> Share {
        Share { all, one: (all / limits::CLIENT_PART).max(1) }
    }
}

/// The client on whose behalf something is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holder(Option<IpAddr>);

impl Holder {
    /// The server itself, which has no share.
    pub const SERVER: Holder = Holder(None);

    /// The client at an address.
    pub fn of(address: IpAddr) -> Holder {
        Holder(Some(host_of(address)))
    }
}

tokio::task_local! {
    /// The holder on whose behalf this task works.
    static HOLDER: Cell<Holder>;
}

/// The holder on whose behalf the current task works.
pub fn current() -> Holder {
    HOLDER.try_with(Cell::get).unwrap_or(Holder::SERVER)
}

/// Changes the holder of the current task: a proxy has named its client.
pub fn go_on_as(holder: Holder) {
    // A task without a holder stays without one.
    let _ = HOLDER.try_with(|cell| cell.set(holder));
}

/// A task on behalf of a holder.
pub fn on_behalf<F: Future>(holder: Holder, task: F) -> TaskLocalFuture<Cell<Holder>, F> {
    HOLDER.scope(Cell::new(holder), task)
}

/// The allowance that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Short {
    /// The holder's own share.
    Holder,
    /// All that there is.
    All,
}

/// A bounded amount of something.
pub struct Budget {
    name: &'static str,
    state: Mutex<State>,
    refused_holder: AtomicU64,
    refused_all: AtomicU64,
}

struct State {
    share: Share,
    used: usize,
    /// Amounts by holder, none of them 0.
    held: HashMap<Holder, usize>,
    /// Waiters by holder; no queue is empty.
    waiting: HashMap<Holder, VecDeque<Waiter>>,
    /// The holders that wait: the first has the next turn.
    turns: VecDeque<Holder>,
    /// Number of waiters in those queues, and of those among them that have left since the queues were tidied.
    in_lines: usize,
    left_lines: usize,
}

/// So many may have left before the lines are tidied.
const LEFT_LINES_MIN: usize = 16;

struct Waiter {
    amount: usize,
    tell: oneshot::Sender<Lease>,
}

/// A part of a budget, until this is dropped.
pub struct Lease {
    budget: Arc<Budget>,
    holder: Holder,
    amount: usize,
}

impl Budget {
    /// A budget of which nothing is taken.
    pub fn new(name: &'static str, share: Share) -> Arc<Budget> {
        let state = State {
            share,
            used: 0,
            held: HashMap::new(),
            waiting: HashMap::new(),
            turns: VecDeque::new(),
            in_lines: 0,
            left_lines: 0,
        };
        let (refused_holder, refused_all) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Budget { name, state: Mutex::new(state), refused_holder, refused_all })
    }

    /// Its name in the metrics.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Changes its size. What was taken stays so.
    pub fn resize(self: &Arc<Budget>, share: Share) {
        let mut state = self.lock();
        state.share = share;
        self.give(state);
    }

    /// Its size.
    pub fn share(&self) -> Share {
        self.lock().share
    }

    /// The amount that is taken.
    pub fn used(&self) -> usize {
        self.lock().used
    }

    /// Number of refusals because a holder's share was used up, and because all was.
    pub fn refused(&self) -> (u64, u64) {
        (self.refused_holder.load(Ordering::Relaxed), self.refused_all.load(Ordering::Relaxed))
    }

    /// Takes so much of it, if that is left.
    pub fn try_take(self: &Arc<Budget>, holder: Holder, amount: usize) -> Result<Lease, Short> {
        self.lock()
            .take(holder, amount)
            .map(|()| Lease { budget: Arc::clone(self), holder, amount })
            .inspect_err(|short| self.note(*short))
    }

    /// Waits until so much of it is left, or as much as one client may have at all. May be dropped.
    pub async fn take(self: &Arc<Budget>, holder: Holder, amount: usize) -> Lease {
        loop {
            let told = {
                let mut state = self.lock();
                let amount = amount.min(state.most(holder));
                if state.take(holder, amount).is_ok() {
                    return Lease { budget: Arc::clone(self), holder, amount };
                }
                let (tell, told) = oneshot::channel();
                let line = state.waiting.entry(holder).or_default();
                line.push_back(Waiter { amount, tell });
                if line.len() == 1 {
                    state.turns.push_back(holder);
                }
                state.in_lines += 1;
                told
            };
            let mut wait = Wait { budget: self, told, is_over: false };
            // A waiter is dropped only when it was told, or has left.
            if let Ok(lease) = (&mut wait.told).await {
                wait.is_over = true;
                return lease;
            }
        }
    }

    fn note(&self, short: Short) {
        match short {
            Short::Holder => &self.refused_holder,
            Short::All => &self.refused_all,
        }
        .fetch_add(1, Ordering::Relaxed);
    }

    /// Gives the rest to waiters.
    fn give(self: &Arc<Budget>, mut state: MutexGuard<'_, State>) {
        let mut given = Vec::new();
        while let Some((holder, waiter)) = state.next() {
            let lease = Lease { budget: Arc::clone(self), holder, amount: waiter.amount };
            given.push((waiter.tell, lease));
        }
        drop(state);
        for (tell, lease) in given {
            // A waiter that has left meanwhile gives its lease back, which needs the lock.
            drop(tell.send(lease));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete in itself.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the line, which is left when this is dropped: the next one may need less.
struct Wait<'a> {
    budget: &'a Arc<Budget>,
    told: oneshot::Receiver<Lease>,
    is_over: bool,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.told.close();
            let mut state = self.budget.lock();
            state.left_lines += 1;
            state.tidy();
            self.budget.give(state);
        }
    }
}

impl State {
    /// The largest amount that a holder may have.
    fn most(&self, holder: Holder) -> usize {
        if holder == Holder::SERVER { self.share.all } else { self.share.one.min(self.share.all) }
    }

    fn check(&self, holder: Holder, amount: usize) -> Result<(), Short> {
        if self.used.saturating_add(amount) > self.share.all {
            return Err(Short::All);
        }
        let held = self.held.get(&holder).copied().unwrap_or(0);
        if held.saturating_add(amount) > self.most(holder) {
            return Err(Short::Holder);
        }
        Ok(())
    }

    fn take(&mut self, holder: Holder, amount: usize) -> Result<(), Short> {
        self.check(holder, amount)?;
        self.used += amount;
        *self.held.entry(holder).or_default() += amount;
        Ok(())
    }

    fn release(&mut self, holder: Holder, amount: usize) {
        self.used = self.used.saturating_sub(amount);
        if let Some(held) = self.held.get_mut(&holder) {
            *held = held.saturating_sub(amount);
            if *held == 0 {
                self.held.remove(&holder);
            }
        }
    }

    /// Removes the waiters that have left the lines, when they are half of all: nothing else does while nothing is free.
    fn tidy(&mut self) {
        if self.left_lines < LEFT_LINES_MIN || self.left_lines * 2 < self.in_lines {
            return;
        }
        self.waiting.retain(|_, line| {
            line.retain(|waiter| !waiter.tell.is_closed());
            !line.is_empty()
        });
        let waiting = &self.waiting;
        self.turns.retain(|holder| waiting.contains_key(holder));
        self.in_lines = waiting.values().map(VecDeque::len).sum();
        self.left_lines = 0;
    }

    /// Takes for the next waiter for which enough is left.
    fn next(&mut self) -> Option<(Holder, Waiter)> {
        let mut turn = 0;
        while self.used < self.share.all
            && let Some(holder) = self.turns.get(turn).copied()
        {
            let mut line = self.waiting.remove(&holder).unwrap_or_default();
            while line.pop_front_if(|waiter| waiter.tell.is_closed()).is_some() {
                self.in_lines -= 1;
                self.left_lines = self.left_lines.saturating_sub(1);
            }
            let amount = line.front().map(|waiter| waiter.amount);
            let fits = amount.is_some_and(|amount| self.take(holder, amount).is_ok());
            let next = if fits { line.pop_front() } else { None };
            self.in_lines -= usize::from(next.is_some());
            if line.is_empty() || next.is_some() {
                self.turns.remove(turn);
            } else {
                turn += 1;
            }
            if !line.is_empty() {
                if next.is_some() {
                    self.turns.push_back(holder);
                }
                self.waiting.insert(holder, line);
            }
            if let Some(next) = next {
                return Some((holder, next));
            }
        }
        None
    }
}

impl Lease {
    /// The amount of the budget.
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// Makes it more, if that is left, or less.
    pub fn try_resize(&mut self, amount: usize) -> Result<(), Short> {
        match amount.checked_sub(self.amount) {
            Some(0) => {}
            Some(more) => {
                let taken = self.budget.lock().take(self.holder, more);
                taken.inspect_err(|short| self.budget.note(*short))?;
            }
            None => {
                let mut state = self.budget.lock();
                state.release(self.holder, self.amount - amount);
                self.budget.give(state);
            }
        }
        self.amount = amount;
        Ok(())
    }

    /// Hands it to another holder, if it is within that one's share.
    pub fn try_hand_to(&mut self, holder: Holder) -> Result<(), Short> {
        let mut state = self.budget.lock();
        state.release(self.holder, self.amount);
        let taken = state.take(holder, self.amount);
        if taken.is_ok() {
            self.holder = holder;
        } else {
            // It was there a moment ago, and the lock is held.
            state.used += self.amount;
            *state.held.entry(self.holder).or_default() += self.amount;
        }
        self.budget.give(state);
        taken.inspect_err(|short| self.budget.note(*short))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.budget.lock();
        state.release(self.holder, self.amount);
        self.budget.give(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::task::{Context, Poll, Waker};

    fn client(number: u8) -> Holder {
        Holder::of(IpAddr::from([192, 0, 2, number]))
    }

    fn budget(all: usize, one: usize) -> Arc<Budget> {
        Budget::new("test", Share { all, one })
    }

    #[test]
    fn one_has_its_share_and_others_theirs() {
        let budget = budget(10, 4);
        let mut ada: Vec<Lease> = (0..4).map(|_| budget.try_take(client(1), 1).ok().unwrap()).collect();
        assert_eq!(budget.try_take(client(1), 1).err(), Some(Short::Holder));
        let bob = budget.try_take(client(2), 4).ok().unwrap();
        // The server itself has no share, and what is left is for everybody.
        let server = budget.try_take(Holder::SERVER, 2).ok().unwrap();
        assert_eq!(budget.try_take(client(3), 1).err(), Some(Short::All));
        assert_eq!((budget.used(), budget.refused()), (10, (1, 1)));
        ada.pop();
        assert_eq!(budget.try_take(client(2), 1).err(), Some(Short::Holder));
        assert!(budget.try_take(client(3), 1).is_ok());
        drop((ada, bob, server));
        assert_eq!(budget.used(), 0);
        assert!(budget.lock().held.is_empty());
    }

    #[test]
    fn a_lease_grows_and_shrinks_and_changes_hands() {
        let budget = budget(10, 6);
        let mut lease = budget.try_take(client(1), 2).ok().unwrap();
        assert_eq!(lease.try_resize(6), Ok(()));
        assert_eq!(lease.try_resize(7), Err(Short::Holder));
        assert_eq!((lease.amount(), budget.used()), (6, 6));
        assert_eq!(lease.try_resize(3), Ok(()));
        let other = budget.try_take(client(2), 4).ok().unwrap();
        assert_eq!(lease.try_hand_to(client(2)), Err(Short::Holder));
        assert_eq!((budget.used(), budget.lock().held[&client(1)]), (7, 3));
        drop(other);
        assert_eq!(lease.try_hand_to(client(2)), Ok(()));
        assert_eq!(budget.lock().held.len(), 1);
        drop(lease);
        assert_eq!(budget.used(), 0);
    }

    /// The outcome of a wait by now.
    fn poll<F: Future>(wait: &mut std::pin::Pin<Box<F>>) -> Option<F::Output> {
        match wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn each_holder_has_a_turn_however_often_others_wait() {
        let budget = budget(2, 1);
        let held = [client(1), client(2)].map(|holder| budget.try_take(holder, 1).ok().unwrap());
        let mut ada: Vec<_> = (0..100).map(|_| Box::pin(budget.take(client(1), 1))).collect();
        assert!(ada.iter_mut().all(|wait| poll(wait).is_none()));
        let mut bob = Box::pin(budget.take(client(3), 1));
        assert!(poll(&mut bob).is_none());
        let [first, second] = held;
        // Ada's next is within her share, and one of hers waits for longer.
        drop(first);
        let hers = poll(&mut ada[0]).unwrap();
        assert!(poll(&mut bob).is_none());
        drop(second);
        // Now she has her share, and Bob is not behind the 99 others.
        let his = poll(&mut bob).unwrap();
        assert!(ada.iter_mut().skip(1).all(|wait| poll(wait).is_none()));
        // Waiters that have left are passed over.
        drop(ada.drain(1..50).collect::<Vec<_>>());
        drop(hers);
        assert!(poll(&mut ada[1]).is_some());
        drop((his, ada));
        assert_eq!((budget.used(), budget.lock().turns.len()), (0, 0));
    }

    #[test]
    fn a_wait_for_more_than_a_share_ends_with_the_share() {
        let budget = budget(10, 4);
        let lease = poll(&mut Box::pin(budget.take(client(1), 100))).unwrap();
        assert_eq!(lease.amount(), 4);
        budget.resize(Share { all: 3, one: 2 });
        assert_eq!(budget.try_take(client(2), 1).err(), Some(Short::All));
        let mut wait = Box::pin(budget.take(client(2), 1));
        assert!(poll(&mut wait).is_none());
        budget.resize(Share { all: 5, one: 2 });
        assert!(poll(&mut wait).is_some());
    }

    #[test]
    fn tasks_know_their_holder() {
        assert_eq!(current(), Holder::SERVER);
        let mut task = Box::pin(on_behalf(client(1), async {
            let before = current();
            go_on_as(client(2));
            (before, current())
        }));
        assert_eq!(poll(&mut task), Some((client(1), client(2))));
        assert_eq!(current(), Holder::SERVER);
    }

    #[test]
    fn waiters_that_have_left_take_no_room_though_nothing_becomes_free() {
        let budget = budget(1, 1);
        let held = budget.try_take(client(1), 1).ok().unwrap();
        let mut stays = Box::pin(budget.take(client(2), 1));
        assert!(poll(&mut stays).is_none());
        for number in 0..=255 {
            for _ in 0..10 {
                assert!(poll(&mut Box::pin(budget.take(client(number), 1))).is_none());
            }
            let state = budget.lock();
            assert!(state.in_lines <= 2 * LEFT_LINES_MIN && state.turns.len() <= 2 * LEFT_LINES_MIN);
            assert_eq!(state.in_lines, state.waiting.values().map(VecDeque::len).sum::<usize>());
        }
        drop(held);
        assert!(poll(&mut stays).is_some());
    }

    proptest! {
        /// No holder has more than its share, no more is taken than there is, and no waiter waits for what is left.
        #[test]
        fn sums_are_right(
            all in 1_usize..12,
            one in 1_usize..12,
            steps in proptest::collection::vec((0_u8..4, 1_usize..4, 0_usize..64), 1..200),
        ) {
            let budget = budget(all, one);
            let (mut leases, mut waits) = (Vec::<Lease>::new(), Vec::new());
            for (who, amount, choice) in steps {
                match choice % 4 {
                    0 => leases.extend(budget.try_take(client(who), amount)),
                    1 => waits.push((who, Box::pin(budget.take(client(who), amount)))),
                    2 if !leases.is_empty() => drop(leases.swap_remove(choice % leases.len())),
                    3 if !waits.is_empty() => drop(waits.swap_remove(choice % waits.len())),
                    _ => {}
                }
                let (told, left): (Vec<_>, Vec<_>) = waits.into_iter().map(|(who, mut wait)| {
                    let told = poll(&mut wait);
                    (told, (who, wait))
                }).partition(|(told, _)| told.is_some());
                leases.extend(told.into_iter().filter_map(|(told, _)| told));
                waits = left.into_iter().map(|(_, wait)| wait).collect();
                let state = budget.lock();
                prop_assert!(state.used <= all);
                prop_assert_eq!(state.used, leases.iter().map(Lease::amount).sum::<usize>());
                prop_assert_eq!(state.used, state.held.values().sum::<usize>());
                prop_assert!(state.held.values().all(|held| *held <= one.min(all)));
                prop_assert_eq!(state.in_lines, state.waiting.values().map(VecDeque::len).sum::<usize>());
                for (holder, line) in &state.waiting {
                    if let Some(first) = line.iter().find(|waiter| !waiter.tell.is_closed()) {
                        prop_assert!(state.check(*holder, first.amount).is_err());
                    }
                }
            }
            drop((leases, waits));
            prop_assert_eq!(budget.used(), 0);
        }
    }
}

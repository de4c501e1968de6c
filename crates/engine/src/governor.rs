//! How many copies of a process move bytes at the same time: a governor over all of them.
//!
//! Sixteen copies over a near path keep the processors and the path busy. Eight hundred at once move no more: each has buffers,
//! whose bytes have left the caches when their turn comes again, and the server the same. So a copy waits in front of its first
//! connection for a place at one of its endpoints. A far endpoint has more of them: round trips are what its copies wait for.
//!
//! Memory for targets in order comes with the place ([windows](crate::windows)).
//!
//! Places are for copies that move. One whose sources have been silent for a while gives its place to the next, and goes on
//! without one when bytes come after all: silence costs those that wait nothing.
//!
//! Of those that wait, users ([`IdentityId`]) have their turns by how many places each has, the fewest first; one user's copies
//! have theirs in the order in which they came. A copy that is given up while it waits has never begun.
//!
//! Copies that have begun hold files and connections, whether they move or not, and there are only so many. One user has at most
//! three quarters of them: a user whose sources are all silent keeps nobody else from beginning.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use gridlane_core::limits::{
    COPIES_FAR_MAX, COPIES_NEAR_MAX, FAR_ROUND_TRIP, REORDER_BYTES_MAX, REORDER_BYTES_MIN, SILENT_PLACE_MAX,
};
use gridlane_core::{Endpoint, Time, Url};
use gridlane_net::IdentityId;
use gridlane_peer::descriptors::Descriptors;
use gridlane_plan::judge::PieceHashes;
use tokio::sync::oneshot;

use crate::TargetSpec;
use crate::windows::{Window, Windows};

/// Of larger pieces a target in order is given parts that were not compared: the largest window has room for two.
pub(crate) const PIECE_HELD_BYTES_MAX: u64 = REORDER_BYTES_MAX / 2;

/// The copies of a process, and where they are.
pub(crate) struct Governor {
    state: Mutex<State>,
    begun_max: BegunMax,
}

/// Copies that may have begun, whether they move or not: each has files and connections open.
#[derive(Clone, Copy)]
struct BegunMax {
    all: usize,
    /// Those of one user.
    one: usize,
}

#[derive(Default)]
struct State {
    endpoints: HashMap<Endpoint, Places>,
    /// Users without a copy that has begun are not listed.
    users: HashMap<IdentityId, User>,
    /// Waiting copies, in lines by what they wait for: of eight hundred copies only the first of each line is looked at.
    lines: Vec<Line>,
    /// Copies that have waited.
    waited: u64,
    begun: usize,
    windows: Windows,
}

/// The copies at one endpoint.
#[derive(Default)]
struct Places {
    taken: usize,
    round_trip: Option<Duration>,
}

/// The copies of a user.
#[derive(Clone, Copy, Default)]
struct User {
    places: usize,
    begun: usize,
}

/// Copies that wait for the same, in the order in which they came.
struct Line {
    user: IdentityId,
    endpoints: Arc<[Endpoint]>,
    window_bytes: Option<u64>,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    number: u64,
    tell: oneshot::Sender<Place>,
}

/// The endpoints that a copy uses.
pub(crate) fn endpoints(sources: &[Url], target: &TargetSpec) -> Vec<Endpoint> {
    let target = match target {
        TargetSpec::Upload { url, .. } => Some(url),
        TargetSpec::Anywhere(_) | TargetSpec::InOrder(_) => None,
    };
    let mut endpoints: Vec<Endpoint> = Vec::new();
    // What all bytes go through decides alone.
    for url in target.map_or(sources, std::slice::from_ref) {
        let endpoint = url.endpoint();
        if !endpoints.contains(&endpoint) {
            endpoints.push(endpoint);
        }
    }
    endpoints
}

/// The least window of a copy whose target takes bytes in order: whole pieces are held back until they are right, and the window
/// has room for one. `None`: the target takes them in any order.
pub(crate) fn least_window(target: &TargetSpec, pieces: Option<&PieceHashes>) -> Option<u64> {
    let is_in_order = matches!(target, TargetSpec::Upload { .. } | TargetSpec::InOrder(_));
    let piece_bytes = pieces.map(PieceHashes::piece_bytes).filter(|bytes| *bytes <= PIECE_HELD_BYTES_MAX);
    is_in_order.then(|| piece_bytes.unwrap_or(0).max(REORDER_BYTES_MIN))
}

impl BegunMax {
    /// One user has at most three quarters of them.
    fn of(all: usize) -> BegunMax {
        BegunMax { all, one: (all - all / 4).min(all.saturating_sub(1)).max(1) }
    }
}

impl Places {
    fn has_room(&self) -> bool {
        // What is not known may be far.
        let is_near = self.round_trip.is_some_and(|round_trip| round_trip < FAR_ROUND_TRIP);
        self.taken < if is_near { COPIES_NEAR_MAX } else { COPIES_FAR_MAX }
    }
}

impl State {
    fn may_begin(
        &self,
        user: IdentityId,
        endpoints: &[Endpoint],
        window_bytes: Option<u64>,
        begun_max: BegunMax,
    ) -> bool {
        let has_room = |endpoint: &Endpoint| self.endpoints.get(endpoint).is_none_or(Places::has_room);
        let has_memory = window_bytes.is_none_or(|bytes| self.windows.has_room(bytes));
        let may_hold = self.begun < begun_max.all && self.user(user).begun < begun_max.one;
        may_hold && has_memory && endpoints.iter().any(has_room)
    }

    fn user(&self, user: IdentityId) -> User {
        self.users.get(&user).copied().unwrap_or_default()
    }

    fn begin(&mut self, user: IdentityId) {
        self.begun += 1;
        self.users.entry(user).or_default().begun += 1;
    }

    fn end(&mut self, user: IdentityId) {
        self.begun -= 1;
        if let Some(copies) = self.users.get_mut(&user) {
            copies.begun -= 1;
            if copies.begun == 0 {
                self.users.remove(&user);
            }
        }
    }

    fn take(&mut self, user: IdentityId, endpoints: &[Endpoint]) {
        for endpoint in endpoints {
            self.endpoints.entry(endpoint.clone()).or_default().taken += 1;
        }
        self.users.entry(user).or_default().places += 1;
    }

    fn give_back(&mut self, user: IdentityId, endpoints: &[Endpoint]) {
        for endpoint in endpoints {
            if let Some(places) = self.endpoints.get_mut(endpoint) {
                places.taken = places.taken.saturating_sub(1);
            }
        }
        if let Some(copies) = self.users.get_mut(&user) {
            copies.places -= 1;
        }
        // Nothing is remembered of an endpoint without copies: its round trip may be another one later.
        self.endpoints.retain(|_, places| places.taken > 0);
    }

    /// Lets a copy wait; the answer is its place.
    fn wait(
        &mut self,
        user: IdentityId,
        endpoints: Arc<[Endpoint]>,
        window_bytes: Option<u64>,
    ) -> oneshot::Receiver<Place> {
        let (tell, told) = oneshot::channel();
        self.waited += 1;
        let waiting = Waiting { number: self.waited, tell };
        let is_same = |line: &&mut Line| {
            line.user == user && line.endpoints == endpoints && line.window_bytes == window_bytes
        };
        match self.lines.iter_mut().find(is_same) {
            Some(line) => {
                // Those that were given up are not kept for ever, and not looked for each time.
                if line.waiting.len().is_power_of_two() {
                    line.waiting.retain(|waiting| !waiting.tell.is_closed());
                }
                line.waiting.push_back(waiting);
            }
            None => {
                let waiting = VecDeque::from([waiting]);
                self.lines.push(Line { user, endpoints, window_bytes, waiting });
            }
        }
        told
    }

    /// The next copy that may begin, with the number of its line: of the user with the fewest places, the one that came
    /// first.
    fn next(&mut self, begun_max: BegunMax) -> Option<(usize, Waiting)> {
        for line in &mut self.lines {
            while line.waiting.pop_front_if(|waiting| waiting.tell.is_closed()).is_some() {}
        }
        self.lines.retain(|line| !line.waiting.is_empty());
        let key =
            |line: &Line| (self.user(line.user).places, line.waiting.front().map(|waiting| waiting.number));
        let may = |line: &Line| self.may_begin(line.user, &line.endpoints, line.window_bytes, begun_max);
        let next = self.lines.iter().enumerate().filter(|(_, line)| may(line));
        let (number, _) = next.min_by_key(|(_, line)| key(line))?;
        Some((number, self.lines.get_mut(number)?.waiting.pop_front()?))
    }
}

impl Governor {
    /// The one of this process.
    pub(crate) fn of_process() -> Arc<Governor> {
        static OF_PROCESS: OnceLock<Arc<Governor>> = OnceLock::new();
        let new = || Arc::new(Governor::new(Descriptors::of_process().copies_max()));
        Arc::clone(OF_PROCESS.get_or_init(new))
    }

    fn new(begun_max: usize) -> Governor {
        Governor { state: Mutex::default(), begun_max: BegunMax::of(begun_max) }
    }

    /// Waits for a place at one of the endpoints that a copy of a user is about to use, and for its [least
    /// window](least_window).
    pub(crate) async fn place(
        self: &Arc<Governor>,
        user: IdentityId,
        endpoints: Vec<Endpoint>,
        window_bytes: Option<u64>,
    ) -> Place {
        let endpoints: Arc<[Endpoint]> = endpoints.into();
        let told = {
            let mut state = self.state();
            // Waiting copies do not fit at the moment, so one that fits passes none that could begin.
            if state.may_begin(user, &endpoints, window_bytes, self.begun_max) {
                return self.begin(&mut state, user, endpoints, window_bytes);
            }
            state.wait(user, Arc::clone(&endpoints), window_bytes)
        };
        match told.await {
            Ok(place) => place,
            // The governor never drops a waiting copy unanswered; should it ever, the copy gets a place all the same.
            Err(_) => self.begin(&mut self.state(), user, endpoints, window_bytes),
        }
    }

    fn begin(
        self: &Arc<Governor>,
        state: &mut State,
        user: IdentityId,
        endpoints: Arc<[Endpoint]>,
        window_bytes: Option<u64>,
    ) -> Place {
        state.begin(user);
        state.take(user, &endpoints);
        let window = window_bytes.map(|least_bytes| state.windows.begin(user, least_bytes));
        Place { governor: Arc::clone(self), user, endpoints, window, is_taken: true, moved: (0, Time::ZERO) }
    }

    /// Lets all waiting copies begin that may.
    fn go_on(self: &Arc<Governor>, mut state: MutexGuard<'_, State>) {
        let mut given_up = Vec::new();
        while let Some((line, Waiting { tell, .. })) = state.next(self.begun_max) {
            let Line { user, endpoints, window_bytes, .. } = &state.lines[line];
            let (user, endpoints, window_bytes) = (*user, Arc::clone(endpoints), *window_bytes);
            let place = self.begin(&mut state, user, endpoints, window_bytes);
            given_up.extend(tell.send(place).err());
        }
        drop(state);
        // The end of each lets others begin.
        drop(given_up);
    }

    /// Forgets every copy, without a word to those that wait: for the child of a fork, where none of them is.
    pub(crate) fn forget(&self) {
        std::mem::forget(std::mem::take(&mut *self.state()));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is complete in itself.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a copy, from before its first connection to its end.
pub(crate) struct Place {
    governor: Arc<Governor>,
    user: IdentityId,
    endpoints: Arc<[Endpoint]>,
    /// Of a copy whose target takes bytes in order.
    window: Option<Window>,
    is_taken: bool,
    /// Bytes that had come when they were last more than before, and when that was.
    moved: (u64, Time),
}

impl Place {
    /// Another attempt begins, which counts bytes and time anew.
    pub(crate) fn begin_again(&mut self) {
        self.moved = (0, Time::ZERO);
    }

    /// Tells how many bytes have come by now: a copy that is silent has no place.
    pub(crate) fn moved(&mut self, bytes: u64, now: Time) {
        let (before, at) = self.moved;
        let is_taken = bytes > before || now.since(at) < SILENT_PLACE_MAX;
        if bytes > before {
            self.moved = (bytes, now);
        }
        if is_taken == self.is_taken {
            return;
        }
        self.is_taken = is_taken;
        let governor = Arc::clone(&self.governor);
        let mut state = governor.state();
        match is_taken {
            true => state.take(self.user, &self.endpoints),
            false => {
                state.give_back(self.user, &self.endpoints);
                governor.go_on(state);
            }
        }
    }

    /// The window of a copy whose target takes bytes in order.
    pub(crate) fn window_bytes(&self) -> Option<u64> {
        self.window.as_ref().map(Window::bytes)
    }

    /// Tells how much of the window is held, and if that is the target's doing, and makes it what the other copies leave.
    pub(crate) fn resize_window(&mut self, held_bytes: u64, waits_for_target: bool) {
        let Some(window) = &mut self.window else { return };
        let mut state = self.governor.state();
        let has_left_room = state.windows.set_moving(window, self.is_taken || waits_for_target);
        state.windows.resize(window, held_bytes);
        if has_left_room {
            self.governor.go_on(state);
        }
    }

    /// Tells the round trip to an endpoint: fewer copies fit on a short path.
    pub(crate) fn measured(&self, endpoint: &Endpoint, round_trip: Duration) {
        if let Some(places) = self.governor.state().endpoints.get_mut(endpoint) {
            places.round_trip = Some(places.round_trip.map_or(round_trip, |known| known.min(round_trip)));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.governor.state();
        if let Some(window) = self.window.take() {
            state.windows.end(window);
        }
        if self.is_taken {
            state.give_back(self.user, &self.endpoints);
        }
        state.end(self.user);
        self.governor.go_on(state);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use gridlane_net::Identity;

    use super::*;

    fn at(text: &str) -> Vec<Endpoint> {
        vec![Url::parse_absolute(text).unwrap().endpoint()]
    }

    fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }

    fn user() -> IdentityId {
        IdentityId::default()
    }

    fn begin(governor: &Arc<Governor>, endpoints: Vec<Endpoint>) -> Place {
        poll(pin!(governor.place(user(), endpoints, None))).expect("there is room")
    }

    /// All copies that may move at a near endpoint.
    fn fill(governor: &Arc<Governor>, near: &[Endpoint]) -> Vec<Place> {
        let first = begin(governor, near.to_vec());
        first.measured(&near[0], Duration::ZERO);
        let others = (1..COPIES_NEAR_MAX).map(|_| begin(governor, near.to_vec()));
        std::iter::once(first).chain(others).collect()
    }

    #[test]
    fn one_more_than_fit_waits_for_the_end_of_another_and_not_elsewhere() {
        let governor = Arc::new(Governor::new(usize::MAX));
        let (near, other) = (at("http://near/"), at("http://other/"));
        let mut running = fill(&governor, &near);
        let mut waiting = pin!(governor.place(user(), near.clone(), None));
        assert!(poll(waiting.as_mut()).is_none());
        let elsewhere = begin(&governor, other.clone());
        // One that may be done from elsewhere as well is not kept.
        let both = begin(&governor, [near.clone(), other].concat());
        drop((elsewhere, both));
        assert!(poll(waiting.as_mut()).is_none());
        drop(running.pop());
        let begun = poll(waiting.as_mut()).expect("it is its turn");
        drop((begun, running));
        assert!(governor.state().endpoints.is_empty() && governor.state().users.is_empty());
    }

    #[test]
    fn copies_that_are_forgotten_take_no_place() {
        let governor = Arc::new(Governor::new(usize::MAX));
        let near = at("http://near/");
        std::mem::forget(fill(&governor, &near));
        assert!(poll(pin!(governor.place(user(), near.clone(), None))).is_none());
        governor.forget();
        drop(begin(&governor, near));
    }

    #[test]
    fn silence_gives_the_place_to_the_next() {
        let governor = Arc::new(Governor::new(usize::MAX));
        let near = at("http://near/");
        let mut running = fill(&governor, &near);
        let mut waiting = pin!(governor.place(user(), near.clone(), None));
        assert!(poll(waiting.as_mut()).is_none());
        let late = Time::from_origin(SILENT_PLACE_MAX);
        running[0].moved(1, late);
        assert!(poll(waiting.as_mut()).is_none(), "it moves");
        running[1].moved(0, late);
        let begun = poll(waiting.as_mut()).expect("it is its turn");
        // It goes on where bytes come after all.
        running[1].moved(1, late);
        assert_eq!(governor.state().endpoints[&near[0]].taken, COPIES_NEAR_MAX + 1);
        drop((begun, running));
        assert!(governor.state().endpoints.is_empty() && governor.state().begun == 0);
    }

    #[test]
    fn a_long_path_has_room_for_more() {
        let governor = Arc::new(Governor::new(usize::MAX));
        let far = at("http://far/");
        let running: Vec<Place> = (0..COPIES_FAR_MAX).map(|_| begin(&governor, far.clone())).collect();
        running[0].measured(&far[0], FAR_ROUND_TRIP);
        let mut waiting = pin!(governor.place(user(), far.clone(), None));
        assert!(poll(waiting.as_mut()).is_none());
        drop(running);
        assert!(poll(waiting.as_mut()).is_some());
    }

    #[test]
    fn one_that_is_given_up_while_it_waits_is_in_nobodys_way() {
        let governor = Arc::new(Governor::new(1));
        let running = begin(&governor, at("http://a/"));
        let mut given_up = Box::pin(governor.place(user(), at("http://a/"), None));
        let mut told = Box::pin(governor.place(user(), at("http://b/"), None));
        let mut last = pin!(governor.place(user(), at("http://a/"), None));
        assert!(poll(given_up.as_mut()).is_none() && poll(told.as_mut()).is_none());
        assert!(poll(last.as_mut()).is_none());
        drop(given_up);
        drop(running);
        // It has its place, and never learns of it.
        drop(told);
        assert!(poll(last.as_mut()).is_some());
    }

    #[test]
    fn large_pieces_wait_for_memory_and_nothing_else_does() {
        let governor = Arc::new(Governor::new(usize::MAX));
        let large = Some(PIECE_HELD_BYTES_MAX);
        let mut running = Vec::new();
        let mut waiting = loop {
            let mut next = Box::pin(governor.place(user(), at("http://a/"), large));
            match poll(next.as_mut()) {
                Some(place) => running.push(place),
                None => break next,
            }
        };
        assert!(running.len() > 1 && running.len() < COPIES_NEAR_MAX);
        assert!(running.iter().all(|place| place.window_bytes() >= large));
        let small = poll(pin!(governor.place(user(), at("http://a/"), Some(REORDER_BYTES_MIN)))).unwrap();
        assert!(small.window_bytes() >= Some(REORDER_BYTES_MIN));
        // What is silent and holds nothing leaves its memory to the next.
        running[0].moved(0, Time::from_origin(SILENT_PLACE_MAX));
        running[0].resize_window(0, true);
        assert!(poll(waiting.as_mut()).is_none(), "its target is what it waits for");
        running[0].resize_window(0, false);
        let next = poll(waiting.as_mut()).expect("there is room");
        assert!(next.window_bytes() >= large);
    }

    #[test]
    fn a_user_with_many_copies_leaves_turns_to_one_with_few() {
        let governor = Arc::new(Governor::new(usize::MAX));
        let (many, few) = (user(), Identity::new(None).id());
        let near = at("http://near/");
        let mut running = fill(&governor, &near);
        let mut first = pin!(governor.place(many, near.clone(), None));
        let mut second = pin!(governor.place(few, near.clone(), None));
        assert!(poll(first.as_mut()).is_none() && poll(second.as_mut()).is_none());
        drop(running.pop());
        assert!(poll(first.as_mut()).is_none());
        assert!(poll(second.as_mut()).is_some());
    }

    #[test]
    fn a_user_whose_copies_are_silent_keeps_no_other_from_beginning() {
        let governor = Arc::new(Governor::new(8));
        let (many, few) = (user(), Identity::new(None).id());
        let mut silent: Vec<Place> =
            (0..6).map(|number| begin(&governor, at(&format!("http://{number}/")))).collect();
        silent.iter_mut().for_each(|place| place.moved(0, Time::from_origin(SILENT_PLACE_MAX)));
        let mut next = pin!(governor.place(many, at("http://many/"), None));
        assert!(poll(next.as_mut()).is_none(), "three quarters of eight are six");
        let others = [(); 2]
            .map(|()| poll(pin!(governor.place(few, at("http://few/"), None))).expect("there is room"));
        let mut last = pin!(governor.place(few, at("http://few/"), None));
        assert!(poll(last.as_mut()).is_none(), "there are eight");
        // The end of another user's is none of its own.
        drop(others);
        assert!(poll(next.as_mut()).is_none() && poll(last.as_mut()).is_some());
        drop(silent.pop());
        let next = poll(next.as_mut()).expect("it is its turn");
        drop((next, silent));
        assert!(governor.state().users.is_empty() && governor.state().begun == 0);
        for (all, one) in [(1, 1), (2, 1), (3, 2), (4, 3), (100, 75)] {
            assert_eq!(BegunMax::of(all).one, one, "{all}");
        }
    }
}

//! How many copies of a process move bytes at the same time: a governor over all of them.
//!
//! Sixteen copies over a near path keep the processors and the path busy. Eight hundred at once move no more: each has buffers,
//! whose bytes have left the caches when their turn comes again, and the server the same. So a copy waits in front of its first
//! connection for a place at one of its endpoints. A far endpoint has more of them: round trips are what its copies wait for.
//!
//! Places are for copies that move. One whose sources have been silent for a while gives its place to the next, and goes on
//! without one when bytes come after all: silence costs those that wait nothing.
//!
//! Of those that wait, users ([`IdentityId`]) have their turns by how many places each has, the fewest first; one user's copies
//! have theirs in the order in which they came. A copy that is given up while it waits has never begun.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use gridlane_core::limits::{COPIES_FAR_MAX, COPIES_NEAR_MAX, FAR_ROUND_TRIP, SILENT_PLACE_MAX};
use gridlane_core::{Endpoint, Time, Url};
use gridlane_net::IdentityId;
use gridlane_peer::descriptors::Descriptors;
use tokio::sync::oneshot;

use crate::TargetSpec;

/// The copies of a process, and where they are.
pub(crate) struct Governor {
    state: Mutex<State>,
    /// Copies that may have begun, whether they move or not: each has files and connections open.
    begun_max: usize,
}

#[derive(Default)]
struct State {
    endpoints: HashMap<Endpoint, Places>,
    /// Places of each user, of those who have any.
    users: HashMap<IdentityId, usize>,
    /// In the order in which they came.
    waiting: Vec<Waiting>,
    begun: usize,
}

/// Those at one endpoint.
#[derive(Default)]
struct Places {
    taken: usize,
    round_trip: Option<Duration>,
}

struct Waiting {
    user: IdentityId,
    endpoints: Arc<[Endpoint]>,
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

impl Places {
    fn has_room(&self) -> bool {
        // What is not known may be far.
        let is_near = self.round_trip.is_some_and(|round_trip| round_trip < FAR_ROUND_TRIP);
        self.taken < if is_near { COPIES_NEAR_MAX } else { COPIES_FAR_MAX }
    }
}

impl State {
    fn may_begin(&self, endpoints: &[Endpoint], begun_max: usize) -> bool {
        let has_room = |endpoint: &Endpoint| self.endpoints.get(endpoint).is_none_or(Places::has_room);
        self.begun < begun_max && endpoints.iter().any(has_room)
    }

    fn take(&mut self, user: IdentityId, endpoints: &[Endpoint]) {
        for endpoint in endpoints {
            self.endpoints.entry(endpoint.clone()).or_default().taken += 1;
        }
        *self.users.entry(user).or_default() += 1;
    }

    fn give_back(&mut self, user: IdentityId, endpoints: &[Endpoint]) {
        for endpoint in endpoints {
            if let Some(places) = self.endpoints.get_mut(endpoint) {
                places.taken = places.taken.saturating_sub(1);
            }
        }
        if let Some(places) = self.users.get_mut(&user) {
            *places -= 1;
            if *places == 0 {
                self.users.remove(&user);
            }
        }
        // Nothing is to be remembered of an endpoint where nobody is: its round trip may be another one later.
        self.endpoints.retain(|_, places| places.taken > 0);
    }

    /// The next that may begin: of the user who has the fewest places, the one that came first.
    fn next(&mut self, begun_max: usize) -> Option<Waiting> {
        let places_of = |waiting: &Waiting| self.users.get(&waiting.user).copied().unwrap_or(0);
        let may =
            |waiting: &&Waiting| !waiting.tell.is_closed() && self.may_begin(&waiting.endpoints, begun_max);
        let next = self.waiting.iter().enumerate().filter(|(_, waiting)| may(waiting));
        let (index, _) = next.min_by_key(|(_, waiting)| places_of(waiting))?;
        Some(self.waiting.remove(index))
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
        Governor { state: Mutex::default(), begun_max }
    }

    /// Waits for a place at one of the endpoints that a copy of a user is about to use.
    pub(crate) async fn place(self: &Arc<Governor>, user: IdentityId, endpoints: Vec<Endpoint>) -> Place {
        let endpoints: Arc<[Endpoint]> = endpoints.into();
        let told = {
            let mut state = self.state();
            // Those that wait have no room: nobody is passed who could begin.
            if state.may_begin(&endpoints, self.begun_max) {
                return self.begin(&mut state, user, endpoints);
            }
            let (tell, told) = oneshot::channel();
            state.waiting.push(Waiting { user, endpoints: Arc::clone(&endpoints), tell });
            told
        };
        match told.await {
            Ok(place) => place,
            // The governor drops nobody: what cannot be is answered with a place.
            Err(_) => self.begin(&mut self.state(), user, endpoints),
        }
    }

    fn begin(self: &Arc<Governor>, state: &mut State, user: IdentityId, endpoints: Arc<[Endpoint]>) -> Place {
        state.take(user, &endpoints);
        state.begun += 1;
        Place { governor: Arc::clone(self), user, endpoints, is_taken: true, moved: (0, Time::ZERO) }
    }

    /// Lets those begin that may.
    fn go_on(self: &Arc<Governor>, mut state: MutexGuard<'_, State>) {
        let mut given_up = Vec::new();
        while let Some(Waiting { user, endpoints, tell }) = state.next(self.begun_max) {
            let place = self.begin(&mut state, user, endpoints);
            given_up.extend(tell.send(place).err());
        }
        state.waiting.retain(|waiting| !waiting.tell.is_closed());
        drop(state);
        // Each of them lets others begin.
        drop(given_up);
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
        state.begun -= 1;
        if self.is_taken {
            state.give_back(self.user, &self.endpoints);
        }
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
        poll(pin!(governor.place(user(), endpoints))).expect("there is room")
    }

    /// As many as there may be at a near endpoint.
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
        let mut waiting = pin!(governor.place(user(), near.clone()));
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
    fn silence_gives_the_place_to_the_next() {
        let governor = Arc::new(Governor::new(usize::MAX));
        let near = at("http://near/");
        let mut running = fill(&governor, &near);
        let mut waiting = pin!(governor.place(user(), near.clone()));
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
        let mut waiting = pin!(governor.place(user(), far.clone()));
        assert!(poll(waiting.as_mut()).is_none());
        drop(running);
        assert!(poll(waiting.as_mut()).is_some());
    }

    #[test]
    fn one_that_is_given_up_while_it_waits_is_in_nobodys_way() {
        let governor = Arc::new(Governor::new(1));
        let running = begin(&governor, at("http://a/"));
        let mut given_up = Box::pin(governor.place(user(), at("http://a/")));
        let mut told = Box::pin(governor.place(user(), at("http://b/")));
        let mut last = pin!(governor.place(user(), at("http://a/")));
        assert!(poll(given_up.as_mut()).is_none() && poll(told.as_mut()).is_none());
        assert!(poll(last.as_mut()).is_none());
        drop(given_up);
        drop(running);
        // It has its place, and never learns of it.
        drop(told);
        assert!(poll(last.as_mut()).is_some());
    }

    #[test]
    fn a_user_with_many_copies_leaves_turns_to_one_with_few() {
        let governor = Arc::new(Governor::new(usize::MAX));
        let (many, few) = (user(), Identity::new(None).id());
        let near = at("http://near/");
        let mut running = fill(&governor, &near);
        let mut first = pin!(governor.place(many, near.clone()));
        let mut second = pin!(governor.place(few, near.clone()));
        assert!(poll(first.as_mut()).is_none() && poll(second.as_mut()).is_none());
        drop(running.pop());
        assert!(poll(first.as_mut()).is_none());
        assert!(poll(second.as_mut()).is_some());
    }
}

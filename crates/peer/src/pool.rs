//! Connections between two uses, and how many there may be to one host.
//!
//! A connection is given back when it is dropped in a state in which it may carry another request, and handed out again,
//! the one used last first, if it is still open then. A connection that rests for too long is closed. One that has
//! carried ranges goes to a lane before others do: its window has grown.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use gridlane_core::limits::{
    CONNECTION_TURN_MAX, IDLE_CONNECTION_MAX, IDLE_CONNECTIONS_MAX, IDLE_PER_HOST_MAX, LANES_PER_HOST_MAX,
    REQUESTS_PER_HOST_MAX,
};
use gridlane_net::{Route, Stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout};

use crate::descriptors::Descriptors;

/// A server closes this much later than it says, at the earliest: our clock and the way there are not its.
const SAYS_MARGIN: Duration = Duration::from_secs(1);
/// Hosts whose turns are remembered before the unused ones are forgotten.
const HOSTS_KEPT: usize = 256;

/// The use of a connection: there is a limit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// One request whose answer is short or comes at once.
    Request,
    /// Ranges of a file.
    Lane,
    /// A file to the server.
    Upload,
}

/// A connection that can wait between two uses.
pub(crate) trait Rests: Send + 'static {
    /// True if it is open and no unread bytes have come.
    fn is_quiet(&mut self) -> bool;

    /// Gives back memory until it is used again.
    fn release(&mut self);
}

impl Rests for Stream {
    fn is_quiet(&mut self) -> bool {
        Stream::is_quiet(self)
    }

    fn release(&mut self) {
        self.release_buffers();
    }
}

/// The idle connections `C` of a client, by what makes them as good as each other; cheap to clone.
pub(crate) struct Pool<K, C>(Arc<Inner<K, C>>);

struct Inner<K, C> {
    idle_max: Duration,
    turn_max: Duration,
    idle: Mutex<Idle<K, C>>,
    turns: Mutex<HashMap<(K, Purpose), Arc<Semaphore>>>,
}

struct Idle<K, C> {
    /// Given back last at the end.
    resting: Vec<Resting<K, C>>,
    is_swept: bool,
}

struct Resting<K, C> {
    key: K,
    connection: C,
    until: Instant,
    /// Its last use.
    purpose: Purpose,
    /// Bytes may still come that belong to nothing: only what may be asked twice is asked here.
    is_doubtful: bool,
}

/// The pool that a connection goes back to, and its turn. A clone is for the connection that takes its place.
pub(crate) struct Home<K, C> {
    pool: Weak<Inner<K, C>>,
    key: K,
    purpose: Purpose,
    _turn: Option<Arc<OwnedSemaphorePermit>>,
}

impl<K, C> Clone for Pool<K, C> {
    fn clone(&self) -> Pool<K, C> {
        Pool(self.0.clone())
    }
}

impl<K: Clone, C> Clone for Home<K, C> {
    fn clone(&self) -> Home<K, C> {
        let Home { pool, key, purpose, _turn } = self;
        Home { pool: pool.clone(), key: key.clone(), purpose: *purpose, _turn: _turn.clone() }
    }
}

impl<K: Key, C: Rests> Default for Pool<K, C> {
    fn default() -> Pool<K, C> {
        Pool::new(IDLE_CONNECTION_MAX, CONNECTION_TURN_MAX)
    }
}

/// The key of connections: the server, the way there, and the identity that they belong to.
pub(crate) trait Key: Clone + Eq + Hash + Send + 'static {
    /// The same for any identity: a server has so many turns, however many users ask it.
    fn of_any(&self) -> Self;
}

impl Key for Route {
    fn of_any(&self) -> Route {
        Route::of_any(self)
    }
}

impl<K: Key, C: Rests> Pool<K, C> {
    fn new(idle_max: Duration, turn_max: Duration) -> Pool<K, C> {
        let idle = Mutex::new(Idle { resting: Vec::new(), is_swept: false });
        let turns = Mutex::default();
        Pool(Arc::new(Inner { idle_max, turn_max, idle, turns }))
    }

    /// Waits until there may be another connection like this; not for ever.
    pub(crate) async fn home(&self, key: K, purpose: Purpose) -> Home<K, C> {
        let turns_max = match purpose {
            Purpose::Request => Some(REQUESTS_PER_HOST_MAX),
            Purpose::Lane => Some(LANES_PER_HOST_MAX),
            // There is one for each copy, and the caller that starts copies says how many at once.
            Purpose::Upload => None,
        };
        let turn = match turns_max {
            None => None,
            Some(max) => {
                let turns = self.0.turns_of(key.of_any(), purpose, max);
                timeout(self.0.turn_max, turns.acquire_owned()).await.ok().and_then(Result::ok)
            }
        };
        Home { pool: Arc::downgrade(&self.0), key, purpose, _turn: turn.map(Arc::new) }
    }

    /// Number of idle connections that were used for `purpose`; some may have been closed at the other end.
    pub(crate) fn idle(&self, key: &K, purpose: Purpose) -> usize {
        let idle = self.0.idle();
        idle.resting.iter().filter(|resting| resting.key == *key && resting.purpose == purpose).count()
    }

    /// An idle connection that is still open; those that are not are closed.
    pub(crate) fn take(&self, home: &Home<K, C>) -> Option<C> {
        let now = Instant::now();
        loop {
            let found = {
                let mut idle = self.0.idle();
                let fits = |resting: &Resting<K, C>| {
                    resting.key == home.key && !(resting.is_doubtful && home.purpose == Purpose::Upload)
                };
                let same = |resting: &Resting<K, C>| fits(resting) && resting.purpose == home.purpose;
                let at =
                    idle.resting.iter().rposition(same).or_else(|| idle.resting.iter().rposition(fits))?;
                idle.resting.remove(at)
            };
            let mut connection = found.connection;
            if found.until > now && connection.is_quiet() {
                return Some(connection);
            }
        }
    }
}

impl<K: Key, C: Rests> Inner<K, C> {
    fn idle(&self) -> MutexGuard<'_, Idle<K, C>> {
        // A panic elsewhere leaves nothing half-done here.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turns_of(&self, key: K, purpose: Purpose, max: usize) -> Arc<Semaphore> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if turns.len() >= HOSTS_KEPT {
            turns.retain(|_, turns| Arc::strong_count(turns) > 1);
        }
        turns.entry((key, purpose)).or_insert_with(|| Arc::new(Semaphore::new(max))).clone()
    }

    /// Closes what has rested long enough; says when to look again.
    fn sweep(&self) -> Option<Instant> {
        let mut idle = self.idle();
        let now = Instant::now();
        idle.resting.retain(|resting| resting.until > now);
        let next = idle.resting.iter().map(|resting| resting.until).min();
        idle.is_swept = next.is_some();
        next
    }
}

impl<K: Key, C: Rests> Home<K, C> {
    /// The key of its connections.
    pub(crate) fn key(&self) -> &K {
        &self.key
    }

    /// Keeps an open connection for its next use. `says_max` is how long the server says that it stays open; a doubtful
    /// one is not for uploads.
    pub(crate) fn take_back(&self, mut connection: C, says_max: Option<Duration>, is_doubtful: bool) {
        let Some(pool) = self.pool.upgrade() else { return };
        let rest = pool.idle_max.min(says_max.map_or(pool.idle_max, |max| max.saturating_sub(SAYS_MARGIN)));
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if rest.is_zero() {
            return;
        }
        connection.release();
        let mut idle = pool.idle();
        let of_host = idle.resting.iter().filter(|resting| resting.key == self.key).count();
        let room = Descriptors::of_process().idle_max().max(1);
        let oldest = match of_host >= IDLE_PER_HOST_MAX.min(room) {
            true => idle.resting.iter().position(|resting| resting.key == self.key),
            false => (idle.resting.len() >= IDLE_CONNECTIONS_MAX.min(room)).then_some(0),
        };
        if let Some(oldest) = oldest {
            idle.resting.remove(oldest);
        }
        let until = Instant::now() + rest;
        let (key, purpose) = (self.key.clone(), self.purpose);
        idle.resting.push(Resting { key, connection, until, purpose, is_doubtful });
        let is_swept = std::mem::replace(&mut idle.is_swept, true);
        // A runtime that ends drops the sweeper at once, which needs the lock.
        drop(idle);
        if !is_swept {
            runtime.spawn(Sweeper { pool: Arc::downgrade(&pool), is_done: false }.run());
        }
    }
}

/// Closes idle connections in time, until there are none.
struct Sweeper<K: Key, C: Rests> {
    pool: Weak<Inner<K, C>>,
    is_done: bool,
}

impl<K: Key, C: Rests> Sweeper<K, C> {
    async fn run(mut self) {
        while let Some(next) = self.pool.upgrade().and_then(|pool| pool.sweep()) {
            sleep_until(next).await;
        }
        self.is_done = true;
    }
}

impl<K: Key, C: Rests> Drop for Sweeper<K, C> {
    fn drop(&mut self) {
        // The runtime may end before the pool does: the next use of the pool needs another sweeper.
        if let Some(pool) = self.pool.upgrade().filter(|_| !self.is_done) {
            pool.idle().is_swept = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_core::Url;
    use gridlane_net::{Dialer, Identity, tls::Trust};
    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream};

    async fn pair() -> (Stream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (Stream::plain(near).unwrap(), listener.accept().await.unwrap().0)
    }

    fn route(url: &str) -> Route {
        Dialer::new(Trust::default()).route(&Url::parse_absolute(url).unwrap()).unwrap()
    }

    fn key() -> Route {
        route("http://h/")
    }

    impl Key for &'static str {
        fn of_any(&self) -> &'static str {
            self
        }
    }

    struct Wire;

    impl Rests for Wire {
        fn is_quiet(&mut self) -> bool {
            true
        }

        fn release(&mut self) {}
    }

    struct GivesBack(Home<&'static str, Wire>);

    impl Drop for GivesBack {
        fn drop(&mut self) {
            self.0.take_back(Wire, None, false);
        }
    }

    #[test]
    fn what_is_given_back_while_the_runtime_ends_holds_nobody_up() {
        let (done, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let pool = Pool::default();
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            let held = GivesBack(runtime.block_on(pool.home("h", Purpose::Lane)));
            let (begins, begun) = std::sync::mpsc::channel();
            runtime.spawn(async move {
                let _held = held;
                begins.send(()).unwrap();
                std::future::pending::<()>().await;
            });
            begun.recv().unwrap();
            drop(runtime);
            done.send(pool.0.idle().is_swept).unwrap();
        });
        let is_swept = ended.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(!is_swept, "the next use of the pool needs another sweeper");
    }

    #[tokio::test]
    async fn what_nobody_takes_is_closed_in_time() {
        let pool = Pool::new(Duration::from_millis(20), Duration::from_secs(60));
        let home = pool.home(key(), Purpose::Lane).await;
        let (near, mut far) = pair().await;
        home.take_back(near, None, false);
        assert_eq!(far.read(&mut [0]).await.unwrap(), 0, "the other side sees the end");
        // And again: the sweeper has ended meanwhile.
        let (near, mut far) = pair().await;
        home.take_back(near, None, false);
        assert_eq!(far.read(&mut [0]).await.unwrap(), 0);
        assert!(pool.take(&home).is_none());
    }

    #[tokio::test]
    async fn a_connection_that_says_something_is_not_used() {
        let pool = Pool::default();
        let home = pool.home(key(), Purpose::Lane).await;
        let (near, far) = pair().await;
        home.take_back(near, None, false);
        let (other, mut listening) = pair().await;
        home.take_back(other, None, false);
        // The last one is handed out first, as long as it is silent.
        assert!(pool.take(&home).is_some());
        assert_eq!(listening.read(&mut [0]).await.unwrap(), 0);
        far.writable().await.unwrap();
        assert_eq!(far.try_write(b"HTTP/1.1 408 Too late\r\n\r\n").unwrap(), 25);
        assert!(pool.take(&home).is_none());
        let elsewhere = route("http://h:81/");
        home.take_back(pair().await.0, None, false);
        assert!(pool.take(&pool.home(elsewhere, Purpose::Lane).await).is_none());
    }

    #[tokio::test]
    async fn a_connection_belongs_to_an_identity_and_turns_to_the_server() {
        let pool = Pool::new(Duration::from_secs(60), Duration::from_millis(1));
        let (ada, bob) = (Identity::new(None), Identity::new(None));
        let of = |identity: &Identity| key().of_identity(identity);
        let (near, _far) = pair().await;
        pool.home(of(&ada), Purpose::Request).await.take_back(near, None, false);
        for other in [of(&bob), key()] {
            assert_eq!(pool.idle(&other, Purpose::Request), 0);
            assert!(pool.take(&pool.home(other, Purpose::Request).await).is_none());
        }
        assert_eq!(pool.idle(&of(&ada), Purpose::Request), 1);
        assert!(pool.take(&pool.home(of(&ada), Purpose::Request).await).is_some());
        let mut homes = Vec::new();
        for turn in 0..REQUESTS_PER_HOST_MAX {
            let identity = if turn % 2 == 0 { &ada } else { &bob };
            homes.push(pool.home(of(identity), Purpose::Request).await);
        }
        assert!(homes.iter().all(|home| home._turn.is_some()));
        assert!(pool.home(key(), Purpose::Request).await._turn.is_none());
    }

    #[tokio::test]
    async fn a_lane_gets_what_was_a_lane() {
        let pool = Pool::default();
        let (lane, question) = (pair().await, pair().await);
        let address = lane.0.peer();
        pool.home(key(), Purpose::Lane).await.take_back(lane.0, None, false);
        pool.home(key(), Purpose::Request).await.take_back(question.0, None, false);
        let home = pool.home(key(), Purpose::Lane).await;
        assert_eq!(pool.take(&home).map(|stream| stream.peer()), Some(address));
        assert!(pool.take(&home).is_some(), "another one is better than none");
    }

    #[tokio::test]
    async fn no_upload_goes_where_something_may_still_come() {
        let pool = Pool::default();
        let (near, _far) = pair().await;
        pool.home(key(), Purpose::Request).await.take_back(near, None, true);
        assert!(pool.take(&pool.home(key(), Purpose::Upload).await).is_none());
        assert!(pool.take(&pool.home(key(), Purpose::Request).await).is_some());
    }

    #[tokio::test]
    async fn who_waited_long_enough_goes_on() {
        let pool = Pool::<Route, Stream>::new(Duration::from_secs(60), Duration::from_millis(1));
        let mut homes = Vec::new();
        for _ in 0..REQUESTS_PER_HOST_MAX {
            homes.push(pool.home(key(), Purpose::Request).await);
        }
        assert!(homes.iter().all(|home| home._turn.is_some()));
        assert!(pool.home(key(), Purpose::Request).await._turn.is_none());
        homes.pop();
        assert!(pool.home(key(), Purpose::Request).await._turn.is_some());
        assert!(pool.home(key(), Purpose::Lane).await._turn.is_some(), "each has a limit of its own");
    }
}

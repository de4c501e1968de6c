//! Connections between two uses, and how many there may be to one host.
//!
//! A connection is given back when it is dropped in a state in which it may carry another request, and
//! handed out again, the one used last first, if it is still open then. What nobody takes is closed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use gridlane_core::limits::{
    CONNECTION_TURN_MAX, IDLE_CONNECTION_MAX, IDLE_CONNECTIONS_MAX, IDLE_PER_HOST_MAX, LANES_PER_HOST_MAX,
    QUESTIONS_PER_HOST_MAX,
};
use gridlane_net::{Route, Stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout};

use super::Purpose;

/// A server closes this much later than it says, at the earliest: our clock and the way there are not its.
const SAYS_MARGIN: Duration = Duration::from_secs(1);
/// Hosts whose turns are remembered before those that nobody uses are forgotten.
const HOSTS_KEPT: usize = 256;

/// The idle connections of a client; cheap to clone.
#[derive(Clone)]
pub(super) struct Pool(Arc<Inner>);

struct Inner {
    idle_max: Duration,
    turn_max: Duration,
    idle: Mutex<Idle>,
    turns: Mutex<HashMap<(Route, Purpose), Arc<Semaphore>>>,
}

#[derive(Default)]
struct Idle {
    /// Given back last at the end.
    resting: Vec<Resting>,
    is_swept: bool,
}

struct Resting {
    route: Route,
    stream: Stream,
    until: Instant,
    /// Bytes may still come that belong to nothing: only what may be asked twice is asked here.
    is_doubtful: bool,
}

/// Where a connection goes back to, and its turn. A clone is for the connection that takes its place.
#[derive(Clone)]
pub(super) struct Home {
    pool: Weak<Inner>,
    route: Route,
    purpose: Purpose,
    _turn: Option<Arc<OwnedSemaphorePermit>>,
}

impl Default for Pool {
    fn default() -> Pool {
        Pool::new(IDLE_CONNECTION_MAX, CONNECTION_TURN_MAX)
    }
}

impl Pool {
    fn new(idle_max: Duration, turn_max: Duration) -> Pool {
        let (idle, turns) = Default::default();
        Pool(Arc::new(Inner { idle_max, turn_max, idle, turns }))
    }

    /// Waits until there may be another connection like this; not for ever.
    pub(super) async fn home(&self, route: Route, purpose: Purpose) -> Home {
        let turns_max = match purpose {
            Purpose::Question => Some(QUESTIONS_PER_HOST_MAX),
            Purpose::Lane => Some(LANES_PER_HOST_MAX),
            // There is one for each copy, and whoever starts copies says how many at once.
            Purpose::Upload => None,
        };
        let turn = match turns_max {
            None => None,
            Some(max) => {
                let turns = self.0.turns_of(&route, purpose, max);
                timeout(self.0.turn_max, turns.acquire_owned()).await.ok().and_then(Result::ok)
            }
        };
        Home { pool: Arc::downgrade(&self.0), route, purpose, _turn: turn.map(Arc::new) }
    }

    /// An idle connection that is still open; those that are not are closed.
    pub(super) fn take(&self, home: &Home) -> Option<Stream> {
        let now = Instant::now();
        loop {
            let found = {
                let mut idle = self.0.idle();
                let fits = |resting: &Resting| {
                    resting.route == home.route && !(resting.is_doubtful && home.purpose == Purpose::Upload)
                };
                let at = idle.resting.iter().rposition(fits)?;
                idle.resting.remove(at)
            };
            let mut stream = found.stream;
            if found.until > now && stream.is_quiet() {
                return Some(stream);
            }
        }
    }
}

impl Inner {
    fn idle(&self) -> MutexGuard<'_, Idle> {
        // A panic elsewhere leaves nothing half-done here.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turns_of(&self, route: &Route, purpose: Purpose, max: usize) -> Arc<Semaphore> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if turns.len() >= HOSTS_KEPT {
            turns.retain(|_, turns| Arc::strong_count(turns) > 1);
        }
        turns.entry((route.clone(), purpose)).or_insert_with(|| Arc::new(Semaphore::new(max))).clone()
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

impl Home {
    /// The way that its connections take.
    pub(super) fn route(&self) -> &Route {
        &self.route
    }

    /// Keeps an open connection for the next one who needs it. `says_max` is how long the server says that
    /// it stays open; a doubtful one is not for uploads.
    pub(super) fn take_back(&self, mut stream: Stream, says_max: Option<Duration>, is_doubtful: bool) {
        let Some(pool) = self.pool.upgrade() else { return };
        let rest = pool.idle_max.min(says_max.map_or(pool.idle_max, |max| max.saturating_sub(SAYS_MARGIN)));
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if rest.is_zero() {
            return;
        }
        stream.release_buffers();
        let mut idle = pool.idle();
        let of_host = idle.resting.iter().filter(|resting| resting.route == self.route).count();
        let oldest = match of_host >= IDLE_PER_HOST_MAX {
            true => idle.resting.iter().position(|resting| resting.route == self.route),
            false => (idle.resting.len() >= IDLE_CONNECTIONS_MAX).then_some(0),
        };
        if let Some(oldest) = oldest {
            idle.resting.remove(oldest);
        }
        let until = Instant::now() + rest;
        idle.resting.push(Resting { route: self.route.clone(), stream, until, is_doubtful });
        if !idle.is_swept {
            idle.is_swept = true;
            runtime.spawn(Sweeper { pool: Arc::downgrade(&pool), is_done: false }.run());
        }
    }
}

/// Closes idle connections in time, until there are none.
struct Sweeper {
    pool: Weak<Inner>,
    is_done: bool,
}

impl Sweeper {
    async fn run(mut self) {
        while let Some(next) = self.pool.upgrade().and_then(|pool| pool.sweep()) {
            sleep_until(next).await;
        }
        self.is_done = true;
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        // The runtime may end before the pool does: whoever uses the pool next needs another sweeper.
        if let Some(pool) = self.pool.upgrade().filter(|_| !self.is_done) {
            pool.idle().is_swept = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_core::Url;
    use gridlane_net::{Dialer, tls::Trust};
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
    async fn no_upload_goes_where_something_may_still_come() {
        let pool = Pool::default();
        let (near, _far) = pair().await;
        pool.home(key(), Purpose::Question).await.take_back(near, None, true);
        assert!(pool.take(&pool.home(key(), Purpose::Upload).await).is_none());
        assert!(pool.take(&pool.home(key(), Purpose::Question).await).is_some());
    }

    #[tokio::test]
    async fn who_waited_long_enough_goes_on() {
        let pool = Pool::new(Duration::from_secs(60), Duration::from_millis(1));
        let mut homes = Vec::new();
        for _ in 0..QUESTIONS_PER_HOST_MAX {
            homes.push(pool.home(key(), Purpose::Question).await);
        }
        assert!(homes.iter().all(|home| home._turn.is_some()));
        assert!(pool.home(key(), Purpose::Question).await._turn.is_none());
        homes.pop();
        assert!(pool.home(key(), Purpose::Question).await._turn.is_some());
        assert!(pool.home(key(), Purpose::Lane).await._turn.is_some(), "each has a limit of its own");
    }
}

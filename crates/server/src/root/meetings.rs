//! Third-party copies over root://, the source's side: clients say which server may read a file that they have open, and
//! servers come for it.
//!
//! What a server may read that comes is what the client may read that has said so: that was checked when the client opened the
//! file. For reading that file its own rights do not count; for all else they do. It is known by the key, by the client for whom it says that it comes, and by its
//! address, which is compared with that of the host that the client has named. The machine is
//! [`Rendezvous`].

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gridlane_core::{Secret, Time, limits};
use gridlane_net::Names;
use gridlane_xrd::ErrorCode;
use gridlane_xrd::third_party::{Arrived, EntryId, Fetch, Full, Host, Origin, Rendezvous, WaitId, Word};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::export::{Place, Spot};
use gridlane_front::client::Client;
use gridlane_front::root::answer::Failure;

/// The words of clients, and the servers that wait for one: those of all generations of settings.
pub(crate) struct Meetings {
    began: Instant,
    state: Mutex<State>,
    names: Names,
}

#[derive(Default)]
struct State {
    rendezvous: Rendezvous<Arc<Spot>>,
    /// Told when the word has come that they wait for.
    waiting: HashMap<WaitId, oneshot::Sender<Arc<Spot>>>,
}

impl Default for Meetings {
    fn default() -> Meetings {
        Meetings { began: Instant::now(), state: Mutex::default(), names: Names::default() }
    }
}

/// A client's word, which counts until this is dropped.
pub(crate) struct Spoken {
    meetings: Arc<Meetings>,
    id: EntryId,
}

impl Drop for Spoken {
    fn drop(&mut self) {
        self.meetings.lock().rendezvous.forget(self.id);
    }
}

/// A server that waits.
struct Waiting<'a> {
    meetings: &'a Meetings,
    id: WaitId,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.meetings.lock();
        state.rendezvous.leave(self.id);
        state.waiting.remove(&self.id);
    }
}

impl Meetings {
    /// Takes a client's word that a server may read a file, which the client itself may, and has opened.
    pub(crate) async fn register(
        self: &Arc<Meetings>,
        spot: &Spot,
        login: String,
        key: &Secret,
        destination: &Host,
        ttl: Duration,
    ) -> Result<Spoken, Failure> {
        let word = Word {
            key: key.clone(),
            login,
            client: spot.client.address,
            path: path_of(spot),
            destinations: self.addresses(spot.client.address, destination).await,
            ttl,
        };
        let grant = Arc::new(spot.at(spot.object.clone()));
        let mut state = self.lock();
        let (id, waited) = state.rendezvous.register(self.now(), word, Arc::clone(&grant)).map_err(full)?;
        for id in waited {
            if let Some(waiting) = state.waiting.remove(&id) {
                // One that has left meanwhile needs nothing.
                let _ = waiting.send(Arc::clone(&grant));
            }
        }
        drop(state);
        Ok(Spoken { meetings: Arc::clone(self), id })
    }

    /// The place of a file that a server comes for, when the client has said that it may read it: there it may be opened to be
    /// read, and nothing else without rights of its own. Waits for the client's word for a while.
    pub(crate) async fn fetch(
        &self,
        server: &Client,
        place: &Place,
        key: &Secret,
        origin: &Origin,
    ) -> Result<Spot, Failure> {
        let peer = server.address;
        // A path that leads nowhere takes as long: nobody learns which there are.
        let path = match place {
            Place::Inside(spot) => path_of(spot),
            Place::Above(_) | Place::Nowhere => Vec::new(),
        };
        let clients = self.addresses(peer, &origin.host).await;
        let fetch = Fetch { key: key.clone(), login: origin.login.clone(), clients, path, peer };
        let (waiting, granted) = {
            let mut state = self.lock();
            match state.rendezvous.arrive(self.now(), fetch).map_err(full)? {
                Arrived::Granted(spot) => return Ok(spot.of_client(server)),
                Arrived::Waits(id, _) => {
                    let (tell, granted) = oneshot::channel();
                    state.waiting.insert(id, tell);
                    (Waiting { meetings: self, id }, granted)
                }
            }
        };
        let granted = timeout(limits::ROOT_RENDEZVOUS_TTL, granted).await;
        drop(waiting);
        match granted {
            Ok(Ok(spot)) => Ok(spot.of_client(server)),
            _ => {
                let failure = Failure::new(ErrorCode::NOT_AUTHORIZED, EXPIRED);
                server.noted("no word of a client for this server and file".to_owned());
                Err(failure)
            }
        }
    }

    /// The host of a client, as servers tell each other: by the name that leads to its address, where it has one, as XRootD has
    /// it.
    pub(crate) async fn host(&self, address: IpAddr) -> Host {
        let name = match address.is_loopback() {
            true => None,
            false => self.names.name(address).await,
        };
        name.and_then(|name| Host::parse(name.as_bytes())).unwrap_or_else(|| Host::of(address))
    }

    async fn addresses(&self, client: IpAddr, host: &Host) -> Vec<IpAddr> {
        match host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => self.names.addresses(client, name).await,
        }
    }

    fn now(&self) -> Time {
        Time::from_origin(self.began.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete in itself.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// XRootD's words.
const EXPIRED: &str = "tpc authorization expired";

/// A path in the form in which all paths of a file are the same.
fn path_of(spot: &Spot) -> Vec<u8> {
    let mut path = Vec::new();
    for name in spot.names() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    path
}

fn full(_: Full) -> Failure {
    Failure::new(ErrorCode::OVERLOADED, "too many third-party copies wait for each other; try again later")
}

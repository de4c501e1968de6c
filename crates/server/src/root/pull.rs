//! Third-party copies over root://, the destination's side: a file that is opened to be fetched from another server.
//!
//! The open remembers the copy, the first `sync` begins it, and the next ones are answered when it has ended. The file is seen
//! when all of it is there, as with COPY over HTTP, whose copies these are ([`third_party`](crate::third_party)). Closing the file
//! before, or the end of the session, ends the copy, and nothing of it stays.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use gridlane_auth::Operation;
use gridlane_core::{ErrorKind, limits};
use gridlane_dav::ResourcePath;
use gridlane_engine::Options;
use gridlane_peer::Credentials;
use gridlane_store::storage::FileIdentity;
use gridlane_store::{Completion, Expectation, Metadata, NodeKind, StoreError};
use gridlane_xrd::ErrorCode;
use gridlane_xrd::flags::OpenOptions;
use gridlane_xrd::request::Open;
use gridlane_xrd::third_party::Destination;

use super::places::{Context, allowed, denied};
use crate::export::{MayStore, Spot};
use crate::mkcol::missing_that_may_not_be_made;
use crate::third_party::ends::Landing;
use crate::third_party::running::{self, Asked, Goal, Job, Phase, Running};
use crate::third_party::{Context as CopyContext, ThirdParty, refusal};
use gridlane_front::root::answer::{Failure, printable_path};

/// The verb of messages.
const ACT: &str = "create";

/// A copy that an open file is for.
pub(crate) struct Pull {
    third_party: Arc<ThirdParty>,
    destination: Destination,
    spot: Spot,
    landing: Landing,
    mode: u32,
    opened: SystemTime,
    state: Mutex<State>,
}

enum State {
    /// Nobody has asked for it yet.
    Idle,
    Running(Running),
    /// It was given up.
    Cancelled,
}

impl Pull {
    /// Remembers a copy to a place, if it may be made there. The caller holds the lock of the path.
    pub(crate) async fn open(
        context: &Context,
        request: &Open,
        spot: &Spot,
        destination: &Destination,
    ) -> Result<Pull, Failure> {
        let about = &request.about;
        let failed = |error: &StoreError| Failure::of_store(ACT, &about.path, error);
        let Some(third_party) = &context.service().third_party else {
            let path = printable_path(&about.path);
            let what =
                format!("Unable to {ACT} {path}; tpc not supported: this server makes no third-party copies");
            return Err(Failure::new(ErrorCode::UNSUPPORTED, what));
        };
        let bytes_max = spot.export.upload_bytes_max;
        if destination.size_bytes.is_some_and(|bytes| bytes > bytes_max) {
            return Err(Failure::of_size(ACT, &about.path, bytes_max));
        }
        let parents = request.options.makes_parents();
        let current = match spot.storage().look(&spot.object).await {
            Ok(_) if request.options.has(OpenOptions::NEW) => return Err(failed(&StoreError::Unexpected)),
            Ok(metadata) if metadata.is_directory() => return Err(failed(&StoreError::NotAFile)),
            Ok(metadata) => Some(metadata),
            Err(StoreError::NotFound) => None,
            Err(StoreError::ParentMissing) if parents => None,
            Err(error) => return Err(failed(&error)),
        };
        if current.is_none() && !request.options.creates() {
            return Err(failed(&StoreError::NotFound));
        }
        let may = spot.may_store(current.is_some()).map_err(|denial| denied(spot, about, ACT, denial))?;
        let expectation = match (&current, may) {
            (None, MayStore::New) => Expectation::Absent,
            _ if request.options.has(OpenOptions::NEW) => Expectation::Absent,
            (Some(current), MayStore::Instead) => Expectation::Tag(current.tag.clone()),
            _ => Expectation::Anything,
        };
        if let Some((parent, _)) = spot.object.split_last().filter(|_| current.is_none()) {
            if parents {
                let missing = missing_that_may_not_be_made(spot, &parent).await;
                if let Some(refused) = missing.map_err(|error| failed(&error))? {
                    allowed(&refused, about, ACT, Operation::Mkdir)?;
                }
            } else {
                spot.storage().look(&parent).await.map_err(|error| failed(&error))?;
            }
        }
        let keys = third_party.journal_keys(&spot.client.identity);
        let landing = Landing::new(spot, Completion::from(expectation), keys);
        Ok(Pull {
            third_party: Arc::clone(third_party),
            destination: destination.clone(),
            spot: spot.at(spot.object.clone()),
            landing: landing.making(parents, destination.size_bytes),
            mode: u32::from(request.mode),
            opened: SystemTime::now(),
            state: Mutex::new(State::Idle),
        })
    }

    /// Begins with it; when it has begun before, waits until it has ended.
    pub(crate) async fn sync(&self, context: &Context, path: &[u8]) -> Result<(), Failure> {
        let has_begun = !matches!(*self.lock(), State::Idle);
        if !has_begun {
            let job = self.job(context).await?;
            let mut state = self.lock();
            if matches!(*state, State::Idle) {
                *state = State::Running(self.begin(context, job)?);
                return Ok(());
            }
        }
        let end = match &*self.lock() {
            State::Running(running) => running.end(),
            State::Idle | State::Cancelled => return Err(cancelled()),
        };
        end.await.map_err(|failure| self.failure(path, &failure))
    }

    async fn job(&self, context: &Context) -> Result<Job, Failure> {
        let origin = context.service().meetings.origin(context).await;
        let wrong = |wrong| Failure::new(ErrorCode::ARG_INVALID, format!("Unable to sync; {wrong}"));
        let source = self.destination.url_for(&origin).map_err(wrong)?;
        let identity = &self.spot.client.identity;
        let (client, connections) = self.third_party.client_of(identity);
        let credentials = Credentials::forwarding(connections, Vec::new())
            .map_err(|error| Failure::new(ErrorCode::SERVER_ERROR, refusal::cause(&error)))?;
        let path = ResourcePath::of_names(self.spot.names()).to_string();
        Ok(Job {
            sources: vec![source],
            stored: None,
            goal: Goal::Here(self.landing.clone()),
            client: client.credentials(credentials),
            options: Options {
                size_bytes_max: Some(self.spot.export.upload_bytes_max),
                // xrdcp says one always.
                streams: self.destination.streams.filter(|streams| *streams > 1).map(usize::from),
                require_verified: self.destination.checksum.is_some(),
                checksum: self.destination.checksum.clone(),
                patience: limits::THIRD_PARTY_PATIENCE,
                ..Options::default()
            },
            asked: Asked {
                id: context.front().new_id(),
                client: self.spot.client.clone(),
                copy: "pull",
                path,
                client_info: None,
                at: Instant::now(),
            },
        })
    }

    fn begin(&self, context: &Context, job: Job) -> Result<Running, Failure> {
        let Some(place) = self.third_party.place() else {
            let what = "too many third-party copies run and wait on this server; try again later";
            return Err(Failure::new(ErrorCode::OVERLOADED, what));
        };
        let (front, third_party) = (Arc::clone(context.front()), Arc::clone(&self.third_party));
        Ok(Running::begin(CopyContext { front, third_party }, job, place, context.stopping.clone()))
    }

    /// Bytes of the file that are written.
    pub(crate) fn done_bytes(&self) -> u64 {
        match &*self.lock() {
            State::Running(running) => running.done_bytes(),
            State::Idle | State::Cancelled => 0,
        }
    }

    /// What is told of the file while it is open: it has the bytes that are written.
    pub(crate) fn metadata(&self) -> Metadata {
        Metadata {
            kind: NodeKind::File,
            size_bytes: self.done_bytes(),
            modified: self.opened,
            changed: self.opened,
            created: None,
            tag: String::new(),
            identity: FileIdentity { device: 0, number: 0 },
            mode: self.mode & 0o7777,
            owner: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
        }
    }

    /// Ends it, unless it has ended, and waits for that; true if it had begun and not ended.
    pub(crate) async fn cancel(&self) -> bool {
        let before = {
            let mut state = self.lock();
            if let State::Running(running) = &*state
                && matches!(running.phase(), Phase::Ended(_))
            {
                // How it has ended stays known.
                return false;
            }
            std::mem::replace(&mut *state, State::Cancelled)
        };
        let State::Running(running) = before else { return false };
        running.cancel();
        let _ = running.end().await;
        true
    }

    /// The failure of a copy as its client is told it.
    fn failure(&self, path: &[u8], failure: &running::Failure) -> Failure {
        let error = &failure.error;
        let code = match error.kind() {
            ErrorKind::Interrupted if matches!(*self.lock(), State::Cancelled) => return cancelled(),
            ErrorKind::Precondition => ErrorCode::ITEM_EXISTS,
            ErrorKind::LocalIo if error.is_no_space() => ErrorCode::NO_SPACE,
            ErrorKind::LocalIo => ErrorCode::IO_ERROR,
            ErrorKind::ChecksumMismatch => ErrorCode::CHECKSUM_ERROR,
            // XRootD's code for whatever its program says.
            _ => ErrorCode::FS_ERROR,
        };
        Failure::new(code, format!("Unable to sync {}; {}", printable_path(path), refusal::cause(error)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete in itself.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// XRootD's words.
pub(crate) fn cancelled() -> Failure {
    Failure::new(ErrorCode::CANCELLED, "destination file prematurely closed")
}

//! The destination's side of a third-party copy over root://: an open file that is fetched from another server.
//!
//! ```text
//! opened ─▶ idle ─▶ running ─▶ ended      seen, or as it was before
//!             └────────┴─▶ cancelled      nothing of it stays
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use gridlane_core::ErrorKind;
use gridlane_front::Stopping;
use gridlane_front::front::Front;
use gridlane_store::storage::FileIdentity;
use gridlane_store::{Metadata, NodeKind};
use gridlane_xrd::ErrorCode;
use gridlane_xrd::third_party::Destination;

use crate::export::Spot;
use crate::third_party::ends::Landing;
use crate::third_party::running::{self, Job, Phase, Running};
use crate::third_party::{Context as CopyContext, ThirdParty, refusal};
use gridlane_front::root::answer::{Failure, printable_path};

/// A copy that an open file is for.
pub(crate) struct Pull {
    pub(crate) third_party: Arc<ThirdParty>,
    /// What the client wants.
    pub(crate) destination: Destination,
    pub(crate) spot: Spot,
    /// Where the bytes go.
    pub(crate) landing: Landing,
    /// The permissions that the client has asked for.
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
    /// Remembers a copy.
    pub(crate) fn new(
        third_party: &Arc<ThirdParty>,
        destination: &Destination,
        spot: &Spot,
        landing: Landing,
        mode: u16,
    ) -> Pull {
        Pull {
            third_party: Arc::clone(third_party),
            destination: destination.clone(),
            spot: spot.at(spot.object.clone()),
            landing,
            mode: u32::from(mode),
            opened: SystemTime::now(),
            state: Mutex::new(State::Idle),
        }
    }

    /// True if it was asked for.
    pub(crate) fn has_begun(&self) -> bool {
        !matches!(*self.lock(), State::Idle)
    }

    /// Begins with it, unless it was begun with meanwhile.
    pub(crate) fn begin(&self, front: &Arc<Front>, job: Job, stopping: Stopping) -> Result<(), Failure> {
        let mut state = self.lock();
        if matches!(*state, State::Idle) {
            let Some(place) = self.third_party.place() else {
                let what = "too many third-party copies run and wait on this server; try again later";
                return Err(Failure::new(ErrorCode::OVERLOADED, what));
            };
            let (front, third_party) = (Arc::clone(front), Arc::clone(&self.third_party));
            let running = Running::begin(CopyContext { front, third_party }, job, place, stopping);
            *state = State::Running(running);
        }
        Ok(())
    }

    /// Waits until it has ended.
    pub(crate) async fn end(&self, path: &[u8]) -> Result<(), Failure> {
        let end = match &*self.lock() {
            State::Running(running) => running.end(),
            State::Idle | State::Cancelled => return Err(cancelled()),
        };
        end.await.map_err(|failure| self.failure(path, &failure))
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

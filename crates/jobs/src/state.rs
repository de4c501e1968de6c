//! States of files and of jobs, by FTS3's names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An enumeration whose values have a name each, which stays.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $text)] $variant,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl FromStr for $name {
            type Err = ();

            fn from_str(text: &str) -> Result<$name, ()> {
                $name::ALL.iter().copied().find(|one| one.name() == text).ok_or(())
            }
        }
    };
}

named! {
    /// The state of a file.
    FileState {
        /// Waits to be copied.
        Submitted = "SUBMITTED",
        /// Chosen, and on its way to a worker.
        Ready = "READY",
        /// Being copied.
        Active = "ACTIVE",
        /// Waits to be brought from tape.
        Staging = "STAGING",
        /// Being brought from tape.
        Started = "STARTED",
        /// Copied, and waits to be on tape.
        Archiving = "ARCHIVING",
        /// Waits for a hop before it, or for a replica before it to fail.
        NotUsed = "NOT_USED",
        /// Would be SUBMITTED, but for a storage that is banned.
        OnHold = "ON_HOLD",
        /// Would be STAGING, but for a storage that is banned.
        OnHoldStaging = "ON_HOLD_STAGING",
        /// Waits for a token that can be refreshed.
        TokenPrep = "TOKEN_PREP",
        /// To be copied now, whatever the limits say.
        ForceStart = "FORCE_START",
        /// Done.
        Finished = "FINISHED",
        /// Not done, for good.
        Failed = "FAILED",
        /// Not wanted any more.
        Canceled = "CANCELED",
    }
}

named! {
    /// The state of a job.
    JobState {
        /// No file has begun.
        Submitted = "SUBMITTED",
        /// Files are being brought from tape, or wait for that.
        Staging = "STAGING",
        /// Files are being copied.
        Active = "ACTIVE",
        /// Every file that is not done waits to be on tape.
        Archiving = "ARCHIVING",
        /// All files are done.
        Finished = "FINISHED",
        /// Files have failed, and none is done.
        Failed = "FAILED",
        /// Some files are done, others have failed.
        FinishedDirty = "FINISHEDDIRTY",
        /// It was cancelled.
        Canceled = "CANCELED",
    }
}

named! {
    /// The kind of a job.
    JobKind {
        /// Files that have nothing to do with each other.
        Plain = "N",
        /// Files of one link, by one session.
        Reuse = "Y",
        /// Replicas of one file, the next of which is used when one fails.
        Replicas = "R",
        /// Hops of one file, one after the other.
        Multihop = "H",
    }
}

impl FileState {
    /// True if it never changes again.
    pub fn is_final(self) -> bool {
        matches!(self, FileState::Finished | FileState::Failed | FileState::Canceled)
    }

    /// Its bit in [`FileStates`].
    fn bit(self) -> u16 {
        1 << (self as u16)
    }
}

impl JobState {
    /// True if it never changes again.
    pub fn is_final(self) -> bool {
        matches!(self, JobState::Finished | JobState::Failed | JobState::FinishedDirty | JobState::Canceled)
    }
}

/// A set of states of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileStates(u16);

impl FileStates {
    /// These.
    pub fn of(states: &[FileState]) -> FileStates {
        FileStates(states.iter().fold(0, |set, state| set | state.bit()))
    }

    /// All that are not final.
    pub fn live() -> FileStates {
        FileStates(
            FileState::ALL.iter().filter(|state| !state.is_final()).fold(0, |set, state| set | state.bit()),
        )
    }

    /// True if it has this one.
    pub fn has(self, state: FileState) -> bool {
        self.0 & state.bit() != 0
    }

    /// Those that it has.
    pub fn iter(self) -> impl Iterator<Item = FileState> {
        FileState::ALL.iter().copied().filter(move |state| self.has(*state))
    }
}

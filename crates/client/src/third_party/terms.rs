//! The words of a copy between servers: what is wished, which way it goes, and who made it.

use std::fmt;

use gridlane_core::{Checksum, Error};
use gridlane_engine::Observer;

/// Whether servers make copies between themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThirdParty {
    /// Where both ends are at servers and these can; else the bytes go through this process.
    #[default]
    Auto,
    /// Where they cannot, the copy fails.
    Only,
    /// The bytes go through this process.
    Never,
}

/// The server that is active in a copy between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The target's fetches the file.
    Pull,
    /// The source's uploads it.
    Push,
}

impl Mode {
    /// The name used in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Pull => "pull",
            Mode::Push => "push",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The wish of a user about copies between servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Whether servers make them.
    pub third_party: ThirdParty,
    /// In this way only; `None`: a pull, and if that does not do, a push.
    pub mode: Option<Mode>,
    /// True if the destination of a copy over root:// gets a proxy of the user's certificate, and reads the source with it: then the
    /// source needs to know nothing of third-party copies.
    pub delegates: bool,
}

/// What becomes of a copy whose right checksum is known, and of a kind that the target's server does not state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unstated {
    /// Checksums of another kind are compared with the source's, if both servers have one.
    #[default]
    Passes,
    /// The target is read, and its bytes come here.
    Reads,
    /// It fails.
    Fails,
}

/// A copy goes another way than it was to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detour {
    /// In this mode, after the other one did not do.
    OtherMode(Mode),
    /// The bytes go through this process.
    Streamed,
    /// The active server takes one source, and the others are not used.
    OneSource,
}

/// A server that has made a copy, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carrier {
    /// The way.
    pub mode: Mode,
    /// The active server, as the beginning of its URLs: `https://se.example:8443`.
    pub server: String,
}

/// The state of a copy that a server makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that the target has, by the word of the server that has it.
    pub done_bytes: u64,
    /// Bytes of the source, if that is known.
    pub size_bytes: Option<u64>,
}

/// A copy that a server has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Its length.
    pub size_bytes: u64,
    /// The checksum of the target, if it was compared with the source's or with one that was given.
    pub checksum: Option<Checksum>,
}

/// Hears of a file: of the engine, and of copies that servers make.
pub(crate) trait FileObserver: Observer {
    /// The copy goes another way than it was to go, for this reason.
    fn detour(&mut self, detour: Detour, why: &Error);
}

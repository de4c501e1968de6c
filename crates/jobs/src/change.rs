//! Changes of files' states, which a store makes one by one, each only from the states that it is for.

use crate::{FileId, FileState, FileStates};

/// A change of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The file.
    pub file: FileId,
    /// It is made only if the file is in one of these: a report that is late changes nothing.
    pub from: FileStates,
    /// It is made only if this broker has the file. `None`: whichever has it.
    pub if_host: Option<String>,
    /// The new state.
    pub to: FileState,
    /// When, in seconds since 1970.
    pub at_s: i64,
    /// What else is known now; what is `None` stays as it is.
    pub news: News,
}

/// What is known of a file when its state changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct News {
    /// The broker that has it from now on; `Some(None)`: none.
    pub transfer_host: Option<Option<String>>,
    /// Why it has failed.
    pub reason: Option<String>,
    /// Whether another attempt could help.
    pub is_recoverable: Option<bool>,
    /// An attempt has failed: it is kept with its reason, and counted.
    pub has_failed: bool,
    /// Not before this, in seconds since 1970.
    pub retry_after_s: Option<i64>,
    /// Bytes, as the source says.
    pub size_bytes: Option<u64>,
    /// Bytes that have moved.
    pub transferred_bytes: Option<u64>,
    /// Bytes per second.
    pub throughput_bytes_per_s: Option<f64>,
    /// Time of the copy, in seconds.
    pub duration_s: Option<f64>,
    /// Another number for sharing out: any broker may take it.
    pub hashed_id: Option<u16>,
    /// The number of the request to bring it from tape.
    pub bringonline_token: Option<String>,
    /// Words to be merged into its metadata: the field `dst_file`.
    pub dst_file: Option<serde_json::Value>,
}

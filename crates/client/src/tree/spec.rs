//! The request for a tree.

use gridlane_engine::Options;
use gridlane_store::journal_key::JournalKeys;

use super::names::{FailedList, NameList};
use super::roots::Roots;
use crate::copies::rules::Existing;
use crate::credentials::Lasting;
use crate::filter::Filter;
use crate::third_party::Wish;

/// Sources, a target, and the rules of a copy.
pub struct TreeSpec {
    /// Files and trees, with the directory that they go to.
    pub roots: Roots,
    /// Names below the only root, instead of everything that is there.
    pub names: Option<NameList>,
    /// The part of it that is wanted.
    pub filter: Filter,
    /// For every file.
    pub options: Options,
    /// The same as in a single file's [request](crate::CopyRequest::journal_keys).
    pub journal_keys: JournalKeys,
    /// The rule about targets that exist.
    pub existing: Existing,
    /// Targets get the time of the last change of their source.
    pub preserve_times: bool,
    /// True if symbolic links of this machine are followed; else they are skipped.
    pub follow_links: bool,
    /// True if the others are still copied when one has failed.
    pub continue_on_error: bool,
    /// A dry run: what would be done is told, and nothing is done.
    pub dry_run: bool,
    /// What servers copy between themselves, where both ends are at servers.
    pub wish: Wish,
    /// Files that are copied at the same time.
    pub parallel: usize,
    /// The end of the credentials that servers are shown, of which a warning is due.
    pub lasting: Option<Lasting>,
    /// Where the names of what failed go.
    pub failed: Option<FailedList>,
}

//! The knowledge that all tasks of a tree share.

use gridlane_engine::Options;
use gridlane_store::journal_key::JournalKeys;

use super::directories::Directories;
use super::roots::Root;
use crate::copies::file::Rules;
use crate::filter::Filter;
use crate::listing::Lister;
use crate::location::Location;
use crate::third_party::Initiator;

/// The knowledge that all tasks of a tree share.
pub(super) struct Shared {
    pub(super) lister: Lister,
    pub(super) roots: Vec<Root>,
    pub(super) target: Location,
    pub(super) directories: Directories,
    pub(super) filter: Filter,
    pub(super) options: Options,
    pub(super) journal_keys: JournalKeys,
    pub(super) rules: Rules,
    pub(super) initiator: Initiator,
    pub(super) follow_links: bool,
    /// Only named files are copied.
    pub(super) has_names: bool,
}

impl Shared {
    /// True if every directory of the tree is made, and not only those that files go to.
    pub(super) fn makes_all_directories(&self) -> bool {
        self.filter.is_empty() && !self.rules.dry_run && !self.has_names
    }
}

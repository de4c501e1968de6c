//! The messages from tasks to the run.

use gridlane_core::Error;

use super::event::About;
use super::job::Found;
use crate::tree_path::TreePath;

/// The messages from tasks to the run.
pub(super) enum News {
    Found(Vec<Found>),
    Noted(Note),
}

/// Something about a file that is being copied.
pub(super) struct Note {
    pub(super) name: TreePath,
    pub(super) url: Option<String>,
    pub(super) about: About,
    pub(super) error: Option<Error>,
}

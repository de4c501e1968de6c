//! How much room there is.

use gridlane_xrd::PathArg;
use gridlane_xrd::answer::SpaceText;

use super::super::answer::{Answer, Outcome};
use super::super::context::Context;
use super::super::stat;

/// How much room there is where a path is. May wait for the disk.
pub(super) fn space(context: &Context, about: &PathArg) -> Outcome {
    let (space, _) = stat::space(context, about, "statfs")?;
    let text = SpaceText {
        total_bytes: space.total_bytes,
        free_bytes: space.available_bytes,
        largest_bytes: space.available_bytes,
        used_bytes: space.used_bytes,
        // A quota is what the total says.
        quota_bytes: None,
    };
    Ok(Answer::text(text.encode()))
}

//! Room in file systems.

use gridlane_xrd::PathArg;
use gridlane_xrd::answer::SpaceText;

use super::super::places::Context;
use super::super::stat;
use gridlane_front::root::answer::{Answer, Outcome};

/// The room at a path.
pub(super) async fn space(context: &Context, about: &PathArg) -> Outcome {
    let (space, _) = stat::space(context, about, "statfs").await?;
    // Clients read numbers with a sign.
    let signed = |bytes: u64| bytes.min(u64::MAX >> 1);
    let text = SpaceText {
        total_bytes: signed(space.total_bytes),
        free_bytes: signed(space.available_bytes),
        largest_bytes: signed(space.available_bytes),
        used_bytes: signed(space.used_bytes),
        // A quota is what the total says.
        quota_bytes: None,
    };
    Ok(Answer::text(text.encode()))
}

//! Facts about a file, as CGI.

use gridlane_xrd::PathArg;
use gridlane_xrd::flags::StatFlags;

use super::super::places::Context;
use super::super::stat;
use gridlane_front::root::answer::{Answer, Outcome};

/// The facts that `stat` tells, as CGI.
pub(super) async fn xattr(context: &Context, about: &PathArg) -> Outcome {
    let text = stat::look(context, about).await?;
    let (kind, may_write) =
        (if text.is_directory() { 'd' } else { 'f' }, text.flags.has(StatFlags::WRITABLE));
    let (modified, more) = (text.modified_s, text.more.as_ref());
    let changed = more.map_or(modified, |more| more.changed_s);
    let accessed = more.map_or(modified, |more| more.accessed_s);
    let access = if may_write { 'w' } else { 'r' };
    // Its letters for privileges: all, or to look up and to read.
    let privileges = if may_write { "a" } else { "lr" };
    Ok(Answer::text(format!(
        "oss.cgroup=public&oss.type={kind}&oss.used={}&oss.mt={modified}&oss.ct={changed}&oss.at={accessed}\
         &oss.u=*&oss.g=*&oss.fs={access}&ofs.ap={privileges}",
        text.size_bytes
    )))
}

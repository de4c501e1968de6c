//! Which server has a file: this one.

use gridlane_xrd::PathArg;
use gridlane_xrd::answer::Location;
use gridlane_xrd::flags::LocateOptions;
use gridlane_xrd::request::Locate;

use super::answer::{Answer, Outcome};
use super::context::Context;
use super::stat::{self, Rights};
use crate::export::Place;

/// Answers `locate`. May wait for the disk.
///
/// The address is the one that the client reached, since that is known to lead here. A client that prefers names gets
/// the one that the operator says, if it came from another machine.
pub(crate) fn locate(context: &Context, request: &Locate) -> Outcome {
    let about = match request.about.path.strip_prefix(b"*") {
        Some(b"") => PathArg::new("/"),
        Some(path) => PathArg { path: path.to_vec(), cgi: Vec::new() },
        None => request.about.clone(),
    };
    let is_writable = match context.place(&about)? {
        Place::Inside(spot) => Rights::of(&spot).write,
        Place::Above(_) | Place::Nowhere => context.shared.exports.allow_write(),
    };
    stat::look(context, &about)?;
    let local = context.link.local.ip().to_canonical();
    let name = context.shared.root.server_name.as_ref();
    let named = name.filter(|_| request.options.has(LocateOptions::PREFER_NAMES) && !local.is_loopback());
    let location = Location {
        is_manager: false,
        is_pending: false,
        is_writable,
        host: named.cloned().unwrap_or_else(|| local.to_string()),
        port: context.link.local.port(),
    };
    let mut out = Vec::new();
    location.write(&mut out);
    Ok(Answer::text(out))
}

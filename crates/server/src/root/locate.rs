//! Which server has a file: this one.

use gridlane_xrd::PathArg;
use gridlane_xrd::answer::Location;
use gridlane_xrd::flags::LocateOptions;
use gridlane_xrd::request::Locate;

use super::places::{Context, Places as _};
use super::stat::{self, Rights};
use crate::export::Place;
use gridlane_front::root::answer::{Answer, Outcome};

/// Answers `locate`.
///
/// The address is the one that the client reached, since that is known to lead here. A client that prefers names gets
/// the operator's name for the server, if it came from another machine.
pub(crate) async fn locate(context: &Context, request: &Locate) -> Outcome {
    let about = match request.about.path.strip_prefix(b"*") {
        Some(b"") => PathArg::new("/"),
        Some(path) => PathArg { path: path.to_vec(), cgi: Vec::new() },
        None => request.about.clone(),
    };
    let is_writable = match context.place(&about)? {
        Place::Inside(spot) => Rights::of(&spot).writes(),
        Place::Above(_) | Place::Nowhere => context.service().exports.allow_write(),
    };
    stat::look(context, &about).await?;
    let local = context.link.local.ip().to_canonical();
    let name = context.front().root.server_name.as_ref();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::{arg, code, context, context_of, export_at, text, wait};
    use gridlane_front::root::context::Link;
    use gridlane_xrd::ErrorCode;
    use std::sync::Arc;

    fn found(context: &Context, path: &str, options: u16) -> Outcome {
        wait(locate(context, &Locate { about: arg(path), options: LocateOptions(options) }))
    }

    #[test]
    fn this_server_has_it() {
        let context = context();
        for path in ["/d/f", "/d", "*", "*/d", "*/d?x=y"] {
            assert_eq!(text(found(&context, path, 0x0501)), "Sw[::127.0.0.1]:1094\0", "{path}");
        }
        assert_eq!(code(found(&context, "/nope", 0)), ErrorCode::NOT_FOUND);
        assert_eq!(code(found(&context, "*/nope", 0)), ErrorCode::NOT_FOUND);
        let context = context_of(vec![export_at("/a")], |_| {});
        assert_eq!(text(found(&context, "/a/f", 0)), "Sr[::127.0.0.1]:1094\0");
    }

    #[test]
    fn by_name_from_other_machines() {
        let mut context = context_of(vec![export_at("/a")], |settings| {
            settings.root.server_name = Some("data.example".to_owned());
        });
        assert_eq!(text(found(&context, "/a/f", 0x0100)), "Sr[::127.0.0.1]:1094\0");
        let local = "[2001:db8::1]:1095".parse().unwrap();
        context.link = Arc::new(Link { local, ..(*context.link).clone() });
        assert_eq!(text(found(&context, "/a/f", 0x0100)), "Srdata.example:1095\0");
        assert_eq!(text(found(&context, "/a/f", 0)), "Sr[2001:db8::1]:1095\0");
    }
}

//! Statistics, as XML.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use gridlane_dav::listing::escape;

use super::super::places::Context;
use super::config::{VERSION, name};
use gridlane_front::root::answer::Answer;

/// The sections that the letters name, as far as there are such: `a` all, `i` info, `l` links, `p` the protocol.
/// Figures for operators are at the admin address.
pub(super) fn stats(context: &Context, letters: &[u8]) -> Answer {
    let service = context.service();
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (host, port) = (escape(&name(context)), context.link.local.port());
    let site = service.front.root.site_name.as_deref().map(escape).unwrap_or_default();
    let wants = |letter| letters.contains(&b'a') || letters.contains(&letter);
    let metrics = &service.front.data.metrics;
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write!(
        out,
        "<statistics tod=\"{now_s}\" ver=\"{VERSION}\" src=\"{host}:{port}\" tos=\"{}\" pgm=\"gridlane\" ins=\"anon\" site=\"{site}\">",
        service.front.started_s
    );
    if wants(b'i') {
        let _ =
            write!(out, "<stats id=\"info\"><host>{host}</host><port>{port}</port><name>anon</name></stats>");
    }
    if wants(b'l') {
        let _ = write!(
            out,
            "<stats id=\"link\"><num>{}</num><tot>{}</tot><in>{}</in><out>{}</out></stats>",
            metrics.open.get(),
            metrics.accepted.get(),
            metrics.bytes_in.get(),
            metrics.bytes_out.get()
        );
    }
    if wants(b'p') {
        let _ =
            write!(out, "<stats id=\"xrootd\"><num>{}</num></stats>", context.generation.sessions.count());
    }
    out.push_str("</statistics>");
    Answer::text(out)
}

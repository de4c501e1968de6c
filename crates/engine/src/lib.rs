//! The one engine: moves the bytes of one file from its replicas to its target.
//!
//! ```text
//!  sources ──lanes──▶ claim · hash · write · commit ──▶ target
//!                │            ▲ ledger (bytes by source, with checksums)
//!            notices          │
//!                ▼            │
//!               run ◀──▶ plan, judge (pure)   run ──▶ journal, observer
//! ```
//!
//! A *lane* is a task with a connection. The *run* is the one task that owns the plan: it gets notices from lanes,
//! asks the plan for the next actions, and sends commands to lanes. Data never passes through the run. The
//! [`judge`](gridlane_plan::judge) decides which bytes are right, which source is wrong and which ranges are fetched
//! again. It is as pure as the plan: the run passes events on to it and carries out its decisions (`judging`). Where
//! the checksums of pieces are known, lanes compare each piece when its last byte has come (`pieces`).
//!
//! Three kinds of lanes bring the bytes: over HTTP, over XRootD's protocol, and from a file of this machine or an open one of a
//! storage ([`StoredSource`]). One copy may have all of them.
//!
//! Small files, of which there are many, do without most of this: [`small`].
//!
//! A target is a [`gridlane_store::Target`] that takes bytes at any place, with a journal of what it has, or an
//! [`Output`] that takes them in order. Every operation that may wait for a device takes one of its turns (`target`,
//! `read_back`), so that one that hangs holds up no copy to another.
//!
//! A file that an application reads here and there, instead of copying it, is [`reading`]: with another planner, and lanes that
//! bring bytes to memory.
//!
//! The connections themselves, and the rules by which credentials are presented to servers, are those of `gridlane_peer`.
//!
//! What it is not: it copies no trees, parses no command lines and renders nothing. A second copy loop
//! anywhere else in gridlane is a defect.
//!
//! Read first: [`CopySpec`] and [`copy`], then `run`, `notices`, `judging`, `lane`.

mod digest_requests;
mod digests;
pub mod events;
mod governor;
mod journaling;
mod judge_errors;
mod judging;
mod lane;
mod learning;
mod links;
mod meter;
mod notice;
mod notices;
mod ordered;
mod output;
mod pace;
mod pieces;
mod read_back;
pub mod reading;
mod replica;
mod report;
mod resume;
mod retry;
mod run;
mod server_links;
pub mod small;
mod source;
mod spec;
mod target;
mod ticks;
mod trouble;
mod upload;
mod windows;

use std::future::Future;

use governor::Governor;
use gridlane_core::{Boxed, ErrorKind, Time};
use gridlane_peer::Client;

pub use events::{Event, Limit, Observer, Report, Snapshot, State};
pub use lane::threads_are_few;
pub use links::FoundMetalink;
pub use output::{Manner, Output, Pipe, Stored, Waits};
pub use spec::{CopySpec, OpenTarget, Options, Outcome, StoredSource, TargetSpec};

pub use gridlane_plan::judge::{Basis, Known, PieceHashes};

/// Forgets the copies of this process: for the child of a fork, where those of the parent never end, and would keep their places,
/// memory and turns for ever. To be called before anything else of gridlane in such a process, and while nothing of it runs.
pub fn forget_copies() {
    Governor::of_process().forget();
    ordered::forget();
    lane::forget();
    reading::forget();
    gridlane_peer::descriptors::forget_copies();
    gridlane_store::forget_devices();
}

/// Copies one file. Ends early, resumable where the target keeps a journal, when `stop` completes.
///
/// An upload whose connection broke, or was refused, is begun anew for a while: its server may be being started again.
///
/// Needs tokio's multi-threaded runtime: file writes block the thread they are on.
pub fn copy<'a>(
    spec: CopySpec,
    client: Client,
    observer: &'a mut dyn Observer,
    stop: impl Future<Output = ()> + Send + 'a,
) -> Boxed<'a, Outcome> {
    copy_until(spec, client, observer, Box::pin(stop))
}

fn copy_until<'a>(
    spec: CopySpec,
    client: Client,
    observer: &'a mut dyn Observer,
    mut stop: Boxed<'a, ()>,
) -> Boxed<'a, Outcome> {
    Box::pin(async move {
        let CopySpec { sources, mut target, options } = spec;
        let began = std::time::Instant::now();
        let mut retry = retry::Retry::new(options.patience);
        // Of an attempt that has sent all bytes and was not answered.
        let mut sent: Option<Report> = None;
        let (user, endpoints) = (client.credentials.identity().id(), governor::endpoints(&sources, &target));
        let governor = Governor::of_process();
        let window_bytes = governor::least_window(&target, options.known.pieces.as_ref());
        let mut place = tokio::select! {
            place = governor.place(user, endpoints, window_bytes) => place,
            () = stop.as_mut() => return run::not_begun(&sources, began.elapsed()),
        };
        // Waiting for a place says nothing of servers.
        let placed_at = std::time::Instant::now();
        loop {
            let next = retry::same_target(&target);
            let spec = CopySpec { sources: sources.clone(), target, options: options.clone() };
            let (outcome, is_stuck) =
                run::run(spec, client.clone(), &mut place, observer, stop.as_mut()).await;
            if let (Err(error), Some(TargetSpec::Upload { url, .. }), Some(report)) =
                (&outcome.result, &next, &sent)
                && error.kind() == ErrorKind::Precondition
                && retry::has_what_was_sent(&client, url, report, &options).await
                && let Some(report) = sent.take()
            {
                if let Some(checksum) = &report.checksum {
                    observer.event(&Event::Verified { checksum, basis: report.verified });
                }
                return Outcome { report, result: Ok(()), metalink: None };
            }
            let (Err(error), Some(next), false) = (&outcome.result, next, is_stuck) else { return outcome };
            let now = Time::from_origin(placed_at.elapsed());
            let Some(pause) = retry.after(error, now) else { return outcome };
            tokio::select! {
                () = tokio::time::sleep(pause) => target = next,
                () = stop.as_mut() => return outcome,
            }
            sent = Some(outcome.report).filter(retry::is_whole).or(sent);
        }
    })
}

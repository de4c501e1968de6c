//! Changes of names happen in the order in which they were asked for.
//!
//! Requests of one connection are answered by tasks at the same time. XRootD does one after the other, and clients that
//! remove a tree (fsspec-xrootd) rely on it: all requests are sent at once, those for directories behind those for what
//! is in them.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use gridlane_xrd::request::About;
use gridlane_xrd::{PathArg, Request};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use crate::export::Place;
use crate::root::context::Context;

/// The changes of one connection, in the order in which they began: per export, since a storage that hangs is nothing to
/// the others.
#[derive(Default)]
pub(crate) struct Changes {
    /// The last change in each export that has one under way, by the export's address.
    last: HashMap<usize, oneshot::Receiver<Infallible>>,
}

/// The place of one change among them: the next one begins when this is dropped.
pub(crate) struct Turn {
    before: Option<oneshot::Receiver<Infallible>>,
    _done: oneshot::Sender<Infallible>,
}

impl Changes {
    /// A place behind all others of its export, for a request that changes names in one.
    pub(crate) fn turn_of(&mut self, context: &Context, request: &Request) -> Option<Turn> {
        let Ok(Place::Inside(spot)) = context.place(changed(request)?) else { return None };
        self.last.retain(|_, last| last.try_recv() == Err(TryRecvError::Empty));
        let (_done, last) = oneshot::channel();
        Some(Turn { before: self.last.insert(Arc::as_ptr(&spot.export).addr(), last), _done })
    }
}

impl Turn {
    /// Waits until the change before this one is done.
    pub(crate) async fn come(&mut self) {
        if let Some(before) = self.before.take() {
            let Err(_) = before.await;
        }
    }
}

/// The path at which a request changes what is found, or its mode or size.
pub(crate) fn changed(request: &Request) -> Option<&PathArg> {
    match request {
        Request::Mkdir(mkdir) => Some(&mkdir.about),
        Request::Rm(rm) => Some(&rm.about),
        Request::Rmdir(rmdir) => Some(&rmdir.about),
        Request::Mv(mv) => Some(&mv.from),
        Request::Chmod(chmod) => Some(&chmod.about),
        Request::Truncate(truncate) => match &truncate.about {
            About::Path(about) => Some(about),
            About::Handle(_) => None,
        },
        _ => None,
    }
}

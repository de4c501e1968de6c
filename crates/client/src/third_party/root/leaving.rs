//! The destination while it is open, and how it is left.

use gridlane_core::limits::ROOT_TPC_LEAVE_MAX;
use gridlane_core::{Result, Url};
use gridlane_peer::patience::timeout;
use gridlane_peer::root::{Client, OpenFile};
use gridlane_xrd::request::{Query, Sync};
use gridlane_xrd::{QueryKind, StreamId};

use super::words::at_target;

/// The order to end a copy, to XRootD's servers and those that do as they do.
const CANCEL: &[u8] = b"ofs.tpc cancel";

/// A destination that is open.
pub(super) struct Target {
    pub(super) file: OpenFile,
    /// True from the second sync to its answer.
    pub(super) is_under_way: bool,
    /// True if nothing had the name before.
    is_new: bool,
}

/// A destination that is closed.
pub(super) struct Made {
    /// Its URL at the server that has it.
    pub(super) url: Url,
    is_new: bool,
}

impl Target {
    pub(super) fn new(file: OpenFile, is_new: bool) -> Target {
        Target { file, is_under_way: false, is_new }
    }

    /// Has the copy begin. The answer comes when it is made.
    pub(super) async fn begin(&mut self) -> Result<StreamId> {
        let stream = self.file.send(|handle| Sync { handle }, &[]).await?;
        self.is_under_way = true;
        Ok(stream)
    }

    /// Closes it when all is there. If that fails, what was made is removed.
    pub(super) async fn close(self, client: &Client) -> Result<Made> {
        let Target { file, is_new, .. } = self;
        let made = Made { url: file.url.clone(), is_new };
        match file.close().await {
            Ok(()) => Ok(made),
            Err(error) => {
                let error = at_target(error, &made.url);
                made.remove(client).await;
                Err(error)
            }
        }
    }

    /// Ends the copy, and removes what is there of it if this copy has made that.
    pub(super) async fn leave(self, client: &Client) {
        let Target { mut file, is_under_way, is_new } = self;
        if is_under_way {
            let cancel = |handle| Query { handle, ..Query::new(QueryKind::OPAQUE_HANDLE, CANCEL) };
            // A server that has not begun, or cannot stop, ends the copy when the file is closed.
            let _ = timeout(ROOT_TPC_LEAVE_MAX, file.call(cancel)).await;
        }
        let made = Made { url: file.url.clone(), is_new };
        let _ = timeout(ROOT_TPC_LEAVE_MAX, file.close()).await;
        made.remove(client).await;
    }
}

impl Made {
    /// Removes it if this copy has made it.
    pub(super) async fn remove(self, client: &Client) {
        if self.is_new {
            let _ = timeout(ROOT_TPC_LEAVE_MAX, crate::root::rm(client, &self.url)).await;
        }
    }
}

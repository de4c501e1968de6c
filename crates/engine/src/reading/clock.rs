//! Wakes the planner of a file when it wants to be.

use std::sync::{Arc, Weak};

use super::shared::Shared;

/// Runs until the file is closed.
pub(super) async fn run(shared: Weak<Shared>) {
    loop {
        let Some(now) = shared.upgrade() else { return };
        let due = now.state().reader.deadline().map(|due| now.instant(due));
        let earlier = Arc::clone(&now);
        drop(now);
        let is_due = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = earlier.earlier.notified() => {}
            () = is_due => earlier.drive(|_, _| {}),
        }
        if earlier.state().reader.is_closed() {
            return;
        }
    }
}

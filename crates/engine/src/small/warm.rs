//! Connections that are made while the directories are still being listed.
//!
//! Over a long path a listing takes as long as connecting does, and every connection has a slow start of its own. So once the
//! root of a tree is listed, connections are made while its directories are, and the first files find as many as the path needs.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use gridlane_core::Url;
use gridlane_peer::http::Purpose;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::fetch::fetchers_for;
use super::{Origin, Shared};

/// Makes connections to the server of `url` and leaves them in the pool: one, and over a long path the others as soon as the
/// first shows how long it is, with as many `others` besides. Errors are ignored: the listing of the directory meets
/// them again.
pub(super) async fn run(
    shared: Arc<Shared>,
    origin: Arc<Origin>,
    url: Url,
    others: usize,
    mut stop: watch::Receiver<bool>,
) {
    tokio::select! {
        () = connect(&shared, &origin, &url, others) => {}
        // An error: the sender of the stop is gone.
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

async fn connect(shared: &Arc<Shared>, origin: &Origin, url: &Url, more: usize) {
    let (tell, mut told) = watch::channel(Duration::ZERO);
    let first = async move {
        let reached = |round_trip| {
            tell.send_replace(round_trip);
        };
        let _ = shared.client.http.connect_telling(url, url, Purpose::Lane, true, &reached).await;
    };
    let others = async {
        // An error: no connection was made.
        let Ok(round_trip) = told.wait_for(|round_trip| !round_trip.is_zero()).await.map(|found| *found)
        else {
            return;
        };
        if !shared.bounds.is_long(round_trip) {
            return;
        }
        let wanted = fetchers_for(round_trip, &shared.bounds);
        let mut connecting = JoinSet::new();
        for _ in 1..wanted + more {
            let (client, url) = (shared.client.clone(), url.clone());
            // Given back when it is dropped.
            connecting
                .spawn(async move { client.http.connect(&url, &url, Purpose::Lane, true).await.is_ok() });
        }
        // Each asks for one file, until the server is proven.
        origin.fetchers_wanted.fetch_max(wanted, Relaxed);
        while connecting.join_next().await.is_some() {}
    };
    tokio::join!(first, others);
}

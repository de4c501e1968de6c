//! The wish that something which is under way stops.

use gridlane_core::{Error, ErrorKind, Fault};
use tokio::sync::watch;

/// Completes when what listens here is told to stop.
pub(crate) async fn told(mut stop: watch::Receiver<bool>) {
    if stop.wait_for(|is_stopped| *is_stopped).await.is_err() {
        // Nothing can stop it any more.
        std::future::pending::<()>().await;
    }
}

/// A person or a signal has stopped it.
pub(crate) fn stopped() -> Error {
    Error::new(ErrorKind::Interrupted, "stopped").fault(Fault::Caller)
}

//! Answers that are not wanted any longer when the client has left.

use std::pin::pin;

use gridlane_dav::Status;
use gridlane_net::Stream;

use crate::reply::Reply;

/// An answer, unless the client leaves before it is there.
pub async fn while_connected(stream: &Stream, answer: impl Future<Output = Reply>) -> Reply {
    let mut answer = pin!(answer);
    tokio::select! {
        biased;
        reply = &mut answer => reply,
        () = stream.closed() => client_left(),
    }
}

/// The answer to a client that has left, which is for the log only.
pub fn client_left() -> Reply {
    let mut reply = Reply::new(Status::CLIENT_LEFT).closing();
    reply.cause = Some("the client left before it was answered".to_owned());
    reply
}

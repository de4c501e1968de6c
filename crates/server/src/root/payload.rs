//! What follows the head of a request that brings bytes: read from the connection piece by piece, never collected.

use gridlane_xrd::ErrorCode;
use tokio::task::coop::consume_budget;

use super::answer::Failure;
use super::context::Context;
use crate::body::{BodyError, Wire, take};
use crate::transfer::Patience;

/// The bytes behind a head.
pub(crate) struct Payload<'a> {
    context: &'a Context,
    wire: &'a mut Wire,
    patience: Patience,
    left: u64,
}

impl<'a> Payload<'a> {
    /// `len` bytes that follow on this connection.
    pub(crate) fn new(context: &'a Context, wire: &'a mut Wire, len: u64) -> Payload<'a> {
        Payload { context, wire, patience: Patience::new(&context.shared.deadlines), left: len }
    }

    /// Bytes that were not read yet.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Says that more bytes follow than the head tells.
    pub(crate) fn extend(&mut self, bytes: u64) {
        self.left = self.left.saturating_add(bytes);
    }

    /// Fills `target` with the next bytes, of which there have to be as many.
    pub(crate) async fn fill(&mut self, target: &mut [u8]) -> Result<(), Failure> {
        debug_assert!(target.len() as u64 <= self.left);
        let mut count = 0;
        while count < target.len() {
            // A client may send faster than we read: let others have their turn.
            consume_budget().await;
            let some = take(self.wire, &mut target[count..], &mut self.patience).await?;
            count += some;
            self.left = self.left.saturating_sub(some as u64);
        }
        Ok(())
    }

    /// Reads what is left and throws it away, so that the next request can be read.
    pub(crate) async fn drain(&mut self) -> Result<(), Failure> {
        if self.left == 0 {
            return Ok(());
        }
        let context = self.context;
        let mut buffer = context.shared.buffers.lend();
        while self.left > 0 {
            let step = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
            self.fill(&mut buffer[..step]).await?;
        }
        Ok(())
    }
}

impl From<BodyError> for Failure {
    fn from(error: BodyError) -> Failure {
        let (code, text) = match &error {
            BodyError::Stalled => (ErrorCode::REQUEST_TIMED_OUT, "no byte of the data came for too long"),
            BodyError::Slow => (ErrorCode::REQUEST_TIMED_OUT, "the data came too slowly"),
            BodyError::Cut(_) | BodyError::Malformed(_) => {
                (ErrorCode::CANCELLED, "the connection ended before the data did")
            }
        };
        let mut failure = Failure::new(code, text).closing();
        if let BodyError::Cut(Some(cause)) = &error {
            failure.cause = Some(cause.to_string());
        }
        failure
    }
}

//! Data that come on a connection, between its other business: while they are waited for, answers are sent.

use std::io;
use std::time::Instant;

use gridlane_xrd::request::WriteV;
use gridlane_xrd::{Request, RequestHead};

use super::connection::Connection;
use super::context::Context;
use super::intake::Intake;
use super::reading::Asked;
use crate::transfer::Patience;

/// A request whose data are coming.
pub(super) struct Receiving {
    asked: Asked,
    intake: Intake,
    patience: Patience,
    /// The client has sent nothing since then.
    waits_since: Option<Instant>,
    /// Its rate limit lets nothing be read before.
    held_until: Option<Instant>,
}

/// What came of taking data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// No request waits for data.
    All,
    /// As much as is taken between two looks at everything else.
    Some,
    /// Nothing more has come.
    Awaited,
}

impl Receiving {
    /// Until when nothing is to be read.
    pub(super) fn held_until(&self) -> Option<Instant> {
        self.held_until
    }

    /// Since when the client sends nothing.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        self.waits_since
    }
}

impl Connection {
    /// Begins to take what follows a head.
    pub(super) fn receive(&mut self, context: &Context, head: &RequestHead) {
        // A list of ranges is not kept for the log.
        let list = || Request::WriteV(WriteV { syncs: false, segments: Vec::new() });
        let request = Request::parse(head.id, &head.body, &[]).unwrap_or_else(|_| list());
        self.unanswered += 1;
        self.receiving = Some(Receiving {
            asked: Asked { stream: head.stream, request, began: Instant::now() },
            intake: Intake::new(context, head),
            patience: Patience::new(&context.shared.deadlines),
            waits_since: None,
            held_until: None,
        });
    }

    /// Takes data that have come, if a request waits for them.
    pub(super) async fn take_data(&mut self) -> io::Result<Taken> {
        let Some(receiving) = &mut self.receiving else { return Ok(Taken::All) };
        let Receiving { intake, patience, waits_since, held_until, .. } = receiving;
        while !intake.is_done() {
            let room = intake.room();
            if room.is_empty() {
                intake.write().await;
                return Ok(Taken::Some);
            }
            let now = Instant::now();
            if held_until.is_some_and(|until| until > now) {
                return Ok(Taken::Awaited);
            }
            *held_until = None;
            let ahead = self.wire.inbox.unread();
            let count = if ahead.is_empty() {
                match self.wire.stream.try_read(room)? {
                    Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Some(count) => count,
                    None => {
                        waits_since.get_or_insert(now);
                        return Ok(Taken::Awaited);
                    }
                }
            } else {
                let count = ahead.len().min(room.len());
                room[..count].copy_from_slice(&ahead[..count]);
                self.wire.inbox.consume(count);
                count
            };
            intake.took(count);
            let waited = waits_since.take().map_or_else(Default::default, |since| now - since);
            patience.note(count as u64, waited).map_err(|slow| slow.of_sending())?;
            if let Some(pace) = &self.pace {
                let wait = pace.owe(count as u64);
                if !wait.is_zero() {
                    *held_until = Some(now + wait);
                }
            }
        }
        if let Some(Receiving { asked, intake, .. }) = self.receiving.take() {
            let outcome = intake.finish().await;
            self.answered(&asked, outcome);
        }
        Ok(Taken::All)
    }
}

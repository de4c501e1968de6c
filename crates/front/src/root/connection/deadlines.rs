//! Deadlines of a connection, and what it gives back while nothing happens.

use std::io;
use std::time::{Duration, Instant};

use gridlane_core::limits;

use super::{Connection, Role};
use crate::root::session_files::SessionFiles as _;
use crate::service::Service;

/// Without a request for this long, a connection gives back its buffers.
const RELEASE_AFTER: Duration = Duration::from_secs(1);

/// Between two checks, when everything else is done, if bound connections are done as well.
const ELSEWHERE_PAUSE: Duration = Duration::from_millis(20);

impl<S: Service> Connection<S> {
    /// The latest time for the next look; an error when it is too late for something.
    pub(super) fn next_deadline(&mut self) -> io::Result<Option<Instant>> {
        let now = Instant::now();
        let deadlines = &self.front.data.deadlines;
        let mut next: Option<Instant> = None;
        let mut earliest = |at: Instant| next = Some(next.map_or(at, |next| next.min(at)));
        if let Some(until) = self.clock.held_until {
            earliest(until);
        }
        if (self.is_ending || self.is_draining) && self.is_answered_elsewhere() {
            earliest(now + ELSEWHERE_PAUSE);
        }
        if self.is_draining && !self.is_ending && self.is_quiet() {
            earliest((self.clock.active + deadlines.drain_pause).min(now + limits::DRAIN_LOOK));
        }
        if let Some(incoming) = &self.incoming
            && incoming.sink.is_some()
        {
            // What is held back is not waited for. Once it is over, it is no reason to look again.
            if let Some(until) = incoming.held_until.filter(|until| *until > now) {
                earliest(until);
            }
            let since =
                incoming.held_until.map_or(incoming.waits_since, |until| until.max(incoming.waits_since));
            let end = since + deadlines.body_stall;
            if now >= end {
                return Err(io::ErrorKind::TimedOut.into());
            }
            earliest(end);
        }
        if self.memory.lacks_input {
            // Nothing tells when there is some again.
            earliest(now + limits::ROOT_MEMORY_PAUSE);
        }
        if let Some(at) = self.memory.looks_again() {
            earliest(at.max(now));
        }
        if let Some(since) = self.clock.full_since {
            let end = since + deadlines.body_stall;
            if now >= end {
                return Err(io::ErrorKind::TimedOut.into());
            }
            earliest(end);
        }
        if self.is_overfull() {
            // The rest of it waits for us.
            self.clock.request_began = self.clock.request_began.map(|_| now);
        }
        if let Some(began) = self.clock.request_began {
            let end = began + deadlines.head;
            if now >= end {
                return Err(io::ErrorKind::TimedOut.into());
            }
            earliest(end);
        }
        if !self.machine.is_in() {
            let end = self.clock.began + deadlines.head;
            if now >= end {
                return Err(io::ErrorKind::TimedOut.into());
            }
            earliest(end);
        } else if self.unanswered == 0 && self.outbox.is_empty() {
            if !self.clock.has_released {
                let end = self.clock.active + RELEASE_AFTER;
                if now >= end {
                    self.clock.has_released = true;
                    self.wire.inbox.release();
                    self.wire.stream.release_buffers();
                    let input_bytes = self.wire.inbox.held_bytes() + self.pending_bytes;
                    self.memory.release(input_bytes, self.outbox.held_bytes());
                } else {
                    earliest(end);
                }
            }
            // A bound connection lives as long as its session.
            if matches!(self.role, Role::Main(..)) {
                let end = self.clock.active + self.idle_max();
                if now >= end {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                earliest(end);
            }
        }
        Ok(next)
    }

    /// The longest time that the session may be idle: its open files, and a known identity, are worth waiting.
    fn idle_max(&self) -> Duration {
        let deadlines = &self.front.data.deadlines;
        match self.context() {
            Some(context) if context.session.files.count() > 0 => deadlines.root_idle,
            Some(context) if !context.client.identity.is_anonymous() => deadlines.root_idle_proved,
            _ => deadlines.idle,
        }
    }
}

//! What is left to do when a connection has ended.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use gridlane_core::limits;
use gridlane_net::Stream;
use gridlane_xrd::StreamId;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{Event, Job};
use crate::root::reading::ReadJob;
use crate::root::session::Joined;

/// Gives back to the main connection what this one was to answer: what was begun is lost.
pub(super) fn hand_back(
    joined: Joined,
    jobs: VecDeque<Job>,
    mut told: mpsc::UnboundedReceiver<Event>,
    unsent: VecDeque<(StreamId, u64)>,
    sent_bytes: u64,
) {
    let all = Arc::clone(&joined.all);
    let main = all.main().clone();
    // From here on nothing comes in.
    drop(joined);
    told.close();
    let mut left: Vec<ReadJob> = Vec::new();
    left.extend(jobs.into_iter().filter_map(|job| match job {
        Job::Read(job) => Some(job),
        Job::Vector(_) | Job::Pieces(..) => None,
    }));
    while let Ok(event) = told.try_recv() {
        if let Event::Delegated(job) | Event::Read(job, _) = event {
            left.push(job);
        }
    }
    // When the main one is gone as well, nobody waits.
    for (stream, _) in unsent.into_iter().filter(|(_, end)| *end > sent_bytes) {
        let _ = main.send(Event::Lost(stream));
    }
    for job in left {
        all.undelegate();
        let _ = main.send(match job.has_begun() {
            false => Event::Returned(job),
            true => Event::Lost(job.asked.stream),
        });
    }
}

/// Ends our direction, then reads and drops what the client still sends.
pub(super) async fn linger(mut stream: Stream, deadline: Duration) {
    let drained = async {
        stream.shutdown().await?;
        let mut buffer = [0; 4096];
        let mut dropped = 0;
        while dropped < limits::BODY_DRAIN_BYTES_MAX {
            match stream.read(&mut buffer).await? {
                0 => break,
                count => dropped += count as u64,
            }
        }
        Ok::<(), io::Error>(())
    };
    // Whatever comes of it, the connection ends now.
    let _ = timeout(deadline, drained).await;
}

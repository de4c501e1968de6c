//! The last steps of a connection that has ended.

use std::collections::VecDeque;

use tokio::sync::mpsc;

use super::Job;
use crate::root::delegation::Delegation;
use crate::root::event::Event;
use crate::root::reading::ReadJob;
use crate::root::session::Joined;

/// Gives back to the main connection what this one was to answer: what was begun is lost.
pub(super) fn hand_back<F>(
    joined: Joined<F>,
    jobs: VecDeque<Job>,
    mut events_in: mpsc::UnboundedReceiver<Event>,
    unsent: VecDeque<(Delegation, u64)>,
    sent_bytes: u64,
) {
    let main = joined.all.delegated.main().clone();
    // From here on nothing comes in.
    drop(joined);
    events_in.close();
    let mut left: Vec<ReadJob> = Vec::new();
    left.extend(jobs.into_iter().filter_map(|job| match job {
        Job::Read(job) => Some(job),
        Job::Vector(_) | Job::Pieces(..) => None,
    }));
    while let Ok(event) = events_in.try_recv() {
        match event {
            Event::Delegated(job) | Event::Read(job, Err(_)) => left.push(job),
            Event::Read(mut job, Ok((_, _, begin))) => {
                job.back_to(begin);
                left.push(job);
            }
            _ => {}
        }
    }
    // What is only dropped is lost.
    for (delegation, end) in unsent {
        if end <= sent_bytes {
            delegation.settle();
        }
    }
    for mut job in left.into_iter().filter(|job| !job.has_begun()) {
        let delegation = job.delegation.take();
        // When the main one is gone as well, no connection waits.
        let _ = main.send(Event::Returned(job));
        delegation.into_iter().for_each(Delegation::settle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null_service::{context_of, file_of};
    use crate::root::reading::{Kind, Pending};
    use crate::root::session::Sessions;
    use gridlane_xrd::StreamId;
    use gridlane_xrd::request::Ping;
    use std::sync::Arc;
    use std::time::Instant;

    #[tokio::test]
    async fn bytes_that_were_read_and_not_sent_are_read_again() {
        let context = context_of(|_| {});
        let file = file_of(b"hello");
        let ((to_main, mut main), (to_bound, bound)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let (sessions, client) = (Arc::new(Sessions::<()>::default()), context.client.clone());
        let session = sessions.begin(String::new(), 7, String::new(), &client, false, to_main).unwrap();
        let joined = sessions.join(session.all.session.id, &client, false, to_bound.clone()).unwrap();
        let path = session.all.path(joined.path_id).unwrap();
        let mut given = Vec::new();
        let mut bound = bound;
        for number in 0..3 {
            let stream = StreamId([0, number]);
            let pending = Pending {
                stream,
                request: Ping {}.into(),
                client: None,
                len: 0,
                began: Instant::now(),
                parts_bytes: 0,
            };
            let job = ReadJob::new(pending, Arc::clone(&file), Kind::Plain, 0, 5).ok().unwrap();
            session.all.delegate(&path, job).ok().unwrap();
            let Ok(Event::Delegated(job)) = bound.try_recv() else { panic!() };
            given.push(job);
        }
        assert_eq!(session.all.delegated.count(), 3);
        // One is read and not yet handled, one is being sent, and one was dropped with what read it.
        let mut read = given.remove(0);
        let mut buffer = context.front().data.buffers.lend();
        let (part, begin) = read.read_waiting(&mut buffer).await.unwrap();
        assert_eq!((read.at(), begin), (5, 0));
        to_bound.send(Event::Read(read, Ok((buffer, part, begin)))).ok().unwrap();
        let unsent = given.remove(0).delegation.map(|delegation| (delegation, 100));
        drop(given);
        hand_back(joined, VecDeque::new(), bound, unsent.into_iter().collect(), 99);

        let (mut returned, mut lost) = (Vec::new(), Vec::new());
        while let Ok(event) = main.try_recv() {
            match event {
                Event::Returned(job) => returned.push((job.pending.stream.0[1], job.at())),
                Event::Lost(stream) => lost.push(stream.0[1]),
                _ => panic!(),
            }
        }
        lost.sort_unstable();
        assert_eq!((returned, lost), (vec![(0, 0)], vec![1, 2]));
        assert_eq!(session.all.delegated.count(), 0);
    }
}

//! Prints what a decision costs: files that wait, their memory, and files per second that are decided, started and ended.
//! `cargo run --release -p gridlane-dispatch --example decide [FILES [LINKS]]`

use std::time::{Duration, Instant};

use gridlane_core::Time;
use gridlane_dispatch::{Dispatcher, Entry, Kind, Outcome, Rules};
use gridlane_jobs::{FileId, Link};

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|number| number.parse::<i64>().ok());
    let (files, links) = (numbers.next().unwrap_or(1_000_000), numbers.next().unwrap_or(100));
    let mut dispatcher = Dispatcher::new(Rules::default(), Kind::Ours, 1);
    let began = Instant::now();
    let now = Time::ZERO.plus_s(1.0);
    for file in 0..files {
        let link = file % links;
        let entry = Entry {
            file: FileId(file),
            link: Link {
                source: format!("davs://source{}.example", link % 10).as_str().into(),
                destination: format!("davs://destination{}.example", link / 10).as_str().into(),
            },
            vo: format!("vo{}", file % 4),
            activity: format!("activity{}", file % 3),
            priority: (file % 5) as u8 + 1,
            size_bytes: 1_000_000_000,
            waited_s: 0,
            not_before: None,
            expires: Some(now + Duration::from_secs(86_400)),
        };
        dispatcher.submitted(&entry, now);
    }
    println!(
        "{files} files wait on {links} links: {:.2} s, {:.0} bytes each",
        began.elapsed().as_secs_f64(),
        dispatcher.queue_bytes() as f64 / files as f64
    );
    let began = Instant::now();
    let (mut ended, mut now) = (0u64, now);
    while ended < 1_000_000 && dispatcher.waiting() > 0 {
        now = now.plus_s(0.001);
        for start in dispatcher.next(now).starts {
            dispatcher.progress(start.file, 500_000_000, now);
            dispatcher.moved(start.file, 1_000_000_000, now);
            dispatcher.ended(start.file, &Outcome::Finished { bytes: 1_000_000_000 }, now);
            ended += 1;
        }
        dispatcher.tick(now);
    }
    println!("{:.0} files a second decided, started and ended", ended as f64 / began.elapsed().as_secs_f64());
}

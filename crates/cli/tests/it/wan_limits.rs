//! The part that copies reach of what their paths allow: a short version of `make lab-own` and `make bench-wan`, with
//! small files, slow links and wide margins, so that it holds with a debug build on a machine that does other things too.

use std::fs;
use std::time::Instant;

use crate::support::client::{Outcome, Running};
use crate::support::serve::Server;
use crate::support::wan::Wan;
use crate::support::{assert_copied, content, journal_of, until};

const MB: usize = 1_000_000;
const MIB: u64 = 1 << 20;

const SITES: [&str; 3] = ["near", "mid", "far"];

/// Three sites of 80 Mb/s that share nothing.
const STAR: &str = r#"
    sites = ["client", "near", "mid", "far"]
    link = [
        { between = ["near", "client"], rate = "80Mb/s", delay_ms = 5 },
        { between = ["mid", "client"], rate = "80Mb/s", delay_ms = 10 },
        { between = ["far", "client"], rate = "80Mb/s", delay_ms = 15 },
    ]
"#;

/// Set-up and slow start of a connection over these paths, generously.
const START_S: f64 = 0.3;

fn serve(wan: &Wan, sites: &[&str]) -> Vec<Server> {
    sites.iter().map(|site| wan.serve(site, &wan.scratch().join("export"))).collect()
}

fn urls(servers: &[Server], name: &str) -> Vec<String> {
    servers.iter().map(|server| server.url_where(name, "http://198")).collect()
}

fn seconds(outcome: &Outcome) -> f64 {
    outcome.summary()["seconds"].as_f64().unwrap()
}

/// Payload bytes per second.
fn rate(wan: &Wan, site: &str) -> f64 {
    wan.path(site, "client")["payload_bytes_per_s"][0].as_f64().unwrap()
}

/// Bytes that sites have sent, packets and all.
fn sent(wan: &Wan, sites: &[&str]) -> u64 {
    wan.count_all(sites, "client", "passed_bytes")
}

#[track_caller]
fn assert_not_void(wan: &Wan) {
    let state = wan.show();
    assert!(state["void"].is_null(), "{}", state["void"]);
}

#[test]
fn two_and_three_sources_come_near_the_sum_of_their_paths() {
    const SIZE: usize = 40 * MB;
    let wan = Wan::up("limit-sum", STAR);
    let bytes = content(1701, SIZE);
    fs::write(wan.scratch().dir("export").join("f"), &*bytes).unwrap();
    let servers = serve(&wan, &SITES);
    let sources = urls(&servers, "f");
    let target = wan.scratch().join("f");
    for k in [2, 3] {
        let bound_s =
            START_S / 2.0 + SIZE as f64 / SITES[..k].iter().map(|site| rate(&wan, site)).sum::<f64>();
        // The better of two: what else the machine does is not what is tested.
        let fractions = [(); 2].map(|()| {
            let outcome = Running::start(wan.cp("client", &sources[..k], &target)).wait().ok().verified(true);
            assert_copied(&target, &bytes);
            fs::remove_file(&target).unwrap();
            let extra = outcome.number("extra_bytes");
            assert!(
                extra <= SIZE as u64 / 10,
                "{extra} bytes came twice from {k} sources: {}",
                outcome.summary()
            );
            bound_s / seconds(&outcome)
        });
        let best = fractions[0].max(fractions[1]);
        assert!(best >= 0.75, "{k} sources reached {fractions:.2?} of their bound, {bound_s:.2} s");
    }
    assert_not_void(&wan);
}

#[test]
fn a_killed_server_costs_little_more_than_its_rate_and_is_reported() {
    // Time enough to see how far it is, and to kill a server before the end.
    const SIZE: usize = 120 * MB;
    let wan = Wan::up("limit-killed", STAR);
    let bytes = content(1702, SIZE);
    fs::write(wan.scratch().dir("export").join("f"), &*bytes).unwrap();
    let mut servers = serve(&wan, &SITES);
    let sources = urls(&servers, "f");
    let target = wan.scratch().join("f");

    let began = Instant::now();
    let running = Running::start(wan.cp("client", &sources, &target));
    until("a quarter of it is sent", || sent(&wan, &SITES) >= SIZE as u64 / 4);
    servers[1].kill();
    let killed_s = began.elapsed().as_secs_f64();
    let outcome = running.wait().ok().verified(true);
    assert_copied(&target, &bytes);

    // What the three could do until then, and two after that.
    let [near, mid, far] = SITES.map(|site| rate(&wan, site));
    let done = (near + mid + far) * (killed_s - START_S).max(0.0);
    let bound_s = killed_s + (SIZE as f64 - done).max(0.0) / (near + far);
    let took_s = seconds(&outcome);
    assert!(
        took_s <= 1.6 * bound_s + START_S,
        "{took_s:.2} s, at best {bound_s:.2} s: {}",
        outcome.summary()
    );
    // It is said while the copy runs, and not only at its end.
    let events = outcome.events();
    let is_about_it = |event: &serde_json::Value| event["url"] == *sources[1].as_str();
    let said = events
        .iter()
        .position(|event| is_about_it(event) && matches!(event["type"].as_str(), Some("source" | "retry")));
    let said = said.unwrap_or_else(|| panic!("nothing is said of it: {}", outcome.describe()));
    let next = events[said..].iter().find_map(|event| event["elapsed_s"].as_f64()).unwrap_or(took_s);
    assert!(next <= killed_s + 3.0, "said {next:.1} s after the beginning, killed at {killed_s:.1} s");
    assert_not_void(&wan);
}

#[test]
fn sources_behind_one_link_fill_it_without_many_connections() {
    const SIZE: usize = 30 * MB;
    let wan = Wan::up(
        "limit-shared",
        r#"
            sites = ["client", "one", "two"]
            routers = ["exchange"]
            link = [
                { between = ["one", "exchange"], rate = "200Mb/s", delay_ms = 5 },
                { between = ["two", "exchange"], rate = "200Mb/s", delay_ms = 5 },
                { between = ["exchange", "client"], rate = "60Mb/s", delay_ms = 5 },
            ]
        "#,
    );
    let bytes = content(1703, SIZE);
    fs::write(wan.scratch().dir("export").join("f"), &*bytes).unwrap();
    let servers = serve(&wan, &["one", "two"]);
    let target = wan.scratch().join("f");
    let outcome = Running::start(wan.cp("client", &urls(&servers, "f"), &target)).wait().ok().verified(true);
    assert_copied(&target, &bytes);
    let bound_s = START_S + SIZE as f64 / rate(&wan, "one");
    assert!(seconds(&outcome) <= bound_s / 0.75, "{}, at best {bound_s:.2} s", outcome.summary());
    assert!(outcome.number("extra_bytes") <= SIZE as u64 / 10, "{}", outcome.summary());
    let summary = outcome.summary();
    let carried = summary["sources"].as_array().unwrap();
    let connections: u64 = carried.iter().map(|source| source["connections"].as_u64().unwrap()).sum();
    assert!((1..=2).contains(&connections), "{summary}");
    assert_not_void(&wan);
}

#[test]
fn many_small_files_far_away_do_not_wait_for_each_other() {
    const FILES: usize = 300;
    const ROUND_TRIP_S: f64 = 0.1;
    let wan = Wan::up(
        "limit-small",
        "sites = ['client', 'far']\nlink = [{ between = ['far', 'client'], rate = '200Mb/s', delay_ms = 50 }]",
    );
    let export = wan.scratch().dir("export/tree");
    let bytes = content(1704, 20_000 + FILES);
    for number in 0..FILES {
        fs::write(export.join(format!("{number:03}")), &bytes[number..number + 20_000]).unwrap();
    }
    let servers = serve(&wan, &["far"]);
    let target = wan.scratch().join("tree");
    let mut command = wan.cp("client", &urls(&servers, "tree/"), &target);
    command.arg("-r");
    let outcome = Running::start(command).wait().ok();
    for number in 0..FILES {
        assert_copied(&target.join(format!("{number:03}")), &bytes[number..number + 20_000]);
    }
    // One after the other, each needs a round trip at least.
    let alone_s = FILES as f64 * ROUND_TRIP_S;
    let took_s = seconds(&outcome);
    assert!(took_s * 5.0 <= alone_s, "{took_s:.1} s; one at a time {alone_s:.0} s");
    assert_not_void(&wan);
}

#[test]
fn after_a_kill_of_the_client_little_is_sent_again() {
    const SIZE: usize = 96 << 20;
    let wan = Wan::up(
        "limit-restart",
        "sites = ['client', 'near', 'far']\nlink = [\n\
         { between = ['near', 'client'], rate = '400Mb/s', delay_ms = 5 },\n\
         { between = ['far', 'client'], rate = '400Mb/s', delay_ms = 15 }]",
    );
    let bytes = content(1705, SIZE);
    fs::write(wan.scratch().dir("export").join("f"), &*bytes).unwrap();
    let sites = ["near", "far"];
    let servers = serve(&wan, &sites);
    let sources = urls(&servers, "f");
    let target = wan.scratch().join("f");
    let mut running = Running::start(wan.cp("client", &sources, &target));
    until("most of it is sent, and its journal is there", || {
        assert!(running.is_running(), "it ended before it could be killed");
        sent(&wan, &sites) >= 72 * MIB && journal_of(&target).exists()
    });
    running.kill();
    let outcome = Running::start(wan.cp("client", &sources, &target)).wait().ok().verified(true);
    assert_copied(&target, &bytes);
    // Headers are 4 % over IPv4; in flight is what the paths and their queues hold: 4 MB.
    let again = (sent(&wan, &sites) as f64 / 1.04 - SIZE as f64) / MIB as f64;
    assert!(again <= 64.0 + 8.0, "{again:.0} MiB were sent twice: {}", outcome.summary());
    assert!(outcome.number("resumed_bytes") > 0, "{}", outcome.summary());
    assert_not_void(&wan);
}

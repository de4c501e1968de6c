//! Traffic through emulated networks: real copies over the real kernel's TCP find the round trips, rates,
//! losses and outages that the scenario says.
//!
//! Their exactness is measured by `gridlane wan check`; here is what holds on any machine, busy or not, with
//! wide margins.

use std::fs;
use std::sync::Arc;

use crate::support::client::{Outcome, Running, run};
use crate::support::serve::Server;
use crate::support::wan::Wan;
use crate::support::{assert_copied, assert_same, content, until};

const MB: usize = 1_000_000;

/// The factor by which a copy may take longer than the rate allows: slow start, and a machine that does more than this.
const LONGER: f64 = 1.5;

/// The same file at several sites.
struct Replicas<'a> {
    wan: &'a Wan,
    bytes: Arc<Vec<u8>>,
    servers: Vec<Server>,
}

impl<'a> Replicas<'a> {
    fn at(wan: &'a Wan, sites: &[&str], size: usize) -> Replicas<'a> {
        let bytes = content(1500 + size as u64, size);
        let export = wan.scratch().dir("export");
        fs::write(export.join("f"), &*bytes).unwrap();
        Replicas { wan, bytes, servers: sites.iter().map(|site| wan.serve(site, &export)).collect() }
    }

    /// Over IPv4.
    fn sources(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.url_where("f", "http://198")).collect()
    }

    /// A copy that runs, to a target of this name.
    fn start(&self, sources: &[String], name: &str) -> Running {
        Running::start(self.wan.cp("client", sources, &self.wan.scratch().join(name)))
    }

    /// A whole copy, which must be right.
    #[track_caller]
    fn copy(&self, sources: &[String], name: &str) -> Outcome {
        self.finish(self.start(sources, name), name)
    }

    #[track_caller]
    fn finish(&self, running: Running, name: &str) -> Outcome {
        let outcome = running.wait().ok().verified(true);
        assert_copied(&self.wan.scratch().join(name), &self.bytes);
        fs::remove_file(self.wan.scratch().join(name)).unwrap();
        outcome
    }

    /// Waits until so much has come from a site.
    fn until_passed(&self, link: &str, site: &str, bytes: usize) {
        until(&format!("{bytes} bytes came from {site}"), || {
            self.wan.count(link, site, "passed_bytes") > bytes as u64
        });
    }
}

fn seconds(outcome: &Outcome) -> f64 {
    outcome.summary()["seconds"].as_f64().unwrap()
}

/// Seconds that a copy takes at the rate of a path.
fn least_seconds(wan: &Wan, from: &str, to: &str, size: usize) -> f64 {
    let path = wan.path(from, to);
    size as f64 / path["payload_bytes_per_s"][0].as_f64().unwrap_or_else(|| panic!("no payload in {path}"))
}

#[track_caller]
fn assert_not_void(wan: &Wan) {
    let state = wan.show();
    assert!(state["void"].is_null(), "{}", state["void"]);
}

#[test]
fn round_trips_are_as_configured_in_both_families_and_with_large_packets() {
    for mtu in [1500, 9000] {
        let wan = Wan::up(
            &format!("mtu-{mtu}"),
            &format!(
                "mtu = {mtu}\nsites = ['client', 'near']\nrouters = ['exchange']\nlink = [\n\
                 {{ between = ['near', 'exchange'], delay_ms = 15, from.exchange.delay_ms = 5 }},\n\
                 {{ between = ['exchange', 'client'], delay_ms = 5 }}]"
            ),
        );
        assert_eq!(wan.show()["mtu"], mtu);
        assert!(wan.shell("near", "ip link show dev wan0").contains(&format!("mtu {mtu} ")));
        assert_eq!(wan.path("client", "near")["round_trip_s"], 0.03);
        let replicas = Replicas::at(&wan, &["near"], 2 * MB);
        let (mut packets, mut bytes) = (0, 0);
        for (name, start) in [("v4", "http://198"), ("v6", "http://[2001")] {
            let source = replicas.servers[0].url_where("f", start);
            let outcome = replicas.copy(std::slice::from_ref(&source), name);
            let round_trip_s = outcome.source(&source)["round_trip_s"].as_f64().unwrap();
            assert!((0.03..0.05).contains(&round_trip_s), "MTU {mtu}, {name}: {round_trip_s} s");
            let (packets_before, bytes_before) = (packets, bytes);
            packets = wan.count("near-exchange", "near", "passed_packets");
            bytes = wan.count("near-exchange", "near", "passed_bytes");
            let mean = (bytes - bytes_before) as f64 / (packets - packets_before) as f64;
            let full = f64::from(mtu);
            assert!((full * 0.7..=full).contains(&mean), "packets of {mean:.0} bytes with {mtu}, {name}");
        }
        // Acknowledgements are packets too; nothing is counted twice.
        assert!(wan.count("exchange-client", "client", "passed_packets") < packets);
        assert_not_void(&wan);
    }
}

#[test]
fn a_copy_takes_as_long_as_the_rate_says() {
    let wan = Wan::up(
        "rate",
        "sites = ['client', 'near']\n\
         link = [{ between = ['near', 'client'], rate = '50Mb/s', delay_ms = 5 }]",
    );
    let replicas = Replicas::at(&wan, &["near"], 8 * MB);
    let least = least_seconds(&wan, "near", "client", 8 * MB);
    let took = seconds(&replicas.copy(&replicas.sources(), "f"));
    assert!((least * 0.98..least * LONGER).contains(&took), "{took:.2} s, at the rate {least:.2} s");

    // Twice as fast for what runs after it.
    wan.set("near-client", &["--rate", "100Mb/s"]);
    let least = least_seconds(&wan, "near", "client", 8 * MB);
    let faster = seconds(&replicas.copy(&replicas.sources(), "f"));
    assert!((least * 0.98..took * 0.75).contains(&faster), "{faster:.2} s, before {took:.2} s");
    assert_not_void(&wan);
}

#[test]
fn a_rate_changes_while_a_copy_runs() {
    let wan = Wan::up(
        "rate-set",
        "sites = ['client', 'near']\n\
         link = [{ between = ['near', 'client'], rate = '8Mb/s', delay_ms = 2 }]",
    );
    let replicas = Replicas::at(&wan, &["near"], 10 * MB);
    let running = replicas.start(&replicas.sources(), "f");
    replicas.until_passed("near-client", "near", MB / 2);
    wan.set("near-client", &["--rate", "100Mb/s"]);
    let outcome = replicas.finish(running, "f");
    // 10.6 s at the first rate, 0.9 s at the second.
    assert!((0.9..7.0).contains(&seconds(&outcome)), "{:.2} s", seconds(&outcome));
    assert_not_void(&wan);
}

#[test]
fn sites_behind_one_link_share_its_rate() {
    let wan = Wan::up(
        "shared",
        r#"
            sites = ["client", "near", "mid", "far"]
            routers = ["exchange"]
            link = [
                { between = ["near", "exchange"], rate = "100Mb/s", delay_ms = 2 },
                { between = ["mid", "exchange"], rate = "100Mb/s", delay_ms = 5 },
                { between = ["far", "exchange"], rate = "100Mb/s", delay_ms = 10 },
                { between = ["exchange", "client"], rate = "40Mb/s" },
            ]
        "#,
    );
    let replicas = Replicas::at(&wan, &["near", "mid", "far"], 8 * MB);
    let least = least_seconds(&wan, "far", "client", 8 * MB);
    let together = replicas.copy(&replicas.sources(), "together");
    let took = seconds(&together);
    assert!((least * 0.98..least * LONGER).contains(&took), "{took:.2} s, at the rate {least:.2} s");
    for site in ["near", "mid", "far"] {
        assert!(wan.count(&format!("{site}-exchange"), site, "passed_bytes") > 100_000, "{site} gave some");
    }
    let passed = wan.count("exchange-client", "exchange", "passed_bytes");
    assert!((8 * MB as u64..10 * MB as u64).contains(&passed), "all of it passed the one link: {passed}");
    assert_not_void(&wan);
}

#[test]
fn a_queue_that_is_full_drops() {
    let wan = Wan::up(
        "queue",
        "sites = ['client', 'near']\nrouters = ['exchange']\ncongestion_control = 'reno'\nlink = [\n\
         { between = ['near', 'exchange'], delay_ms = 5 },\n\
         { between = ['exchange', 'client'], rate = '20Mb/s', queue = '30kB' }]",
    );
    let replicas = Replicas::at(&wan, &["near"], 3 * MB);
    replicas.copy(&replicas.sources(), "f");
    let counters = wan.link("exchange-client", "exchange")["counters"].clone();
    assert!(counters["dropped_packets"].as_u64() > Some(0), "reno fills every queue: {counters}");
    assert_eq!(counters["lost_packets"], 0, "{counters}");
    // 30 kB at 20 Mb/s are 12 ms.
    let waited_s = counters["waited_p99_s"].as_f64().unwrap();
    assert!((0.006..0.013).contains(&waited_s), "{counters}");
    assert_not_void(&wan);
}

#[test]
fn what_is_lost_one_way_does_not_arrive() {
    let wan = Wan::up(
        "loss",
        "sites = ['client', 'near']\nlink = [{ between = ['near', 'client'], delay_ms = 1 }]",
    );
    let replicas = Replicas::at(&wan, &["near"], MB);
    replicas.copy(&replicas.sources(), "before");
    let passed = wan.count("near-client", "near", "passed_packets");
    wan.set("near-client", &["--from", "near", "--loss", "1"]);
    let mut command = wan.cp("client", &replicas.sources(), &wan.scratch().join("lost"));
    command.args(["--timeout", "2"]);
    let outcome = run(command);
    assert!(matches!(outcome.code, Some(6 | 7)), "{}", outcome.describe());
    assert_eq!(wan.count("near-client", "near", "passed_packets"), passed, "nothing came through");
    assert!(wan.count("near-client", "near", "lost_packets") > 0);
    assert_eq!(wan.count("near-client", "client", "lost_packets"), 0, "the other way loses nothing");

    wan.set("near-client", &["--restore"]);
    replicas.copy(&replicas.sources(), "after");
    assert_not_void(&wan);
}

#[test]
fn a_copy_survives_random_losses_and_jitter() {
    let wan = Wan::up(
        "lossy",
        "sites = ['client', 'near']\nlink = [\n\
         { between = ['near', 'client'], rate = '50Mb/s', delay_ms = 3, jitter_ms = 2, loss = 0.01 }]",
    );
    let replicas = Replicas::at(&wan, &["near"], 3 * MB);
    replicas.copy(&replicas.sources(), "f");
    let count = |counter| wan.count("near-client", "near", counter) as f64;
    let lost = count("lost_packets") / (count("lost_packets") + count("passed_packets"));
    // Some 2000 packets: 20 of them, give or take 4.5.
    assert!((0.002..0.025).contains(&lost), "{lost} of the packets were lost");
    assert_not_void(&wan);
}

#[test]
fn when_a_link_goes_down_the_other_source_completes_the_copy() {
    let wan = Wan::up(
        "outage",
        r#"
            sites = ["client", "near", "far"]
            link = [
                { between = ["near", "client"], rate = "20Mb/s", delay_ms = 2 },
                { between = ["far", "client"], rate = "20Mb/s", delay_ms = 10 },
            ]
        "#,
    );
    let replicas = Replicas::at(&wan, &["near", "far"], 8 * MB);
    let sources = replicas.sources();
    let running = replicas.start(&sources, "f");
    replicas.until_passed("near-client", "near", MB);
    replicas.until_passed("far-client", "far", MB);
    wan.set("near-client", &["--down"]);
    assert_eq!(wan.link("near-client", "near")["is_down"], true);
    let outcome = replicas.finish(running, "f");
    assert!(wan.count("near-client", "near", "vanished_packets") > 0);
    assert_eq!(wan.count("far-client", "far", "vanished_packets"), 0);
    // What near had not sent by then came from far, at its rate.
    let from_far = outcome.source(&sources[1])["bytes"].as_u64().unwrap();
    assert!(from_far > 4 * MB as u64, "{}", outcome.summary());
    assert!(seconds(&outcome) < 20.0, "{}", outcome.summary());

    wan.set("near-client", &["--up"]);
    assert_eq!(wan.link("near-client", "near")["is_down"], false);
    replicas.copy(&sources[..1], "again");
    assert_not_void(&wan);
}

/// The product's promise in one minute: three replicas at different distances give what their paths have
/// together, and losing one of them costs time, not bytes.
#[test]
fn one_minute_of_three_replicas() {
    const SIZE: usize = 24 * MB;
    let wan = Wan::up(
        "minute",
        r#"
            sites = ["client", "near", "mid", "far"]
            link = [
                { between = ["near", "client"], rate = "50Mb/s", delay_ms = 5 },
                { between = ["mid", "client"], rate = "50Mb/s", delay_ms = 10 },
                { between = ["far", "client"], rate = "50Mb/s", delay_ms = 15 },
            ]
        "#,
    );
    let replicas = Replicas::at(&wan, &["near", "mid", "far"], SIZE);
    let sources = replicas.sources();
    // In turns, so that what else the machine does meets both.
    let mut ratios: Vec<f64> = (0..3)
        .map(|_| {
            let one = seconds(&replicas.copy(&sources[..1], "one"));
            one / seconds(&replicas.copy(&sources, "three"))
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    assert!(ratios[1] >= 1.8, "three sources were so many times as fast as one: {ratios:.2?}");

    let passed = |link: &str, site: &str| wan.count(link, site, "passed_bytes") as usize;
    let (near, mid) = (passed("near-client", "near"), passed("mid-client", "mid"));
    let running = replicas.start(&sources, "killed");
    replicas.until_passed("near-client", "near", near + SIZE / 8);
    replicas.until_passed("mid-client", "mid", mid + SIZE / 8);
    wan.set("mid-client", &["--down"]);
    let outcome = running.wait().ok().verified(true);
    assert_same(&fs::read(wan.scratch().join("killed")).unwrap(), &replicas.bytes);
    assert!(seconds(&outcome) < 20.0, "{}", outcome.summary());
    assert!(wan.count("mid-client", "mid", "vanished_packets") > 0, "it was used when it went down");
    assert_not_void(&wan);
}

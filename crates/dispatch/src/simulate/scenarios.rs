//! Worlds and their work.

use super::world::{Batch, Fault, Path, Resource, Scenario};
use crate::random::Random;
use crate::rules::{LinkRule, Rules, StorageRule};

const MB: f64 = 1e6;
const GB: u64 = 1_000_000_000;
/// More connections than there ever are.
const NO_KNEE: u32 = 100_000;

/// FTS3's shipped rows for all links and storages (fts3-rest 9).
fn shipped() -> Rules {
    let mut rules = Rules::default();
    rules.links.insert(("*".into(), "*".into()), LinkRule { min_active: 2, max_active: 130, mode: 2 });
    let storage = StorageRule {
        inbound_max_active: 200,
        outbound_max_active: 200,
        inbound_max_bytes_per_s: None,
        outbound_max_bytes_per_s: None,
    };
    rules.storages.insert("*".into(), storage);
    rules
}

fn resource(bytes_per_s: f64) -> Resource {
    Resource { bytes_per_s, knee: NO_KNEE }
}

fn path(source: usize, destination: usize, through: &[usize], connection_bytes_per_s: f64) -> Path {
    Path {
        source: format!("davs://s{source}.example"),
        destination: format!("davs://d{destination}.example"),
        through: through.to_vec(),
        connection_bytes_per_s,
        overhead_s: 0.1,
        verify_s: 0.1,
    }
}

fn batch(path: usize, files: u32, size_bytes: u64) -> Batch {
    Batch { path, files, size_bytes, vo: "vo".into(), activity: "default".into(), at_s: 0.0 }
}

fn scenario(name: &'static str) -> Scenario {
    Scenario {
        name,
        rules: shipped(),
        step_s: 0.1,
        marker_s: 2.0,
        until_s: 3600.0,
        retries: 3,
        is_resuming: true,
        seed: 1,
        ..Scenario::default()
    }
}

/// A link of 10 Gb/s and 100 ms, whose connections have 20 MB/s each: 63 are needed.
pub fn ceiling() -> Scenario {
    Scenario {
        resources: vec![resource(1250.0 * MB)],
        paths: vec![path(0, 0, &[0], 20.0 * MB)],
        batches: vec![batch(0, 2500, GB / 2)],
        until_s: 900.0,
        best_bytes_per_s: 1250.0 * MB,
        ..scenario("one far link")
    }
}

/// A storage that gets slower with more than 24 connections.
pub fn knee() -> Scenario {
    Scenario {
        resources: vec![Resource { bytes_per_s: 500.0 * MB, knee: 24 }],
        paths: vec![path(0, 0, &[0], 40.0 * MB)],
        batches: vec![batch(0, 3000, GB / 10)],
        until_s: 600.0,
        best_bytes_per_s: 500.0 * MB,
        ..scenario("a storage with a knee")
    }
}

/// 1 000 files of 10 MB from ten sites to ten others, through one bottleneck of 1 Gb/s that likes no more than 60 connections.
pub fn shared() -> Scenario {
    Scenario {
        resources: vec![Resource { bytes_per_s: 125.0 * MB, knee: 60 }],
        paths: (0..10).map(|site| path(site, site, &[0], 20.0 * MB)).collect(),
        batches: (0..10).map(|site| batch(site, 100, 10_000_000)).collect(),
        until_s: 600.0,
        best_bytes_per_s: 125.0 * MB,
        step_s: 0.05,
        ..scenario("ten sites, one bottleneck")
    }
}

/// Eight links fill a bottleneck; after ten minutes two more come, and nothing says that they share it.
pub fn late() -> Scenario {
    let batches = (0..10)
        .map(|site| Batch { at_s: if site < 8 { 0.0 } else { 600.0 }, ..batch(site, 100_000, GB / 20) });
    Scenario {
        resources: vec![Resource { bytes_per_s: 500.0 * MB, knee: 100 }],
        paths: (0..10).map(|site| path(site, site, &[0], 12.0 * MB)).collect(),
        batches: batches.collect(),
        until_s: 1500.0,
        best_bytes_per_s: 500.0 * MB,
        ..scenario("two come late")
    }
}

/// A path of 1 Gb/s that is down for a minute, 40 GB.
pub fn outage() -> Scenario {
    Scenario {
        resources: vec![resource(125.0 * MB)],
        paths: vec![path(0, 0, &[0], 30.0 * MB)],
        batches: vec![batch(0, 40, GB)],
        faults: vec![Fault { path: 0, from_s: 120.0, to_s: 180.0 }],
        until_s: 1200.0,
        best_bytes_per_s: 125.0 * MB,
        ..scenario("down for a minute")
    }
}

/// Three VOs with weights of 6, 3 and 1 and files of different sizes.
pub fn shares() -> Scenario {
    let of = |vo: &str, files, size_bytes| Batch { vo: vo.into(), ..batch(0, files, size_bytes) };
    let mut rules = shipped();
    let weights = [("atlas", 6), ("cms", 3), ("lhcb", 1)].map(|(vo, weight)| (vo.to_owned(), weight));
    rules.shares.insert(("*".into(), "*".into()), weights.into());
    Scenario {
        resources: vec![resource(500.0 * MB)],
        paths: vec![path(0, 0, &[0], 25.0 * MB)],
        batches: vec![of("atlas", 20_000, GB / 10), of("cms", 4_000, GB / 2), of("lhcb", 10_000, GB / 5)],
        until_s: 1000.0,
        best_bytes_per_s: 500.0 * MB,
        rules,
        ..scenario("three VOs")
    }
}

/// Files of 2 MB at 100 ms.
pub fn small() -> Scenario {
    Scenario {
        resources: vec![resource(125.0 * MB)],
        paths: vec![Path { overhead_s: 0.4, verify_s: 0.1, ..path(0, 0, &[0], 30.0 * MB) }],
        batches: vec![batch(0, 200_000, GB / 500)],
        until_s: 600.0,
        best_bytes_per_s: 125.0 * MB,
        ..scenario("small files")
    }
}

/// A million files between a hundred sites, each of which has 10 Gb/s in each direction: 400 links of all lengths; one of a hundred
/// copies breaks off, and ten links are down for a while.
pub fn sites() -> Scenario {
    let mut random = Random::new(7);
    let (sites, links, files) = (100, 400, 2500);
    let mut resources: Vec<Resource> = (0..2 * sites).map(|_| resource(1250.0 * MB)).collect();
    for resource in &mut resources {
        resource.knee = 400;
    }
    let paths: Vec<Path> = (0..links)
        .map(|link| {
            let source = link % sites;
            let destination = (source + 1 + (link / sites) * 17) % sites;
            let round_trip_s = 0.005 + 0.2 * random.part();
            Path {
                source: format!("davs://site{source}.example"),
                destination: format!("davs://site{destination}.example"),
                through: vec![source, sites + destination],
                connection_bytes_per_s: 4.0 * MB / round_trip_s,
                overhead_s: 4.0 * round_trip_s,
                verify_s: 0.2,
            }
        })
        .collect();
    Scenario {
        resources,
        batches: (0..links).map(|link| batch(link, files, GB / 5)).collect(),
        faults: (0..10).map(|link| Fault { path: 40 * link, from_s: 300.0, to_s: 360.0 }).collect(),
        failing: 0.01,
        paths,
        step_s: 0.5,
        marker_s: 5.0,
        until_s: 10_000.0,
        best_bytes_per_s: 125_000.0 * MB,
        ..scenario("100 sites, 10⁶ files")
    }
}

/// All of them.
pub fn all() -> Vec<Scenario> {
    vec![ceiling(), knee(), shared(), late(), outage(), shares(), small(), sites()]
}

//! Every target, for a few seconds: seeds as they are, then seeds with something changed.
//!
//! The same inputs in every run. `docs/guides/fuzzing.md` says how to have others, and more of them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gridlane_fuzz_targets::mutate::mutate;
use gridlane_fuzz_targets::random::Random;
use gridlane_fuzz_targets::seeds::{Seeds, escape};
use gridlane_fuzz_targets::smuggling::compare;
use gridlane_fuzz_targets::streams::stream;
use gridlane_fuzz_targets::{TARGETS, Target, target};

/// Where the inputs of the smoke run begin.
const SEED: u64 = 0x5eed;

macro_rules! smoke {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            run(target(stringify!($name)));
        })*

        #[test]
        fn every_target_is_here() {
            assert_eq!(TARGETS.iter().map(|target| target.name).collect::<Vec<_>>(), [$(stringify!($name)),*]);
        }
    };
}

smoke! {
    request_head response_head chunked
    ranges digests link_header if_header webdav_headers
    copy_request copy_markers
    metalink propfind proppatch multistatus
    multipart listing
    url resource_path
    smuggling
    root_requests root_answers root_pages root_dirlist root_client root_server
    macaroon macaroon_request
    voms
    sss
    token issuer_documents
    gsi
    certificates trust_directory
    delegation submission
    tls_records
    format_hints sparse_index
}

/// The project for libFuzzer is built by no one in `make test`: at least it names the same targets.
#[test]
fn libfuzzer_has_every_target() {
    let manifest = include_str!("../../Cargo.toml");
    let named: Vec<&str> =
        manifest.split("[[bin]]\nname = \"").skip(1).filter_map(|it| it.split('"').next()).collect();
    assert_eq!(named, TARGETS.iter().map(|target| target.name).collect::<Vec<_>>());
    for name in named {
        let path = format!("{}/../fuzz_targets/{name}.rs", env!("CARGO_MANIFEST_DIR"));
        let source = std::fs::read_to_string(&path).unwrap_or_else(|cause| panic!("{path}: {cause}"));
        assert!(source.contains(&format!("target(\"{name}\")")), "{path}");
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name}");
    }
}

/// Streams of requests, made of the oddities that are known, through both readers.
#[test]
fn smuggling_streams() {
    let seed = number("GRIDLANE_FUZZ_SEED").unwrap_or(SEED);
    let (first, count) =
        (number("GRIDLANE_FUZZ_FIRST").unwrap_or(0), number("GRIDLANE_FUZZ_ITERATIONS").unwrap_or(20_000));
    let (mut both, mut several) = (0, 0);
    for turn in first..first + count {
        let input = stream(&mut numbered(seed, turn));
        try_one(target("smuggling"), &input, &replay(seed, turn));
        let taken = compare(&input);
        both += u64::from(taken > 0);
        several += u64::from(taken > 1);
    }
    // It would prove little if neither took anything.
    assert!(count < 1000 || (both > count / 3 && several > count / 10), "{both} and {several} of {count}");
}

fn run(target: &Target) {
    if let Some(path) = std::env::var_os("GRIDLANE_FUZZ_INPUT") {
        let input = std::fs::read(&path).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()));
        return (target.run)(&input);
    }
    let Seeds { inputs, words } = target.all_seeds();
    assert!(!inputs.is_empty(), "{} has no seeds", target.name);
    let (seed, first) = (number("GRIDLANE_FUZZ_SEED"), number("GRIDLANE_FUZZ_FIRST").unwrap_or(0));
    let count = number("GRIDLANE_FUZZ_ITERATIONS").unwrap_or(target.iterations);
    for input in &inputs {
        try_one(target, input, "a seed as it stands");
    }
    let seed = seed.unwrap_or(SEED);
    for turn in first..first + count {
        // Each input follows from the seed and its number alone.
        let mut random = Random::new(Random::new(seed ^ turn.rotate_left(32)).bits());
        let input = mutate(&mut random, &inputs, &words);
        try_one(
            target,
            &input,
            &format!("GRIDLANE_FUZZ_SEED={seed} GRIDLANE_FUZZ_FIRST={turn} GRIDLANE_FUZZ_ITERATIONS=1"),
        );
    }
}

/// Each input follows from the seed and its number alone.
fn numbered(seed: u64, turn: u64) -> Random {
    Random::new(Random::new(seed ^ turn.rotate_left(32)).bits())
}

fn replay(seed: u64, turn: u64) -> String {
    format!("GRIDLANE_FUZZ_SEED={seed} GRIDLANE_FUZZ_FIRST={turn} GRIDLANE_FUZZ_ITERATIONS=1")
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text:?}")))
}

/// Tries an input; of one that fails, as little as still fails is shown.
fn try_one(target: &Target, input: &[u8], from: &str) {
    let fails = |input: &[u8]| catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_err();
    if !fails(input) {
        return;
    }
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let least = shrink(input.to_vec(), fails);
    std::panic::set_hook(hook);
    eprintln!("{}: {from}\nas a seed, shrunk to {} bytes:\n{}", target.name, least.len(), escape(&least));
    (target.run)(&least);
    panic!("{} failed once and not again: it depends on something besides the input", target.name);
}

/// Leaves out what is not needed to fail, in ever smaller pieces.
fn shrink(mut input: Vec<u8>, fails: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let (mut step, mut tries) = (input.len() / 2, 0);
    while step > 0 && tries < 2000 {
        let mut at = 0;
        while at < input.len() && tries < 2000 {
            let shorter = [&input[..at], &input[input.len().min(at + step)..]].concat();
            tries += 1;
            if fails(&shorter) {
                input = shorter;
            } else {
                at += step;
            }
        }
        step /= 2;
    }
    input
}

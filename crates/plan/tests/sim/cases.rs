//! The cases that properties are tried with.

use proptest::test_runner::{Config as ProptestConfig, RngSeed};

/// Always the same cases: a failure is repeated by every run. `PROPTEST_RNG_SEED` and `PROPTEST_CASES` are
/// for looking further.
pub(crate) fn config(cases: u32) -> ProptestConfig {
    let look_further = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    ProptestConfig {
        cases: look_further("PROPTEST_CASES").map_or(cases, |cases: u64| cases as u32),
        rng_seed: RngSeed::Fixed(look_further("PROPTEST_RNG_SEED").unwrap_or(1)),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

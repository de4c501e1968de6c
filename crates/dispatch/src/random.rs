//! Numbers that look random, from a seed: the same in every run.

/// All bits of the result depend on all bits of the argument (the finalizer of splitmix64).
pub(crate) fn mix(value: u64) -> u64 {
    let mut value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Numbers one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Those of a seed.
    pub(crate) fn new(seed: u64) -> Random {
        Random(mix(seed))
    }

    /// The next one.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// From 0 up to 1, which it does not reach.
    pub(crate) fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

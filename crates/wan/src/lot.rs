//! What is drawn by lot: which packets are lost, how delays vary. The same seed draws the same, in every
//! version: figures that depend on it can be repeated.

/// SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014. Written
/// out because libraries reserve the right to draw differently in their next version.
#[derive(Clone, Debug)]
pub(crate) struct Lot(u64);

impl Lot {
    #[cfg(test)]
    pub(crate) fn new(seed: u64) -> Lot {
        Lot(seed)
    }

    /// A lot of its own for each purpose, from one seed.
    pub(crate) fn branch(seed: u64, purpose: u64) -> Lot {
        let mut lot = Lot(seed);
        let start = lot.draw() ^ purpose.wrapping_mul(0xD6E8_FEB8_6659_FD93);
        Lot(Lot(start).draw())
    }

    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Evenly from 0 to `limit - 1`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(limit)) >> 64) as u64
    }

    /// Evenly between 0 and 1, neither of them.
    fn fraction(&mut self) -> f64 {
        ((self.draw() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }
}

/// Which of the segments that are sent are lost: each with the same probability, whatever became of others.
///
/// Draws how many segments pass until the next one is lost (geometric distribution), so that a burst of which
/// none is lost costs a subtraction.
#[derive(Clone, Debug)]
pub(crate) struct Losses {
    probability: f64,
    lot: Lot,
    passing: u64,
}

impl Losses {
    pub(crate) fn new(probability: f64, lot: Lot) -> Losses {
        let mut losses = Losses { probability, lot, passing: 0 };
        losses.passing = losses.draw();
        losses
    }

    /// Another probability from now on. The distribution has no memory, so nothing is owed to the past.
    pub(crate) fn set(&mut self, probability: f64) {
        if self.probability != probability {
            self.probability = probability;
            self.passing = self.draw();
        }
    }

    /// Sends `segments`; adds the indexes of those that are lost.
    pub(crate) fn pass(&mut self, segments: u32, lost: &mut Vec<u32>) {
        let segments = u64::from(segments);
        let mut at = 0;
        while self.passing < segments - at {
            at += self.passing;
            lost.push(at as u32);
            at += 1;
            self.passing = self.draw();
        }
        self.passing -= segments - at;
    }

    fn draw(&mut self) -> u64 {
        match self.probability {
            none if none <= 0.0 => u64::MAX,
            all if all >= 1.0 => 0,
            // A float that is too large becomes the largest integer.
            p => (self.lot.fraction().ln() / (-p).ln_1p()) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost_of(losses: &mut Losses, bursts: impl Iterator<Item = u32>) -> Vec<u64> {
        let (mut all, mut base, mut lost) = (Vec::new(), 0, Vec::new());
        for segments in bursts {
            lost.clear();
            losses.pass(segments, &mut lost);
            all.extend(lost.iter().map(|at| base + u64::from(*at)));
            base += u64::from(segments);
        }
        all
    }

    #[test]
    fn the_reference_values_of_splitmix64() {
        let mut lot = Lot::new(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| lot.draw()).collect();
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn the_same_seed_loses_the_same_segments_however_they_are_bundled() {
        for p in [0.5, 0.1, 1e-3] {
            let single = lost_of(&mut Losses::new(p, Lot::new(3)), std::iter::repeat_n(1, 45_000));
            let bundled = lost_of(&mut Losses::new(p, Lot::new(3)), std::iter::repeat_n(45, 1000));
            assert_eq!(single, bundled);
            assert_ne!(single, lost_of(&mut Losses::new(p, Lot::new(4)), std::iter::repeat_n(1, 45_000)));
        }
    }

    #[test]
    fn as_many_are_lost_as_the_probability_says_and_evenly() {
        let n = 2_000_000_u32;
        for p in [0.3, 1e-2, 1e-3, 1e-4] {
            let lost = lost_of(&mut Losses::new(p, Lot::new(11)), std::iter::repeat_n(45, n as usize / 45));
            let (mean, deviation) = (f64::from(n) * p, (f64::from(n) * p * (1.0 - p)).sqrt());
            assert!((lost.len() as f64 - mean).abs() < 3.5 * deviation, "{p}: {}", lost.len());
            // Losses are independent: after one, the next is lost as often as any.
            let pairs = lost.windows(2).filter(|pair| pair[1] == pair[0] + 1).count() as f64;
            let expected = mean * p;
            assert!((pairs - expected).abs() < 5.0 * expected.sqrt() + 3.0, "{p}: {pairs} for {expected}");
        }
    }

    #[test]
    fn never_and_always() {
        let mut lost = Vec::new();
        Losses::new(0.0, Lot::new(1)).pass(1_000_000, &mut lost);
        assert!(lost.is_empty());
        let mut losses = Losses::new(1.0, Lot::new(1));
        losses.pass(3, &mut lost);
        assert_eq!(lost, [0, 1, 2]);
        losses.set(0.0);
        lost.clear();
        losses.pass(1000, &mut lost);
        assert!(lost.is_empty());
    }

    #[test]
    fn branches_draw_differently() {
        let drawn: Vec<u64> = (0..100).map(|purpose| Lot::branch(1, purpose).draw()).collect();
        let mut unique = drawn.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), drawn.len());
    }
}

//! Numbers that look random and are the same in every run.

/// Steele's splitmix64: any seed is a good one, also one that differs from the last in a single bit.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of that seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The sequence that belongs to these bytes: an input is cut into the same pieces whenever it is tried.
    pub fn of(bytes: &[u8]) -> Random {
        // FNV-1a.
        let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        Random(bytes.iter().fold(0xcbf2_9ce4_8422_2325, fold))
    }

    /// The next number.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 when that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (self.bits() % bound as u64) as usize }
    }

    /// True once in `of` times.
    pub fn once_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    /// One of them; there must be one.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// A length that is mostly small and sometimes up to `max`.
    pub fn length(&mut self, max: usize) -> usize {
        let max = match self.below(8) {
            0 => max,
            1 => max.min(64),
            _ => max.min(6),
        };
        1 + self.below(max)
    }

    /// Cuts `bytes` into pieces as a connection might deliver them: single bytes, a few at a time, or two
    /// halves. All of them together are `bytes`; none is empty.
    pub fn pieces<'a>(&mut self, bytes: &'a [u8]) -> Vec<&'a [u8]> {
        let max = match self.below(4) {
            0 => 1 + bytes.len() / 256,
            1 => 4 + bytes.len() / 64,
            2 => 1 + bytes.len() / 2,
            _ => 1 + bytes.len(),
        };
        let (mut pieces, mut rest) = (Vec::new(), bytes);
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rest.len().min(1 + self.below(max)));
            pieces.push(piece);
            rest = behind;
        }
        pieces
    }
}

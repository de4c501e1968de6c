//! The CRC of POSIX' `cksum` (IEEE Std 1003.1, utility `cksum`), which XRootD calls `crc32`: the polynomial of Ethernet
//! with the highest bit first, from 0 on, over the bytes and behind them over their number, complemented. It is not what
//! zlib calls CRC-32.

const POLYNOMIAL: u32 = 0x04c1_1db7;

/// `TABLES[n][byte]`: what a byte comes to with `n` zeros behind it.
const TABLES: [[u32; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc >> 31 == 1 { crc << 1 ^ POLYNOMIAL } else { crc << 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before: u32 = tables[zeros - 1][byte];
            tables[zeros][byte] = before << 8 ^ tables[0][(before >> 24) as usize];
            byte += 1;
        }
        zeros += 1;
    }
    tables
};

/// The CRC of bytes given in order.
#[derive(Clone, Default)]
pub(crate) struct PosixCrc {
    crc: u32,
    len: u64,
}

impl PosixCrc {
    /// Takes the next bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.len += bytes.len() as u64;
        let (eights, rest) = bytes.as_chunks::<8>();
        for [a, b, c, d, e, f, g, h] in eights {
            let [a, b, c, d] = (self.crc ^ u32::from_be_bytes([*a, *b, *c, *d])).to_be_bytes();
            let of = |zeros: usize, byte: u8| TABLES[zeros][usize::from(byte)];
            self.crc =
                of(7, a) ^ of(6, b) ^ of(5, c) ^ of(4, d) ^ of(3, *e) ^ of(2, *f) ^ of(1, *g) ^ of(0, *h);
        }
        rest.iter().for_each(|byte| self.step(*byte));
    }

    fn step(&mut self, byte: u8) {
        self.crc = self.crc << 8 ^ TABLES[0][usize::from((self.crc >> 24) as u8 ^ byte)];
    }

    /// The CRC of all bytes taken.
    pub(crate) fn finish(mut self) -> u32 {
        let mut len = self.len;
        while len > 0 {
            self.step(len as u8);
            len >>= 8;
        }
        !self.crc
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(bytes: &[u8]) -> u32 {
        let mut crc = PosixCrc::default();
        crc.update(bytes);
        crc.finish()
    }

    #[test]
    fn what_the_utility_prints() {
        assert_eq!(of(b""), 4_294_967_295);
        assert_eq!(of(b"123456789"), 930_766_865);
        // As xrootd 5.5.3 says it of `crc32`.
        assert_eq!(of(b"abc"), 0x48aa_78a2);
    }

    proptest! {
        #[test]
        fn any_cut_is_the_same(bytes in prop::collection::vec(any::<u8>(), 0..100), cut in any::<prop::sample::Index>()) {
            let (first, second) = bytes.split_at(cut.index(bytes.len() + 1));
            let mut cut = PosixCrc::default();
            cut.update(first);
            cut.update(second);
            let mut slow = PosixCrc { crc: 0, len: bytes.len() as u64 };
            bytes.iter().for_each(|byte| slow.step(*byte));
            prop_assert_eq!(cut.finish(), slow.clone().finish());
            prop_assert_eq!(of(&bytes), slow.finish());
        }
    }
}

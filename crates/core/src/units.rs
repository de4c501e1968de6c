//! Sizes, rates and durations as people write and read them.
//!
//! Prefixes: `k`, `M`, `G`, `T` are powers of 1000, `Ki`, `Mi`, `Gi`, `Ti` powers of 1024. A rate
//! is in bytes per second unless it ends in `bit`, `b/s` or `bps`, which are bits per second.

use crate::error::{Error, ErrorKind, Fault, Result};

/// Reads a size in bytes: `4096`, `64Ki`, `1.5 GB`, `10MiB`.
pub fn parse_bytes(text: &str) -> Result<u64> {
    let plain = text.trim();
    scaled(plain.strip_suffix('B').unwrap_or(plain)).ok_or_else(|| {
        Error::new(ErrorKind::Usage, format!("{text:?} is not a size"))
            .fault(Fault::Caller)
            .hint("write for example 4096, 64Ki, 10M or 1.5GiB")
    })
}

/// Reads a rate and returns bytes per second: `80M`, `80MB/s`, `800Mbit/s`, `800Mb/s`, `1Gbps`.
pub fn parse_rate_bytes_per_s(text: &str) -> Result<u64> {
    let plain = text.trim();
    let bits = ["bit/s", "bits/s", "bit", "b/s", "bps"].iter().find_map(|end| plain.strip_suffix(end));
    let rate = match bits {
        Some(number) => scaled(number).map(|bits| bits / 8),
        None => {
            let number = plain.strip_suffix("/s").unwrap_or(plain);
            scaled(number.strip_suffix('B').unwrap_or(number))
        }
    };
    rate.filter(|rate| *rate > 0).ok_or_else(|| {
        Error::new(ErrorKind::Usage, format!("{text:?} is not a rate"))
            .fault(Fault::Caller)
            .hint("write for example 80M or 80MB/s (bytes), 800Mbit/s or 800Mb/s (bits)")
    })
}

fn scaled(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: f64 = match &text[digits.len()..] {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "Ki" => 1024.0,
        "Mi" => 1024.0 * 1024.0,
        "Gi" => 1024.0 * 1024.0 * 1024.0,
        "Ti" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let digits = digits.trim();
    if factor == 1.0 && digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return digits.parse().ok();
    }
    if !digits.bytes().all(|digit| digit.is_ascii_digit() || digit == b'.') {
        return None;
    }
    let value = digits.parse::<f64>().ok()? * factor;
    (value.is_finite() && value < u64::MAX as f64).then_some(value.round() as u64)
}

/// A size for people, three significant digits: `0 B`, `999 B`, `1.50 GB`.
pub fn format_bytes(bytes: u64) -> String {
    scaled_text(bytes as f64, "B")
}

/// A rate for people: `81.3 MB/s`.
pub fn format_rate(bytes_per_s: f64) -> String {
    scaled_text(bytes_per_s, "B/s")
}

fn scaled_text(value: f64, unit: &str) -> String {
    const PREFIXES: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    let mut scaled = value.max(0.0);
    let mut prefix = 0;
    while scaled >= 999.5 && prefix + 1 < PREFIXES.len() {
        scaled /= 1000.0;
        prefix += 1;
    }
    let digits = match scaled {
        _ if prefix == 0 => 0,
        s if s < 9.995 => 2,
        s if s < 99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.digits$} {}{unit}", PREFIXES[prefix])
}

/// A duration for people: `0.31 s`, `42 s`, `3 min 20 s`, `2 h 05 min`.
pub fn format_seconds(seconds: f64) -> String {
    let seconds = seconds.max(0.0);
    if seconds < 9.995 {
        return format!("{seconds:.2} s");
    }
    let whole = seconds.round() as u64;
    match whole {
        0..=119 => format!("{whole} s"),
        120..=7199 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_rates() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("64Ki", 65536), ("1.5 GB", 1_500_000_000), ("10MiB", 10 << 20)]
        {
            assert_eq!(parse_bytes(text).unwrap(), bytes, "{text}");
        }
        for (text, rate) in [
            ("80M", 80_000_000),
            ("80MB/s", 80_000_000),
            ("800Mbit/s", 100_000_000),
            ("800Mb/s", 100_000_000),
            ("1Gbps", 125_000_000),
            ("4KiB/s", 4096),
        ] {
            assert_eq!(parse_rate_bytes_per_s(text).unwrap(), rate, "{text}");
        }
        for bad in ["", "x", "-1", "1e9", "inf", "NaN", "1 furlong", "0", "99999999999T"] {
            assert!(parse_rate_bytes_per_s(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn text_for_people() {
        assert_eq!(format_bytes(0), "0 B");
        assert_eq!(format_bytes(999), "999 B");
        assert_eq!(format_bytes(999_999), "1.00 MB");
        assert_eq!(format_bytes(1_500_000_000), "1.50 GB");
        assert_eq!(format_rate(81_300_000.0), "81.3 MB/s");
        assert_eq!(format_seconds(0.314), "0.31 s");
        assert_eq!(format_seconds(119.6), "2 min 00 s");
        assert_eq!(format_seconds(7500.0), "2 h 05 min");
    }
}

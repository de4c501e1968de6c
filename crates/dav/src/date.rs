//! Dates on the wire (RFC 9110, 5.6.7): written in one form, read in three.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::header::trim;

/// The last second that the format can write: the end of the year 9999.
const LAST_S: u64 = 253_402_300_799;

/// `Sun, 06 Nov 1994 08:49:37 GMT`. Moments outside of 1970 to 9999 are written as the nearest inside.
pub fn format(moment: SystemTime) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(whole_seconds(moment)))
}

/// Reads any of the three forms; `None` when it is none of them.
pub fn parse(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(trim(text)).ok()
}

/// Seconds since 1970, as the format can write them: what to compare a parsed date with.
pub fn whole_seconds(moment: SystemTime) -> u64 {
    moment.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()).min(LAST_S)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_three_forms() {
        let moment = UNIX_EPOCH + Duration::from_secs(784_111_777);
        assert_eq!(format(moment + Duration::from_millis(900)), "Sun, 06 Nov 1994 08:49:37 GMT");
        for text in
            ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
        {
            assert_eq!(parse(text), Some(moment), "{text}");
        }
        assert_eq!(parse("yesterday"), None);
    }

    #[test]
    fn moments_that_cannot_be_written() {
        assert_eq!(format(UNIX_EPOCH - Duration::from_secs(9)), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(format(UNIX_EPOCH + Duration::from_secs(LAST_S + 9)), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    proptest! {
        #[test]
        fn round_trip(seconds in 0..=LAST_S) {
            let moment = UNIX_EPOCH + Duration::from_secs(seconds);
            prop_assert_eq!(parse(&format(moment)), Some(moment));
        }

        #[test]
        fn never_panics(text in "\\PC*") {
            let _ = parse(&text);
        }
    }
}

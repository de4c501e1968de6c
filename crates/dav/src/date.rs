//! Dates on the wire (RFC 9110, 5.6.7): written in one form, read in three.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::header::trim;
use crate::timestamp::civil;

/// The last second that the format can write: the end of the year 9999.
const LAST_S: u64 = 253_402_300_799;

const DAYS: [&str; 7] = ["Sun, ", "Mon, ", "Tue, ", "Wed, ", "Thu, ", "Fri, ", "Sat, "];
const MONTHS: [&str; 12] = [
    " Jan ", " Feb ", " Mar ", " Apr ", " May ", " Jun ", " Jul ", " Aug ", " Sep ", " Oct ", " Nov ",
    " Dec ",
];

/// `Sun, 06 Nov 1994 08:49:37 GMT`. Moments outside of 1970 to 9999 are written as the nearest inside.
pub fn format(moment: SystemTime) -> String {
    // By hand: every answer has one, and `format!` takes several times as long.
    let seconds = whole_seconds(moment);
    let (days, second) = ((seconds / 86_400) as i64, (seconds % 86_400) as i64);
    let (year, month, day) = civil(days);
    let mut text = String::with_capacity(29);
    // The first day was a Thursday.
    text.push_str(DAYS[(days as usize + 4) % 7]);
    two_digits(&mut text, day);
    text.push_str(MONTHS[(month as usize + 11) % 12]);
    two_digits(&mut text, year / 100);
    two_digits(&mut text, year % 100);
    for (mark, number) in [(' ', second / 3600), (':', second / 60 % 60), (':', second % 60)] {
        text.push(mark);
        two_digits(&mut text, number);
    }
    text.push_str(" GMT");
    text
}

fn two_digits(text: &mut String, number: i64) {
    for digit in [number / 10 % 10, number % 10] {
        text.push(char::from(b'0' + digit as u8));
    }
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
    use std::time::Duration;

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
            prop_assert_eq!(format(moment), httpdate::fmt_http_date(moment));
        }

        #[test]
        fn never_panics(text in "\\PC*") {
            let _ = parse(&text);
        }
    }
}

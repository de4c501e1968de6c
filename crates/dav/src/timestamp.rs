//! Dates of WebDAV's properties: `creationdate` as RFC 3339 writes it, and what servers write instead of
//! the forms of [`crate::date`].

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{date, header};

const DAY_S: i64 = 86_400;
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// `1994-11-06T08:49:37Z` (RFC 3339, 5.6): whole seconds, in UTC, within the years that
/// [`date::format`] can write.
pub fn format(moment: SystemTime) -> String {
    let seconds = date::whole_seconds(moment) as i64;
    let (year, month, day) = civil(seconds.div_euclid(DAY_S));
    let second = seconds.rem_euclid(DAY_S);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Reads a date in any form that a WebDAV server is known to write; `None` when it is none of them.
///
/// Beside HTTP's three forms: RFC 3339 with any offset and fractions (dropped) and with a space for the
/// `T`; RFC 5322 with one digit for the day, with a numeric zone, without the day of the week; and what
/// `date` prints (`Wed May 17 15:31:58 UTC 2017`). A zone that is a name other than UTC's cannot be known
/// and is no date. Fractions and moments before 1970 are not kept.
pub fn parse(text: &str) -> Option<SystemTime> {
    let text = text.trim();
    if !text.is_ascii() || text.len() > 64 {
        return None;
    }
    date::parse(text).or_else(|| parse_rfc3339(text)).or_else(|| parse_words(text))
}

/// Reads seconds since 1970 with or without a fraction, as ownCloud's `X-OC-Mtime` has them; `None` for
/// anything else, and for moments behind the year 9999.
pub fn from_seconds(text: &str) -> Option<SystemTime> {
    const SECONDS_MAX: u64 = 253_402_300_799;
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let seconds = header::number(seconds).filter(|seconds| *seconds <= SECONDS_MAX)?;
    header::number(fraction.get(..18).unwrap_or(fraction))?;
    let nanoseconds: u32 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds))
}

fn parse_rfc3339(text: &str) -> Option<SystemTime> {
    let (day, time) = text.split_at_checked(10)?;
    let time = time.strip_prefix(['T', 't', ' '])?;
    let mut parts = day.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let (clock, zone) = time.split_at_checked(8)?;
    let zone = match zone.strip_prefix('.') {
        Some(fraction) => fraction.trim_start_matches(|c: char| c.is_ascii_digit()),
        None => zone,
    };
    moment(number(year, 4)?, number(month, 2)?, number(day, 2)?, clock, zone.trim())
}

/// Day, month and year in words and numbers, in one of the two orders that are in use.
fn parse_words(text: &str) -> Option<SystemTime> {
    let text = match text.split_once(',') {
        Some((_, behind)) => behind,
        None => text,
    };
    let mut words: Vec<&str> = text.split_ascii_whitespace().collect();
    if words.first().is_some_and(|word| word.len() == 3 && month_of(word).is_none()) {
        words.remove(0);
    }
    let (day, month, year, clock, zone) = match words.as_slice() {
        // 7 Sep 2018 08:49:58 GMT
        [day, month, year, clock, zone] if month_of(month).is_some() => (day, month, year, clock, zone),
        // Sep 7 08:49:58 UTC 2018
        [month, day, clock, zone, year] => (day, month, year, clock, zone),
        _ => return None,
    };
    moment(number(year, 4)?, month_of(month)?, number(day, day.len().min(2))?, clock, zone)
}

fn month_of(word: &str) -> Option<i64> {
    let at = MONTHS.iter().position(|month| month.eq_ignore_ascii_case(word))?;
    Some(at as i64 + 1)
}

fn moment(year: i64, month: i64, day: i64, clock: &str, zone: &str) -> Option<SystemTime> {
    let mut parts = clock.split(':');
    let (hour, minute, second) = (parts.next()?, parts.next()?, parts.next()?);
    let (hour, minute, second) = (number(hour, 2)?, number(minute, 2)?, number(second, 2)?);
    // A second of 60 is a leap second: the first of the next minute.
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let days = days(year, month, day);
    if civil(days) != (year, month, day) {
        return None;
    }
    let seconds = days * DAY_S + hour * 3600 + minute * 60 + second - offset(zone)?;
    Some(UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).ok()?))
}

/// Seconds that a zone's clocks are ahead of UTC.
fn offset(zone: &str) -> Option<i64> {
    if ["", "Z", "GMT", "UTC", "UT"].iter().any(|utc| zone.eq_ignore_ascii_case(utc)) {
        return Some(0);
    }
    let (sign, digits) = match zone.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let digits = digits.replacen(':', "", 1);
    let (hours, minutes) = digits.split_at_checked(2)?;
    let (hours, minutes) = (number(hours, 2)?, number(minutes, 2)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

/// A number of exactly so many digits.
fn number(text: &str, digits: usize) -> Option<i64> {
    let plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

/// Days from 1970-01-01 to a day of the Gregorian calendar; years begin in March for it, so that the
/// leap day is the last of its year.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let era = year.div_euclid(400);
    let year = year.rem_euclid(400);
    era * 146_097 + year * 365 + year / 4 - year / 100 + (month * 153 + 2) / 5 + day - 1 - 719_468
}

/// Year, month and day of a number of days since 1970-01-01.
pub(crate) fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (of_year * 5 + 2) / 153;
    let day = of_year - (month * 153 + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn seconds_of_own_cloud() {
        for (text, expected) in [
            ("1700000000", Some((1_700_000_000, 0))),
            ("1700000000.25", Some((1_700_000_000, 250_000_000))),
            ("1700000000.1234567891", Some((1_700_000_000, 123_456_789))),
            ("0", Some((0, 0))),
            ("253402300800", None),
            ("-5", None),
            ("1.", None),
            (".5", None),
            ("1.x", None),
            ("1.+5", None),
            ("1e9", None),
            ("", None),
            ("accepted", None),
        ] {
            let expected = expected.map(|(seconds, nanos)| UNIX_EPOCH + Duration::new(seconds, nanos));
            assert_eq!(from_seconds(text), expected, "{text}");
        }
    }

    #[test]
    fn what_servers_write() {
        let moment = UNIX_EPOCH + Duration::from_secs(784_111_777);
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun,  6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 +0000",
            "Sun, 06 Nov 1994 09:49:37 +0100",
            "Sun, 06 Nov 1994 05:19:37 -0330",
            "06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun Nov  6 08:49:37 UTC 1994",
            "1994-11-06T08:49:37Z",
            "1994-11-06t08:49:37.123456z",
            "1994-11-06T09:49:37+01:00",
            "1994-11-06T09:49:37.5+0100",
            "1994-11-05T23:49:37-09:00",
            "1994-11-06 08:49:37",
            "  1994-11-06T08:49:37Z\n",
        ] {
            assert_eq!(parse(text), Some(moment), "{text}");
        }
        assert_eq!(format(moment), "1994-11-06T08:49:37Z");
        for text in [
            "",
            "yesterday",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "1994-11-06",
            "1994-13-06T08:49:37Z",
            "1994-02-30T08:49:37Z",
            "1994-11-06T24:49:37Z",
            "1994-11-06T08:49:37+24:00",
            "+994-11-06T08:49:37Z",
            "1960-01-01T00:00:00Z",
            "0",
            "784111777",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_calendar() {
        for (days_since, date) in [
            (0, (1970, 1, 1)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (47_541, (2100, 3, 1)),
            (47_540, (2100, 2, 28)),
            (-1, (1969, 12, 31)),
        ] {
            assert_eq!(civil(days_since), date);
            assert_eq!(days(date.0, date.1, date.2), days_since);
        }
    }

    proptest! {
        /// Against an independent implementation: what `httpdate` says of the same moment.
        #[test]
        fn round_trip(seconds in 0u64..253_402_300_799) {
            let moment = UNIX_EPOCH + Duration::from_secs(seconds);
            let text = format(moment);
            prop_assert_eq!(parse(&text), Some(moment), "{}", text);
            let http = date::format(moment);
            prop_assert_eq!(&http[12..16], &text[..4]);
            prop_assert_eq!(&http[5..7], &text[8..10]);
            prop_assert_eq!(month_of(&http[8..11]), number(&text[5..7], 2));
            prop_assert_eq!(parse_words(&http), Some(moment));
        }

        #[test]
        fn never_panics(text in "(\\PC|[0-9:+TZ-]){0,40}", day in "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\PC{0,7}") {
            let _ = (parse(&text), parse(&day), parse_words(&text), parse_words(&day));
        }
    }
}

//! Times as FTS3's answers have them: `2026-11-27T22:14:50`, UTC, without a suffix (fts3-rest 1).

/// A time, given in seconds since 1970. Times before the year 0 and after 9999 are written as these.
pub fn written(at_s: i64) -> String {
    const DAY_S: i64 = 86_400;
    // 0000-01-01 and 9999-12-31T23:59:59.
    let at_s = at_s.clamp(-62_167_219_200, 253_402_300_799);
    let (days, second) = (at_s.div_euclid(DAY_S), at_s.rem_euclid(DAY_S));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// The same without seconds and with dashes only, for names of transfers: `2026-11-27-2214`.
pub fn stamp(at_s: i64) -> String {
    let text = written(at_s);
    format!("{}-{}{}", &text[..10], &text[11..13], &text[14..16])
}

/// Year, month and day of a day that is counted from 1970-01-01, in the Gregorian calendar (Hinnant, "chrono-compatible low-level date
/// algorithms", `civil_from_days`).
fn civil(days: i64) -> (i64, i64, i64) {
    // Days of 400 years; years begin in March, so that the day that is sometimes there comes last.
    const ERA_DAYS: i64 = 146_097;
    let days = days + 719_468;
    let era = days.div_euclid(ERA_DAYS);
    let day_of_era = days.rem_euclid(ERA_DAYS);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_fts3_does() {
        for (at_s, text) in [
            (0, "1970-01-01T00:00:00"),
            (951_827_696, "2000-02-29T12:34:56"),
            (1_795_817_690, "2026-11-27T22:14:50"),
            (-1, "1969-12-31T23:59:59"),
            (i64::MAX, "9999-12-31T23:59:59"),
            (i64::MIN, "0000-01-01T00:00:00"),
        ] {
            assert_eq!(written(at_s), text);
        }
        assert_eq!(stamp(951_827_696), "2000-02-29-1234");
    }

    #[test]
    fn days_follow_each_other() {
        let mut before = civil(-800_000);
        for days in -799_999..800_000 {
            let (year, month, day) = civil(days);
            assert!((year, month, day) > before && (1..=12).contains(&month) && (1..=31).contains(&day));
            let is_next = (year, month) == (before.0, before.1) && day == before.2 + 1
                || day == 1
                    && (before.2 >= 28)
                    && ((year, month) == (before.0, before.1 + 1) || (month == 1 && year == before.0 + 1));
            assert!(is_next, "{before:?} {year} {month} {day}");
            before = (year, month, day);
        }
    }
}

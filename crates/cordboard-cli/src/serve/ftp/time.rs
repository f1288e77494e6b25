//! Times as digits: `YYYYMMDDHHMMSS`, always in UTC (RFC 3659).

/// Seconds in a day.
const DAY: i64 = 86_400;

/// A time in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Utc {
    pub year: i64,
    pub month: u32,
    pub day: u32,
    pub hour: u32,
    pub minute: u32,
    pub second: u32,
}

impl Utc {
    /// Converts seconds since 1970.
    pub fn of(seconds: i64) -> Utc {
        let (year, month, day) = date(seconds.div_euclid(DAY));
        let rest = seconds.rem_euclid(DAY) as u32;
        Utc {
            year,
            month,
            day,
            hour: rest / 3600,
            minute: rest / 60 % 60,
            second: rest % 60,
        }
    }

    /// Returns the digits. `None`: the year does not have four digits. Some file systems
    /// store any 64-bit number of seconds.
    pub fn digits(self) -> Option<String> {
        let digits = format!(
            "{:04}{:02}{:02}{:02}{:02}{:02}",
            self.year, self.month, self.day, self.hour, self.minute, self.second
        );
        (0..=9999).contains(&self.year).then_some(digits)
    }

    /// Returns the time in the format of RFC 3339.
    pub fn rfc3339(self) -> String {
        format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
            self.year, self.month, self.day, self.hour, self.minute, self.second
        )
    }

    /// Returns the time in the format of ls(1), with the year if it is not recent.
    pub fn listed(self, now: i64, seconds: i64) -> String {
        const NAMES: [&str; 12] = [
            "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
        ];
        let month = NAMES[self.month as usize - 1];
        match (0..180 * DAY).contains(&now.saturating_sub(seconds)) {
            true => format!("{month} {:2} {:02}:{:02}", self.day, self.hour, self.minute),
            false => format!("{month} {:2} {:5}", self.day, self.year),
        }
    }
}

/// Returns the seconds since 1970 of these digits. Ignores a fraction of a second.
pub fn parse(digits: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(digits).ok()?;
    let text = text.split('.').next()?;
    if text.len() != 14 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let part = |range: std::ops::Range<usize>| text[range].parse::<i64>().ok();
    let (year, month, day) = (part(0..4)?, part(4..6)?, part(6..8)?);
    let (hour, minute, second) = (part(8..10)?, part(10..12)?, part(12..14)?);
    let days = days(year, month, day);
    let valid = date(days) == (year, month as u32, day as u32);
    let in_range = (1..=12).contains(&month) && hour < 24 && minute < 60 && second <= 60;
    (valid && in_range).then(|| days * DAY + hour * 3600 + minute * 60 + second)
}

/// Returns the days since 1970 of a date of the Gregorian calendar ("chrono-Compatible
/// Low-Level Date Algorithms", Hinnant).
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Returns the date of a number of days since 1970.
fn date(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (
        year + era * 400 + i64::from(month <= 2),
        month as u32,
        day as u32,
    )
}

/// Returns the seconds since 1970.
pub fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_digits() {
        for (seconds, digits) in [
            (0, "19700101000000"),
            (951_782_400, "20000229000000"),
            (1_000_000_000, "20010909014640"),
            (4_102_444_799, "20991231235959"),
            (-1, "19691231235959"),
            (-62_167_219_200, "00000101000000"),
            (253_402_300_799, "99991231235959"),
        ] {
            assert_eq!(Utc::of(seconds).digits().as_deref(), Some(digits));
            assert_eq!(parse(digits.as_bytes()), Some(seconds));
        }
        for seconds in [i64::MIN, -62_167_219_201, 253_402_300_800, i64::MAX] {
            assert_eq!(Utc::of(seconds).digits(), None, "{seconds}");
        }
        for bad in [
            "20010229000000",
            "20011301000000",
            "2001090901464",
            "20010909250000",
        ] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(parse(b"20010909014640.123"), Some(1_000_000_000));
        assert_eq!(
            Utc::of(1_000_000_000).listed(1_000_000_060, 1_000_000_000),
            "Sep  9 01:46"
        );
        assert_eq!(
            Utc::of(1_000_000_000).listed(1_100_000_000, 1_000_000_000),
            "Sep  9  2001"
        );
        // The difference has no 64-bit number.
        let far = Utc::of(i64::MIN).listed(1_000_000_000, i64::MIN);
        assert_eq!(far, "Jan 27 -292277022657");
    }
}

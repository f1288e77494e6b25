//! Sizes, times and rates: parsed from arguments, formatted for messages.

use std::time::Duration;

use cordboard::{Aim, Schedule};

const ACCEPTED: &str = "a size is a number of bytes, with K, M, G or T (powers of 1024; also \
KiB, MiB, GiB, TiB) or kB, MB, GB or TB (powers of 1000), for example 4096, 64K, 1.5G or 10MB";

/// Parses a size in bytes: `4096`, `64K`, `1.5G`, `10MB`. A part of a byte is left out behind
/// whole ones.
pub fn size(text: &str) -> Result<u64, String> {
    let digits = text
        .bytes()
        .take_while(|b| b.is_ascii_digit() || *b == b'.');
    let (number, unit) = text.split_at(digits.count());
    let factor: u64 = match unit {
        "" | "B" => 1,
        "K" | "k" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        "T" | "TiB" => 1 << 40,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => return Err(ACCEPTED.to_owned()),
    };
    let (whole, fraction) = match number.split_once('.') {
        // A fraction of one byte has no meaning.
        Some((_, fraction)) if factor == 1 || fraction.contains('.') => ("", fraction),
        Some((_, "")) => ("", ""),
        Some(parts) => parts,
        None => (number, ""),
    };
    if whole.is_empty() {
        return Err(ACCEPTED.to_owned());
    }
    // 18 digits, of which the last is less than a byte of the largest unit.
    let decimals: u128 = format!("{fraction:0<18.18}").parse().unwrap_or_default();
    let part = u128::from(factor) * decimals / 10_u128.pow(18);
    let whole = whole.parse::<u64>().ok().map(u128::from);
    whole
        .and_then(|whole| whole.checked_mul(factor.into())?.checked_add(part))
        .and_then(|bytes| i64::try_from(bytes).ok())
        .and_then(|bytes| u64::try_from(bytes).ok())
        .ok_or_else(|| "exceeds 2^63-1 bytes, the largest offset of a file".to_owned())
        .and_then(|bytes| {
            let is_zero = !number.contains(|digit| matches!(digit, '1'..='9'));
            match bytes > 0 || is_zero {
                true => Ok(bytes),
                false => Err("is less than one byte".to_owned()),
            }
        })
}

/// Parses the size of a block: at least one byte, and no more than fits into
/// memory.
pub fn block(text: &str) -> Result<std::num::NonZeroUsize, String> {
    let bytes = size(text)?;
    if bytes > 1 << 40 {
        return Err("a block has at most 1T".to_owned());
    }
    usize::try_from(bytes)
        .ok()
        .and_then(std::num::NonZeroUsize::new)
        .ok_or_else(|| "a block has at least one byte".to_owned())
}

/// Parses a rate in bytes a second. 0: no limit.
pub fn per_second_or_none(text: &str) -> Result<u64, String> {
    size(text.strip_suffix("/s").unwrap_or(text))
}

/// Parses a rate in bytes a second: at least one.
pub fn per_second(text: &str) -> Result<u64, String> {
    match per_second_or_none(text)? {
        0 => Err("a rate is at least one byte a second".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Parses the size of a buffer: at least one byte.
pub fn buffer(text: &str) -> Result<u64, String> {
    match size(text)? {
        0 => Err("a buffer has at least one byte".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Parses a schedule of blocks and milliseconds: `4,70`.
pub fn schedule(text: &str) -> Result<Schedule, String> {
    let (count, millis) = blocks(text)?;
    let rest = Duration::from_millis(u64::from(millis));
    Ok(Schedule::blocks(count, rest))
}

/// Parses the aim of an automatic schedule: `background`, `share`, `share=3`.
pub fn aim(text: &str) -> Result<Aim, String> {
    let weight = text.strip_prefix("share=").map(str::parse::<u32>);
    let aim = match (text, weight) {
        ("throughput", _) => Some(Aim::Throughput),
        ("background", _) => Some(Aim::Background),
        ("share", _) => Aim::share(1),
        (_, Some(Ok(weight))) if !text.contains('+') => Aim::share(weight),
        _ => None,
    };
    aim.ok_or_else(|| {
        "an aim is throughput, background, share, or share=WEIGHT with a weight from 1 to 4294967295"
            .to_owned()
    })
}

/// Returns the name of an aim, which [`aim`] parses.
pub fn aim_name(aim: Aim) -> String {
    match aim {
        Aim::Background => "background".to_owned(),
        Aim::Share(weight) => format!("share={weight}"),
        _ => "throughput".to_owned(),
    }
}

/// What a schedule of blocks is.
pub const BLOCKS: &str =
    "a schedule is a number of blocks from 1 and a number of milliseconds, for example 4,70";

/// Parses a number of blocks and of milliseconds: `4,70`.
fn blocks(text: &str) -> Result<(u32, u32), String> {
    match blocks_or_count(text)? {
        (count, Some(rest)) => Ok((count, rest)),
        (_, None) => Err(BLOCKS.to_owned()),
    }
}

/// Parses the same, or a number of blocks alone: `4`.
pub fn blocks_or_count(text: &str) -> Result<(u32, Option<u32>), String> {
    let (count, rest) = match text.split_once(',') {
        Some((count, rest)) => (count, Some(self::rest(rest)?)),
        None => (text, None),
    };
    match self::rest(count)? {
        0 => Err(BLOCKS.to_owned()),
        count => Ok((count, rest)),
    }
}

/// Parses the number of milliseconds of such a schedule.
pub fn rest(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|_| !text.starts_with('+'));
    number.ok_or_else(|| BLOCKS.to_owned())
}

/// Parses the size of a frame: at least one byte.
pub fn frame(text: &str) -> Result<u64, String> {
    match size(text)? {
        0 => Err("a frame has at least one byte".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Formats a number: `9,501`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Parses the number of files at once.
pub fn jobs(text: &str) -> Result<std::num::NonZeroUsize, String> {
    text.parse().map_err(|_| {
        "expected a number of files, for example 4; 1 copies one after the other".to_owned()
    })
}

/// Parses the number of clients at a time.
pub fn clients(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("a number of clients is between 1 and {}", usize::MAX))
}

/// The longest time, a hundred years: the clock can represent its end.
const LONGEST: Duration = Duration::from_secs(3_155_760_000);

/// Parses a time in seconds, with fractions. A longer one than a hundred years counts as that.
pub fn seconds(text: &str) -> Result<Duration, String> {
    text.parse::<f64>()
        .ok()
        .filter(|s| *s > 0.0 && s.is_finite())
        .map(|s| {
            Duration::try_from_secs_f64(s)
                .unwrap_or(LONGEST)
                .min(LONGEST)
        })
        .filter(|d| !d.is_zero())
        .ok_or_else(|| "a time is a number of seconds above 0, for example 2 or 0.5".to_owned())
}

/// Parses frames per second: `25`, `29.97`, `30000/1001`.
pub fn frames(text: &str) -> Result<f64, String> {
    quotient(text)
        .filter(|fps| (1e-6..=1e6).contains(fps))
        .ok_or_else(|| {
            "the frame rate is a number from 0.000001 to 1000000, or a fraction, \
             for example 25, 29.97 or 30000/1001"
                .to_owned()
        })
}

/// Parses a multiple of the normal speed: `2`, `0.5`, `1/3`.
pub fn speed(text: &str) -> Result<f64, String> {
    quotient(text)
        .filter(|speed| SPEEDS.contains(speed))
        .ok_or_else(|| {
            format!(
                "a speed is a number from {} to {}, or a fraction, for example 2, 0.5 or 1/3",
                SPEEDS.start(),
                SPEEDS.end()
            )
        })
}

/// The allowed speeds.
pub const SPEEDS: std::ops::RangeInclusive<f64> = 0.01..=100.0;

/// Parses a decimal number, or the quotient of two.
fn quotient(text: &str) -> Option<f64> {
    let number = |text: &str| {
        let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        text.parse::<f64>().ok().filter(|_| plain)
    };
    match text.split_once('/') {
        Some((over, under)) => Some(number(over)? / number(under)?),
        None => number(text),
    }
}

/// Formats a size: `999 bytes`, `1.0 KiB`, `31 GiB`, with at least two digits
/// and powers of 1024.
pub fn bytes(n: u64) -> String {
    match n {
        n if n < 1024 => number_of(n, "byte"),
        n => scaled(n as f64),
    }
}

/// Returns a share in percent, rounded down: 100 only if all is done. At most 100, although a file
/// may have grown.
pub fn share(done: u64, total: u64) -> u8 {
    (u128::from(done) * 100 / u128::from(total.max(1))).min(100) as u8
}

/// Formats a number of things, in full: `1 byte`, `5000 bytes`.
pub fn number_of(n: u64, thing: &str) -> String {
    format!("{n} {}", plural(n, thing))
}

/// Returns the singular or the plural of a thing, for this number of them.
pub fn plural(n: u64, thing: &str) -> String {
    match n {
        1 => thing.to_owned(),
        _ => format!("{thing}s"),
    }
}

/// Formats bytes per second.
pub fn rate(bytes: f64) -> String {
    if bytes < 1024.0 {
        format!("{bytes:.0} B/s")
    } else {
        format!("{}/s", scaled(bytes))
    }
}

fn scaled(mut value: f64) -> String {
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
        // A value that rounds to 1024 belongs to the next unit.
        if value < 1023.5 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if value < 9.95 {
        format!("{value:.1} {unit}")
    } else {
        format!("{value:.0} {unit}")
    }
}

/// Formats a time: `0.004 s`, `1.2 s`, `3:07`, `2:00:09`.
pub fn time(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    if seconds < 0.1 {
        format!("{seconds:.3} s")
    } else if seconds < 99.95 {
        format!("{seconds:.1} s")
    } else {
        clock(elapsed)
    }
}

/// Formats a time: `0:07`, `3:07`, `2:00:09`.
pub fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if h > 0 {
        format!("{h}:{m:02}:{s:02}")
    } else {
        format!("{m}:{s:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded_down() {
        assert_eq!(share(199, 200), 99);
        assert_eq!(share(u64::MAX - 1, u64::MAX), 99);
        assert_eq!(share(u64::MAX, 1), 100);
        assert_eq!(share(0, 0), 0);
    }

    #[test]
    fn counts() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (9_501, "9,501")] {
            assert_eq!(count(number), text);
        }
        assert_eq!(count(1_234_567), "1,234,567");
    }

    #[test]
    fn sizes() {
        for (text, expected) in [
            ("0", 0),
            ("1", 1),
            ("4096", 4096),
            ("5B", 5),
            ("1K", 1024),
            ("1k", 1024),
            ("3KiB", 3072),
            ("2M", 2 << 20),
            ("2MiB", 2 << 20),
            ("1G", 1 << 30),
            ("1T", 1 << 40),
            ("1kB", 1000),
            ("7MB", 7_000_000),
            ("1GB", 1_000_000_000),
            ("1.5K", 1536),
            ("0.1kB", 100),
            ("0.00K", 0),
            ("0.001K", 1),
            ("2.25MiB", 9 << 18),
            ("1.000000000000000000000001G", 1 << 30),
            ("7.999999999999999999T", 8 * (1 << 40) - 1),
            ("9223372036854775807", i64::MAX as u64),
        ] {
            assert_eq!(size(text), Ok(expected), "{text}");
        }
        for junk in [
            "", "K", "-1", "+1", "1.5", "1.5B", ".5K", "1.K", "1.5.5K", ".", "1 K", "1Q", "1KK",
            "0x10", "1b", "١", "1e3",
        ] {
            assert_eq!(size(junk), Err(ACCEPTED.to_owned()), "{junk}");
        }
        for tiny in ["0.0001K", "0.0000000000001T"] {
            assert_eq!(size(tiny), Err("is less than one byte".to_owned()));
        }
        for huge in [
            "9223372036854775808",
            "99999999999999999999",
            "8388608T",
            "8388608.5T",
        ] {
            assert!(size(huge).unwrap_err().contains("2^63-1"), "{huge}");
        }
    }

    #[test]
    fn blocks_and_seconds() {
        assert_eq!(block("64K").unwrap().get(), 65536);
        assert!(block("0").is_err() && block("x").is_err() && block("2T").is_err());
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(seconds("1e19"), Ok(LONGEST));
        assert!(std::time::Instant::now().checked_add(LONGEST).is_some());
        for junk in ["", "0", "-1", "nan", "inf", "1s", "1e-30"] {
            assert!(seconds(junk).is_err(), "{junk}");
        }
    }

    #[test]
    fn rates_and_schedules() {
        assert_eq!(per_second("64K"), Ok(65536));
        assert_eq!(per_second("1.5M/s"), Ok(3 << 19));
        assert_eq!(per_second_or_none("1.5M/s"), Ok(3 << 19));
        assert_eq!(per_second_or_none("0"), Ok(0));
        assert_eq!(aim("share").ok(), Aim::share(1));
        assert_eq!(aim("share=3").ok(), Aim::share(3));
        assert_eq!(per_second("10MB/s"), Ok(10_000_000));
        let rest = Duration::from_millis(70);
        assert_eq!(schedule("4,70"), Ok(Schedule::blocks(4, rest)));
        assert_eq!(schedule("1,0"), Ok(Schedule::blocks(1, Duration::ZERO)));
        for junk in ["", "0", "x", "1M/h", "-1"] {
            assert!(per_second(junk).is_err(), "{junk}");
        }
        for junk in [
            "",
            "4",
            "0,70",
            "4,",
            ",70",
            "4,70,1",
            "+4,70",
            "4,-1",
            "4, 70",
            "4,99999999999",
        ] {
            assert!(schedule(junk).is_err(), "{junk}");
        }
        assert_eq!(blocks_or_count("4,70"), Ok((4, Some(70))));
        assert_eq!(blocks_or_count("4"), Ok((4, None)));
        assert_eq!(super::rest("0"), Ok(0));
        for junk in ["", "0", "+4", "-4", "4,", "4,+1"] {
            assert!(blocks_or_count(junk).is_err(), "{junk}");
        }
    }

    #[test]
    fn fractions() {
        assert_eq!(frames("25"), Ok(25.0));
        assert_eq!(frames("29.97"), Ok(29.97));
        assert_eq!(frames("30000/1001"), Ok(30000.0 / 1001.0));
        assert_eq!(speed("1/4"), Ok(0.25));
        for junk in [
            "", "0", "-1", "nan", "inf", "1e3", "1/0", "0/0", "/", "1/2/3", "x", "+1", ".",
        ] {
            assert!(frames(junk).is_err() && speed(junk).is_err(), "{junk}");
        }
        assert!(speed("101").is_err() && frames("1000001").is_err());
    }

    #[test]
    fn for_people() {
        assert_eq!(bytes(0), "0 bytes");
        assert_eq!(bytes(1), "1 byte");
        assert_eq!(bytes(1023), "1023 bytes");
        assert_eq!(number_of(1, "block"), "1 block");
        assert_eq!(number_of(5000, "byte"), "5000 bytes");
        assert_eq!(bytes(1024), "1.0 KiB");
        assert_eq!(bytes(1024 * 1024 - 1), "1.0 MiB");
        assert_eq!(bytes(31 << 30), "31 GiB");
        assert_eq!(bytes(u64::MAX), "16 EiB");
        assert_eq!(rate(1.7 * 1024.0 * 1024.0 * 1024.0), "1.7 GiB/s");
        assert_eq!(rate(0.0), "0 B/s");
        assert_eq!(time(Duration::from_millis(4)), "0.004 s");
        assert_eq!(time(Duration::from_millis(1234)), "1.2 s");
        assert_eq!(time(Duration::from_secs(7209)), "2:00:09");
        assert_eq!(clock(Duration::from_secs(187)), "3:07");
    }
}

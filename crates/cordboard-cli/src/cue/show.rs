//! A status, as a line.

use std::fmt::Write as _;

use cordboard::cue::{Command, Limit, State, Status};
use cordboard::{Aim, Schedule};

use crate::units;

/// Returns the status as text.
pub fn text(status: &Status) -> String {
    let mut line = name(status.state).to_owned();
    let bytes = units::count(status.written);
    let _ = match status.total.filter(|total| *total > 0) {
        Some(total) => {
            let share = units::share(status.written, total);
            write!(line, ": {bytes} of {}, {share} %", counted_bytes(total))
        }
        None => write!(line, ": {}", counted_bytes(status.written)),
    };
    let seconds = status.elapsed.as_secs_f64();
    let rate = status.written as f64 / seconds.max(0.001);
    let _ = write!(
        line,
        " in {}, {}",
        units::time(status.elapsed),
        units::rate(rate)
    );
    // A buffer holds the difference, unless a stage changes the bytes.
    if status.read != status.written {
        let _ = write!(line, ", {} read", counted_bytes(status.read));
    }
    if let level @ 1.. = status.read.saturating_sub(status.written) {
        let _ = write!(line, " ({} more than written)", units::count(level));
    }
    if let Some(path) = status.path {
        let _ = write!(line, ", by {path}");
    }
    let schedules = [
        ("", status.schedule),
        ("limited to ", status.rate_limit),
        ("limited to ", status.blocks_limit),
    ];
    for (limited, schedule) in schedules {
        if let Some(words) = words(schedule) {
            let _ = write!(line, ", {limited}{words}");
        }
    }
    line + "\n"
}

fn counted_bytes(n: u64) -> String {
    format!("{} {}", units::count(n), units::plural(n, "byte"))
}

/// Returns the words of a schedule, if there is one.
fn words(schedule: Schedule) -> Option<String> {
    match schedule {
        Schedule::Rate(rate) => {
            let rate = counted_bytes(rate.get());
            Some(format!("at most {rate} a second"))
        }
        Schedule::Blocks { count, rest } => {
            let rest = rest.as_millis();
            let blocks = units::number_of(u64::from(count.get()), "block");
            Some(format!("{blocks} between rests of {rest} ms"))
        }
        Schedule::Auto(aim) => Some(format!("automatic: {}", units::aim_name(aim))),
        _ => None,
    }
}

/// Returns the status of a command that has ended.
pub fn ended(json: bool) -> String {
    match json {
        true => "{\"state\":\"ended\"}\n".to_owned(),
        false => "ended\n".to_owned(),
    }
}

/// Returns the status as one line of JSON.
pub fn json(status: &Status) -> String {
    format!("{}\n", value(status))
}

/// The members of the line.
pub fn value(status: &Status) -> serde_json::Value {
    let schedule = |schedule| match schedule {
        Schedule::Rate(rate) => serde_json::json!({"rate": rate.get()}),
        Schedule::Blocks { count, rest } => {
            serde_json::json!({"blocks": count.get(), "rest_ms": rest.as_millis() as u64})
        }
        Schedule::Auto(aim) => serde_json::json!({"auto": units::aim_name(aim)}),
        _ => serde_json::Value::Null,
    };
    let limits = [status.rate_limit, status.blocks_limit];
    let limits = limits
        .into_iter()
        .filter(|limit| *limit != Schedule::Unlimited);
    let limits: Vec<serde_json::Value> = limits.map(schedule).collect();
    serde_json::json!({
        "state": name(status.state),
        "read": status.read,
        "written": status.written,
        "total": status.total,
        "seconds": (status.elapsed.as_secs_f64() * 1000.0).round() / 1000.0,
        "path": status.path.map(|path| path.name()),
        "schedule": schedule(status.schedule),
        "limits": limits,
    })
}

fn name(state: State) -> &'static str {
    match state {
        State::Idle => "idle",
        State::Paused => "paused",
        _ => "running",
    }
}

/// Returns the name of a command, by its first word.
pub fn name_of(word: u32) -> &'static str {
    let (count, rest) = (0, 0);
    let named = [
        (Command::Schedule { count, rest }, "schedule"),
        (Command::Rate(0), "rate"),
        (Command::Pause, "pause"),
        (Command::Resume, "resume"),
        (Command::Cancel, "cancel"),
        (Command::Status, "status"),
        (Command::Limit(Limit::Rate(0)), "limit"),
        (Command::Limit(Limit::Schedule { count, rest }), "limit"),
        (Command::Auto(Aim::Throughput), "auto"),
    ];
    let mut named = named.into_iter();
    let found = named.find(|(command, _)| word as u16 == command.code());
    found.map_or("command", |(_, name)| name)
}

/// Whether this is the first word of the command for the status.
pub fn is_status(word: u32) -> bool {
    word as u16 == Command::Status.code()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use cordboard::DataPath;

    #[test]
    fn commands_have_names() {
        // Those of docs/cue-protocol.md.
        for (code, name) in [(6, "schedule"), (11, "status"), (16, "limit"), (19, "auto")] {
            assert_eq!(name_of(0x4300_0000 | code), name);
        }
        assert_eq!(name_of(2), "command");
        assert!(is_status(11) && !is_status(12));
    }

    #[test]
    fn a_status_is_one_line() {
        let mut status = Status::idle();
        assert_eq!(text(&status), "idle: 0 bytes in 0.000 s, 0 B/s\n");
        status.state = State::Running;
        (status.read, status.written) = (2_621_440, 2_621_440);
        status.total = Some(10_485_760);
        status.elapsed = Duration::from_millis(2500);
        status.path = Some(DataPath::Splice);
        status.schedule = Schedule::rate(1_048_576);
        assert_eq!(
            text(&status),
            "running: 2,621,440 of 10,485,760 bytes, 25 % in 2.5 s, 1.0 MiB/s, by splice, \
             at most 1,048,576 bytes a second\n"
        );
        status.read += 5000;
        let says = " MiB/s, 2,626,440 bytes read (5,000 more than written), by splice";
        assert!(text(&status).contains(says));
        status.written = status.read + 1;
        assert!(text(&status).contains(" MiB/s, 2,626,440 bytes read, by splice"));
        status.written = status.read - 5000;
        let line: serde_json::Value = serde_json::from_str(&json(&status)).unwrap();
        assert_eq!(line["schedule"]["rate"], 1_048_576);
        assert_eq!(
            (&line["state"], &line["path"]),
            (&"running".into(), &"splice".into())
        );
        assert_eq!(line["limits"], serde_json::json!([]));
        status.rate_limit = Schedule::rate(1024);
        assert!(text(&status).ends_with(
            "at most 1,048,576 bytes a second, limited to at most 1,024 bytes a second\n"
        ));
        status.rate_limit = Schedule::Unlimited;
        status.schedule = Schedule::blocks(4, Duration::from_millis(70));
        assert!(text(&status).ends_with("4 blocks between rests of 70 ms\n"));
        status.blocks_limit = Schedule::blocks(1, Duration::ZERO);
        assert!(text(&status).ends_with("limited to 1 block between rests of 0 ms\n"));
        let mut one = Status::idle();
        (one.written, one.schedule) = (1, Schedule::rate(1));
        assert!(text(&one).starts_with("idle: 1 byte in "));
        assert!(text(&one).ends_with(", 0 bytes read, at most 1 byte a second\n"));
        // Not all, and more than all.
        for (written, of, share) in [(999, 1000, "99 %"), (1500, 1000, "100 %")] {
            (one.written, one.total) = (written, Some(of));
            assert!(
                text(&one).contains(&format!(" bytes, {share} in ")),
                "{share}"
            );
        }
        (one.written, one.total) = (1, Some(1));
        assert!(text(&one).starts_with("idle: 1 of 1 byte, 100 % in "));
    }
}

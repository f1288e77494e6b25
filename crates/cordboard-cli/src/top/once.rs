//! Prints one table, for scripts.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::fleet::{Fleet, LeftOut};
use super::has_utf_8;
use super::row::Row;
use super::text::{clean, width};
use crate::cue;
use crate::output::{one_line, one_line_json, print_line};
use crate::polling::poll_or_rest;
use crate::print;
use crate::problem::Problem;
use crate::units;

/// The longest wait for the status of all transfers. A process may be stopped (SIGSTOP).
const PATIENCE: Duration = Duration::from_secs(2);

/// Prints a line for each transfer.
pub fn show(mut fleet: Fleet, json: bool) -> Result<(), Problem> {
    fleet.scan()?;
    fleet.ask();
    let until = Instant::now() + PATIENCE;
    loop {
        fleet.receive(Duration::ZERO);
        let left = until.saturating_duration_since(Instant::now());
        if fleet.is_complete() || left.is_zero() {
            break;
        }
        let mut fds: Vec<PollFd<'_>> = fleet
            .sockets()
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let _ = poll_or_rest(&mut fds, Some(left));
    }
    let unicode = has_utf_8(|name| std::env::var_os(name));
    let text = match json {
        true => fleet.rows().into_iter().map(object).collect(),
        false => table(&fleet.rows(), unicode),
    };
    print::print(text.as_bytes())?;
    match fleet.left_out() {
        None => Ok(()),
        Some(LeftOut::Directory(problem)) => {
            let line = format!("cordboard: warning: {problem}");
            print_line(one_line(&line));
            Ok(())
        }
        Some(left_out) => {
            let errno = match left_out {
                LeftOut::Descriptors(errno) => *errno,
                _ => cordboard::Errno::EMFILE,
            };
            Err(Problem::unsided("top", errno, left_out.to_string()))
        }
    }
}

/// Returns the members of `cordboard cue status --json`, with the process and its label.
fn object(row: &Row) -> String {
    let status = row.status.as_ref();
    let mut line = status.map_or_else(|| serde_json::json!({}), cue::value);
    line["state"] = row.state().into();
    line["pid"] = row.pid.into();
    line["transfer"] = row.label.as_str().into();
    format!("{}\n", one_line_json(&line.to_string()))
}

/// Returns the table. The label, which may have any length, is the last column.
fn table(rows: &[&Row], unicode: bool) -> String {
    let header = [
        "PID", "STATE", "RATE", "DONE", "TIME", "PATH", "SCHEDULE", "TRANSFER",
    ];
    let mut cells = vec![header.map(str::to_owned)];
    cells.extend(rows.iter().map(|row| line(row, unicode)));
    let columns: Vec<usize> = (0..header.len())
        .map(|at| cells.iter().map(|line| width(&line[at])).max().unwrap_or(0))
        .collect();
    let mut out = String::new();
    for line in &cells {
        for (cell, columns) in line.iter().zip(&columns).take(header.len() - 1) {
            out += &format!("{cell:<columns$}  ");
        }
        out += &line[header.len() - 1];
        out.push('\n');
    }
    out
}

/// Returns the cells of a line. The rate is the average since the start, because one status
/// has no other rate.
fn line(row: &Row, unicode: bool) -> [String; 8] {
    let or_dash = |text: String| {
        if text.is_empty() {
            "-".to_owned()
        } else {
            text
        }
    };
    let seconds = row
        .status
        .map_or(0.0, |status| status.elapsed.as_secs_f64());
    [
        or_dash(row.pid.map_or_else(String::new, |pid| pid.to_string())),
        row.state().to_owned(),
        units::rate(row.written() as f64 / seconds.max(0.001)),
        match row.share() {
            share if share.is_empty() => units::bytes(row.written()),
            share => share,
        },
        or_dash(
            row.status
                .map_or_else(String::new, |status| units::clock(status.elapsed)),
        ),
        or_dash(row.path()),
        or_dash(row.schedule()),
        clean(&row.label, unicode),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::status;
    use super::*;

    #[test]
    fn json_has_the_members_of_a_status() {
        let mut row = Row::new(1, "a\n".to_owned(), Some(42));
        let silent: serde_json::Value = serde_json::from_str(&object(&row)).unwrap();
        let expected = serde_json::json!({"state": "waiting", "pid": 42, "transfer": "a\n"});
        assert_eq!(silent, expected);
        row.label = "a\u{202e}\u{85}b".to_owned();
        let line = object(&row);
        assert!(line.contains(r#""a\u202e\u0085b""#), "{line}");
        let parsed: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(parsed["transfer"], row.label);
        row.update(status(2, 1000));
        let line: serde_json::Value = serde_json::from_str(&object(&row)).unwrap();
        assert_eq!(
            (&line["state"], &line["written"]),
            (&"running".into(), &1000.into())
        );
        assert_eq!(
            (&line["pid"], &line["path"]),
            (&42.into(), &"splice".into())
        );
    }

    #[test]
    fn a_table() {
        let mut known = Row::new(1, "a -> b".to_owned(), Some(42));
        let mut of_total = status(2, 1 << 20);
        of_total.total = Some(4 << 20);
        of_total.schedule = cordboard::Schedule::rate(1 << 19);
        known.update(of_total);
        let unknown = Row::new(2, "c\nd".to_owned(), None);
        assert_eq!(
            table(&[&known, &unknown], true),
            "PID  STATE    RATE       DONE     TIME  PATH    SCHEDULE       TRANSFER\n\
             42   running  512 KiB/s  25 %     0:02  splice  max 512 KiB/s  a -> b\n\
             -    waiting  0 B/s      0 bytes  -     -       -              c\\nd\n"
        );
    }
}

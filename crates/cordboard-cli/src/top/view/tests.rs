use std::time::Duration;

use super::super::row::tests::status;
use super::*;
use crate::keyboard::Key;
use cordboard::cue::State;
use cordboard::{DataPath, Schedule};

fn size(columns: usize, rows: usize) -> Size {
    Size {
        columns,
        rows,
        unicode: true,
    }
}

/// A paced transfer of a known size, and a paused one.
fn rows() -> Vec<Row> {
    let mut paced = Row::new(
        1,
        "/srv/images/disk.img -> tcp:nas:9000".to_owned(),
        Some(4711),
    );
    for (second, mib) in [(1, 1), (2, 2), (3, 4), (4, 5)] {
        let mut status = status(second, mib << 20);
        status.total = Some(10 << 20);
        status.schedule = Schedule::rate(1 << 20);
        paced.update(status);
    }
    let mut paused = Row::new(2, "/dev/zero -> out".to_owned(), None);
    for second in [1, 2] {
        let mut status = status(second, 5000);
        status.state = State::Paused;
        status.path = Some(DataPath::CopyFileRange);
        status.schedule = Schedule::blocks(4, Duration::from_millis(70));
        paused.update(status);
    }
    vec![paced, paused]
}

fn draw(rows: &[Row], keys: &mut Keys, size: Size) -> String {
    let rows: Vec<&Row> = rows.iter().collect();
    let lines = frame(&rows, keys, None, size);
    assert_eq!(lines.len(), size.rows);
    for line in &lines {
        assert!(width(&line.text) <= size.columns, "{line:?}");
    }
    let text: Vec<String> = lines.into_iter().map(|line| line.text + "|").collect();
    text.join("\n")
}

#[test]
fn forty_columns() {
    let frame = draw(&rows(), &mut Keys::default(), size(40, 7));
    assert_eq!(
        frame,
        "cordboard top  2 transfers  1.5 MiB/s|
> /srv/image…cp:nas:9000 running    50 %|
   1.5 MiB/s  ▅█▅ ≤1.0 MiB/s splice|
  /dev/zero -> out       paused|
       0 B/s    ▁ 4,70 ms 4.9 KiB 0:02|
|
q quit  ? help  p pause  r resume|"
    );
}

#[test]
fn eighty_columns() {
    let frame = draw(&rows(), &mut Keys::default(), size(80, 6));
    assert_eq!(
        frame,
        "cordboard top  2 transfers  1.5 MiB/s|
> /srv/images/disk.img -> tcp:nas:9000     running    1.5 MiB/s        ▅█▅  50 %|
    splice  max 1.0 MiB/s  5.0 MiB of 10 MiB  0:04 left  pid 4711|
  /dev/zero -> out                         paused         0 B/s          ▁|
    copy_file_range  4,70 ms  4.9 KiB  0:02|
q quit  ? help  p pause  r resume  c cancel  + - rate  = type a rate  0 no rate|"
    );
}

#[test]
fn wide_terminals() {
    let frame = draw(&rows(), &mut Keys::default(), size(130, 4));
    assert_eq!(
        frame,
        "cordboard top  2 transfers  1.5 MiB/s|
> /srv/images/disk.img -> tcp:nas:9000  running    1.5 MiB/s            ▅█▅  50 %   0:04 left  splice          max 1.0 MiB/s|
  /dev/zero -> out                      paused         0 B/s              ▁              0:02  copy_file_range 4,70 ms|
q quit  ? help  p pause  r resume  c cancel  + - rate  = type a rate  0 no rate  a background  j k select|"
    );
}

#[test]
fn schedules_with_limits() {
    let mut rows = rows();
    let mut limited = status(5, 5 << 20);
    limited.schedule = Schedule::Auto(cordboard::Aim::Background);
    limited.rate_limit = Schedule::rate(10 << 20);
    rows[0].update(limited);
    for (columns, shown) in [
        (40, "   512 KiB/s ▅█▅▁ background ≤10 MiB/s|"),
        (
            80,
            "    splice  auto background, max 10 MiB/s  5.0 MiB  0:05  pid 4711|",
        ),
        (130, "  splice          auto background, max 10 MiB/s|"),
    ] {
        let frame = draw(&rows, &mut Keys::default(), size(columns, 7));
        assert!(frame.contains(shown), "{frame}");
    }
    let wide = draw(&rows, &mut Keys::default(), size(130, 4));
    let lines: Vec<&str> = wide.lines().collect();
    let before = |line: &str, state: &str| width(line.split(state).next().unwrap());
    let columns = [before(lines[1], "running"), before(lines[2], "paused")];
    assert_eq!(columns[0], columns[1], "{wide}");
}

#[test]
fn without_utf_8() {
    let ascii = Size {
        unicode: false,
        ..size(40, 4)
    };
    let frame = draw(&rows()[..1], &mut Keys::default(), ascii);
    assert!(frame.is_ascii(), "{frame}");
    assert!(
        frame.contains("> /srv/image~cp:nas:9000 running    50 %|\n   1.5 MiB/s  =#="),
        "{frame}"
    );
}

/// The process is stopped (SIGSTOP): its last rate is not the present one.
#[test]
fn a_silent_process_has_no_rate() {
    let mut rows = rows();
    (0..4).for_each(|_| rows[0].asked());
    let frame = draw(&rows, &mut Keys::default(), size(80, 6));
    assert!(
        frame.starts_with(
            "cordboard top  2 transfers  0 B/s|
> /srv/images/disk.img -> tcp:nas:9000     silent                      ▅█▅  50 %|
    splice  max 1.0 MiB/s  5.0 MiB of 10 MiB  0:04  pid 4711|"
        ),
        "{frame}"
    );
}

#[test]
fn nothing_runs() {
    let frame = draw(&[], &mut Keys::default(), size(40, 4));
    assert_eq!(
        frame,
        "cordboard top  0 transfers  0 B/s|\nNo transfers are running.|\nCommands with --control PATH are listed.|\n\
         q quit  ? help  p pause  r resume|"
    );
}

#[test]
fn questions_and_messages_are_at_the_bottom() {
    let all = rows();
    let refs: Vec<&Row> = all.iter().collect();
    let mut keys = Keys::default();
    let last = |keys: &mut Keys, size: Size| frame(&refs, keys, None, size).pop().unwrap().text;
    keys.press(Key::Char('c'), &refs);
    assert_eq!(
        last(&mut keys, size(80, 9)),
        "cancel /srv/images/disk.img -> tcp:nas:9000? y/n"
    );
    assert_eq!(
        last(&mut keys, size(40, 9)),
        "cancel /srv/images/d…> tcp:nas:9000? y/n"
    );
    keys.press(Key::Char('n'), &refs);
    for letter in "=1M".chars() {
        keys.press(Key::Char(letter), &refs);
    }
    assert_eq!(
        last(&mut keys, size(40, 9)),
        "rate of /srv/images/d… tcp:nas:9000: 1M_"
    );
    keys.press(Key::Escape, &refs);
    keys.message = Some("refused\x1b".to_owned());
    assert_eq!(last(&mut keys, size(40, 9)), "refused\\u{1b}");
    keys.press(Key::Char('?'), &refs);
    let help = draw(&all, &mut keys, size(40, 20));
    assert!(
        help.contains("\na           use only idle resources|\n"),
        "{help}"
    );
}

/// A key removes a message, but not the note.
#[test]
fn the_title_says_that_the_list_is_not_complete() {
    let all = rows();
    let refs: Vec<&Row> = all.iter().collect();
    let mut keys = Keys::default();
    let mut title = |note, columns| {
        keys.press(Key::Down, &refs);
        let size = size(columns, 7);
        frame(&refs, &mut keys, Some(note), size)[0].text.clone()
    };
    assert_eq!(
        title("only 500 commands are shown", 80),
        "cordboard top  2 transfers  only 500 commands are shown"
    );
    assert_eq!(
        title("some commands are not shown: \x1b (EMFILE)", 40),
        "cordboard top  2 transfers  some …MFILE)"
    );
}

/// The selected row is visible, and nothing exceeds the terminal, whatever its size.
#[test]
fn any_size() {
    let all: Vec<Row> = (0..30)
        .map(|id| Row::new(id, format!("日本語 {id} \u{301}-> somewhere/else"), Some(1)))
        .collect();
    let refs: Vec<&Row> = all.iter().collect();
    let mut keys = Keys::default();
    for _ in 0..17 {
        keys.press(Key::Down, &refs);
    }
    for columns in 0..200 {
        for rows in [1, 2, 3, 4, 10, 24] {
            let frame = draw(&all, &mut keys, size(columns, rows));
            if rows > 1 && columns >= 40 {
                let mut lines = frame.lines();
                let shows = lines.any(|line| line.starts_with("> 日本語 17"));
                assert!(shows, "{columns} {rows}: {frame}");
            }
        }
    }
}

use cordboard::Schedule;

use super::*;
use crate::units;

const S: Duration = Duration::from_secs(1);

/// The line of a watch that has seen these bytes, each a second later.
fn line(watch: &mut Watch, bytes: &[u64]) -> String {
    let mut frame = None;
    for (second, bytes) in (1..).zip(bytes) {
        let total = watch.total();
        frame = Some(watch.frame(*bytes, total, second * S, DataPath::Splice, 1));
    }
    frame.unwrap().line(120)
}

#[test]
fn the_time_left_needs_a_rate_and_a_size() {
    let mut watch = Watch::new(Style::Drawn);
    watch.total = Some(10_240);
    assert_eq!(
        line(&mut watch, &[1024, 2048]),
        "2.0 KiB of 10 KiB (20 %)  1.0 KiB/s  elapsed 0:02  left 0:08  by splice"
    );
    let mut silent = Watch::new(Style::Drawn);
    silent.total = Some(10_240);
    let silent = line(&mut silent, &[0, 0]);
    assert!(!silent.contains("left"), "{silent}");
    let unknown = line(&mut Watch::new(Style::Drawn), &[1024, 2048]);
    assert_eq!(unknown, "2.0 KiB  1.0 KiB/s  elapsed 0:02  by splice");
}

/// The clock is that of the transfer.
#[test]
fn a_line_each_second() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let writer: &'static std::io::PipeWriter = Box::leak(Box::new(writer));
    let mut watch = Watch::new(Style::Lines);
    watch.screen = Screen::on(Style::Lines, std::os::fd::AsFd::as_fd(writer));
    watch.total = Some(102_400);
    let tenths = (1..=35).chain([72, 75, 79, 80]);
    for tenth in tenths {
        watch.at(tenth * 1024, tenth as u32 * S / 10, DataPath::Splice, 1);
    }
    watch.clear();
    let mut all = [0; 4096];
    let length = std::io::Read::read(&mut reader, &mut all).unwrap();
    let all = std::str::from_utf8(&all[..length]).unwrap();
    let line = |second: u64| {
        let (bytes, left) = (second * 10, 10 - second);
        format!(
            "{} of 100 KiB ({bytes} %)  10 KiB/s  elapsed 0:0{second}  left 0:0{left}  by splice\n",
            units::bytes(bytes * 1024)
        )
    };
    let [first, second, third, last] = [1, 2, 3, 8].map(line);
    let late = "72 KiB of 100 KiB (72 %)  10 KiB/s  elapsed 0:07  left 0:03  by splice\n";
    assert_eq!(all, [&*first, &second, &third, late, &last].concat());
}

/// Batches of a tree begin again and again, and one total remains.
#[test]
fn the_time_left_is_that_of_all_transfers() {
    let mut watch = Watch::new(Style::Nothing);
    let frame = |watch: &mut Watch, second: u32, bytes: u64| {
        let total = Some(Known::all(10_000));
        let frame = watch.frame(bytes, total, second * S, DataPath::Splice, 1);
        frame.left.unwrap().as_secs()
    };
    watch.begin(None);
    assert_eq!(frame(&mut watch, 1, 1000), 9);
    assert_eq!(frame(&mut watch, 2, 2000), 8);
    watch.begin(None);
    let slower = frame(&mut watch, 3, 2010);
    watch.left.reset();
    let anew = frame(&mut watch, 3, 2010);
    assert!(slower < anew, "{slower} {anew}");
    // Another file, of which the total is known.
    watch.begin(Some(5));
    assert_eq!(frame(&mut watch, 3, 2010), anew);
}

#[test]
fn a_paused_transfer_has_no_time_left() {
    let control = Box::leak(Box::new(cordboard::Control::without_descriptor()));
    let mut watch = Watch::new(Style::Drawn);
    watch.total = Some(10_240);
    watch.report_to(Arc::new(Live::new(control, Schedule::BLOCK)));
    assert!(line(&mut watch, &[1024, 2048]).contains("left 0:08"));
    control.pause();
    let paused = line(&mut watch, &[1024, 2048]);
    assert!(
        paused.contains("  paused") && !paused.contains("left"),
        "{paused}"
    );
}

#[test]
fn files_and_sinks_are_counted() {
    let mut watch = Watch::new(Style::Drawn);
    watch.show_sinks(3);
    watch.files_ended(7);
    let one = line(&mut watch, &[1024]);
    assert_eq!(
        one,
        "1.0 KiB  1.0 KiB/s  elapsed 0:01  slowest of 3 sinks  by splice"
    );
    watch.sinks = None;
    watch.files = Some(0);
    watch.files_ended(7);
    let files = line(&mut watch, &[1024]);
    assert!(files.starts_with("1.0 KiB  7 files  "), "{files}");
}

/// The timer is slow after a stall. A thread that waits for other threads draws anyway.
#[test]
fn a_stall_does_not_delay_what_is_drawn_of_other_threads() {
    let mut watch = Watch::new(Style::Drawn);
    watch.pace = (SLOWEST, Duration::ZERO);
    assert_eq!(watch.status_interval(), Some(EVERY));
    assert_eq!(Watch::new(Style::Nothing).status_interval(), None);
}

/// The time left is unknown while the sinks are read back.
#[test]
fn what_is_read_back_is_shown_while_nothing_is_written() {
    let mut watch = Watch::new(Style::Drawn);
    watch.total = Some(2048);
    watch.set_read_back(0);
    assert!(line(&mut watch, &[1024]).contains("  verified 0 bytes  "));
    watch.set_read_back(1024);
    watch.latest = 2048;
    let line = line(&mut watch, &[2048]);
    assert!(line.contains("  verified 1.0 KiB  "), "{line}");
    assert!(!line.contains("left"), "{line}");
}

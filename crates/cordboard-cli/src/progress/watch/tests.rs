use super::*;

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
    let mut watch = Watch::new(true);
    watch.total = Some(10_240);
    assert_eq!(
        line(&mut watch, &[1024, 2048]),
        "2.0 KiB of 10 KiB (20 %)  1.0 KiB/s  elapsed 0:02  left 0:08  by splice"
    );
    let mut silent = Watch::new(true);
    silent.total = Some(10_240);
    let silent = line(&mut silent, &[0, 0]);
    assert!(!silent.contains("left"), "{silent}");
    let unknown = line(&mut Watch::new(true), &[1024, 2048]);
    assert_eq!(unknown, "2.0 KiB  1.0 KiB/s  elapsed 0:02  by splice");
}

/// Batches of a tree begin again and again, and one total remains.
#[test]
fn the_time_left_is_that_of_all_transfers() {
    let mut watch = Watch::new(false);
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
    let mut watch = Watch::new(true);
    watch.total = Some(10_240);
    watch.report_to(Arc::new(Live::new(control)));
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
    let mut watch = Watch::new(true);
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

//! The controller beside simulated work, with an injected clock.

use std::time::Duration;

use proptest::prelude::*;

use super::background::Background;
use super::load::Load;
use crate::sys::load::{Idle, Traffic};

/// The length of a simulated window.
const WINDOW: Duration = Duration::from_millis(200);
const MIB: f64 = (1 << 20) as f64;

/// A machine of one processor and one disk. Shares are between 0 and 1.
struct Machine {
    now: Duration,
    idle: f64,
    busy: f64,
    read: f64,
    /// Bytes that the transfer moves in a second of processor time.
    speed: f64,
    /// Bytes that the disk reads in a second, if the transfer reads from it.
    disk: Option<f64>,
}

/// The resources that the transfer and the other work have received in a window.
struct Got {
    transfer: f64,
    others: f64,
}

impl Machine {
    fn new(speed: f64, disk: Option<f64>) -> Machine {
        Machine {
            now: Duration::from_secs(1),
            idle: 0.0,
            busy: 0.0,
            read: 0.0,
            speed,
            disk,
        }
    }

    /// Simulates one window, in which the other work requests these shares of the
    /// processor and of the disk. The scheduler is fair: if both request all of a
    /// resource, each receives half.
    fn window(&mut self, background: &mut Background, processor: f64, disk: f64) -> Got {
        let seconds = WINDOW.as_secs_f64();
        let rate = background.rate() as f64;
        let most = fair(rate / self.speed, processor);
        let most = match self.disk {
            Some(speed) => most.min(fair(rate / speed, disk) * speed / self.speed),
            None => most,
        };
        let moved = most * self.speed;
        let others = processor.min(1.0 - most);
        self.idle += (1.0 - most - others) * seconds;
        if let Some(speed) = self.disk {
            let of_others = disk.min(1.0 - moved / speed);
            self.read += (moved + of_others * speed) * seconds;
            self.busy += (moved / speed + of_others).min(1.0) * seconds;
        }
        background.took((moved * seconds) as u64);
        background.spent(Duration::from_secs_f64(most * seconds));
        self.now += WINDOW;
        background.observe(self.now, Some(&self.load()));
        Got {
            transfer: moved,
            others,
        }
    }

    fn load(&self) -> Load {
        // The kernel counts idle time in steps of 10 ms.
        let ticks = (self.idle * 100.0) as u64;
        let disk = self.disk.map(|_| Traffic {
            read: self.read as u64,
            written: 0,
            busy: Duration::from_secs_f64(self.busy),
        });
        Load {
            idle: Some(Idle {
                time: Duration::from_millis(ticks * 10),
                processors: 1,
            }),
            disks: [disk, None],
            devices: [disk.map(|_| 1), None],
            is_one_disk: false,
        }
    }
}

/// Returns the share that one of two competitors receives of a resource.
fn fair(wants: f64, other: f64) -> f64 {
    wants.min((1.0 - other).max(0.5)).min(1.0)
}

/// Runs windows, and returns the means.
fn run(
    machine: &mut Machine,
    background: &mut Background,
    windows: u32,
    processor: f64,
    disk: f64,
) -> Got {
    let mut sum = Got {
        transfer: 0.0,
        others: 0.0,
    };
    for _ in 0..windows {
        let got = machine.window(background, processor, disk);
        sum.transfer += got.transfer / f64::from(windows);
        sum.others += got.others / f64::from(windows);
    }
    sum
}

/// Beside work that takes all processors, it uses what is not noticed.
#[test]
fn the_part_that_is_not_noticed_is_used() {
    let speed = 4000.0 * MIB;
    let mut machine = Machine::new(speed, None);
    let mut background = Background::default();
    run(&mut machine, &mut background, 100, 1.0, 0.0);
    let got = run(&mut machine, &mut background, 200, 1.0, 0.0);
    assert!(got.transfer > 0.008 * speed, "{}", got.transfer);
    assert!(got.others > 0.97, "{}", got.others);
}

/// The rate of a transfer that does not get the processor is not lowered to what it
/// achieves.
#[test]
fn a_starved_transfer_keeps_its_rate() {
    let mut machine = Machine::new(4000.0 * MIB, None);
    let mut background = Background::default();
    run(&mut machine, &mut background, 100, 1.0, 0.0);
    let before = background.rate();
    for _ in 0..50 {
        background.took(1000);
        background.spent(Duration::from_micros(100));
        machine.now += WINDOW;
        background.observe(machine.now, Some(&machine.load()));
    }
    assert_eq!(background.rate(), before);
}

#[test]
fn an_idle_machine_is_used_whole() {
    let mut machine = Machine::new(4000.0 * MIB, None);
    let mut background = Background::default();
    run(&mut machine, &mut background, 10, 0.0, 0.0);
    let got = run(&mut machine, &mut background, 100, 0.0, 0.0);
    assert!(got.transfer >= 3990.0 * MIB, "{}", got.transfer / MIB);
}

#[test]
fn a_process_that_takes_all_keeps_97_percent() {
    for speed in [50.0, 500.0, 5000.0, 40_000.0] {
        let mut machine = Machine::new(speed * MIB, None);
        let mut background = Background::default();
        // The same holds if the transfer has begun first.
        run(&mut machine, &mut background, 30, 0.0, 0.0);
        let settling = run(&mut machine, &mut background, 10, 1.0, 0.0);
        assert!(settling.others >= 0.85, "{speed}: {}", settling.others);
        let got = run(&mut machine, &mut background, 100, 1.0, 0.0);
        assert!(got.others >= 0.97, "{speed}: {}", got.others);
        assert!(got.transfer > 0.0);
        // The rate recovers after that process has ended.
        run(&mut machine, &mut background, 40, 0.0, 0.0);
        let got = run(&mut machine, &mut background, 100, 0.0, 0.0);
        assert!(
            got.transfer >= 0.9 * speed * MIB,
            "{speed}: {}",
            got.transfer / MIB
        );
    }
}

#[test]
fn most_of_what_is_left_is_used_and_no_more() {
    for share in [0.2, 0.5, 0.8] {
        let mut machine = Machine::new(2000.0 * MIB, None);
        let mut background = Background::default();
        run(&mut machine, &mut background, 50, share, 0.0);
        let got = run(&mut machine, &mut background, 400, share, 0.0);
        let left = (1.0 - share) * 2000.0 * MIB;
        assert!(
            got.transfer >= 0.7 * left,
            "{share}: {}",
            got.transfer / left
        );
        assert!(got.others >= 0.95 * share, "{share}: {}", got.others);
    }
}

#[test]
fn a_disk_is_left_to_others() {
    let mut machine = Machine::new(4000.0 * MIB, Some(200.0 * MIB));
    let mut background = Background::default();
    run(&mut machine, &mut background, 30, 0.0, 0.0);
    let alone = run(&mut machine, &mut background, 50, 0.0, 0.0);
    assert!(alone.transfer >= 190.0 * MIB, "{}", alone.transfer / MIB);
    run(&mut machine, &mut background, 20, 0.0, 1.0);
    let beside = run(&mut machine, &mut background, 50, 0.0, 1.0);
    assert!(beside.transfer <= 12.0 * MIB, "{}", beside.transfer / MIB);
    run(&mut machine, &mut background, 60, 0.0, 0.0);
    let after = run(&mut machine, &mut background, 50, 0.0, 0.0);
    assert!(after.transfer >= 180.0 * MIB, "{}", after.transfer / MIB);
}

/// Bytes of the transfer that the page cache writes later do not count as other work.
#[test]
fn own_bytes_that_reach_the_disk_later_are_not_other_work() {
    let mut background = Background::default();
    let (mut now, mut written) = (Duration::from_secs(1), 0);
    let load = |written: u64, busy: Duration| Load {
        idle: None,
        disks: [
            None,
            Some(Traffic {
                read: 0,
                written,
                busy,
            }),
        ],
        devices: [None, Some(1)],
        is_one_disk: false,
    };
    let mut busy = Duration::ZERO;
    for window in 0..40 {
        let bytes = background.rate() / 5;
        background.took(bytes);
        if window >= 5 {
            written += bytes / 2;
            busy += WINDOW;
        }
        now += WINDOW;
        let before = background.rate();
        background.observe(now, Some(&load(written, busy)));
        assert!(background.rate() >= before, "window {window}");
    }
}

#[test]
fn a_pause_is_no_observation() {
    let mut background = Background::default();
    let mut machine = Machine::new(1000.0 * MIB, None);
    run(&mut machine, &mut background, 5, 0.0, 0.0);
    let rate = background.rate();
    machine.now += Duration::from_secs(5);
    let _ = machine.window(&mut background, 1.0, 0.0);
    assert_eq!(background.rate(), rate);
}

#[test]
fn without_observations_the_rate_stays() {
    let mut background = Background::default();
    let rate = background.rate();
    for second in 0..10 {
        background.took(1 << 30);
        assert!(background.is_due(Duration::from_secs(second)));
        background.observe(Duration::from_secs(second), None);
    }
    assert_eq!(background.rate(), rate);
}

proptest! {
    /// Once other work is steady, the transfer does not disturb it, and does not starve.
    #[test]
    fn it_settles(
        history in prop::collection::vec((0..=100u32, 1..30u32), 0..10),
        speed in 1..50_000u32,
        share in 0..=100u32,
    ) {
        let mut machine = Machine::new(f64::from(speed) * MIB, None);
        let mut background = Background::default();
        for (share, windows) in history {
            run(&mut machine, &mut background, windows, f64::from(share) / 100.0, 0.0);
        }
        let share = f64::from(share) / 100.0;
        run(&mut machine, &mut background, 80, share, 0.0);
        let got = run(&mut machine, &mut background, 300, share, 0.0);
        prop_assert!(got.others >= 0.94 * share, "{} of {share}", got.others);
        // A part of the idle time is left idle.
        let left = (0.94 - share).max(0.0) * machine.speed;
        prop_assert!(got.transfer >= 0.7 * left, "{} of {left}", got.transfer);
    }
}

/// Transfers between different disks share a schedule. The counters of one disk are not compared
/// with those of another one, which has been busy for hours.
#[test]
fn the_disks_of_two_transfers_are_not_compared() {
    let mut background = Background::default();
    let mut now = Duration::from_secs(1);
    let load = |device: u64| Load {
        idle: None,
        disks: [
            Some(Traffic {
                read: device << 40,
                written: 0,
                busy: Duration::from_secs(device * 10_000),
            }),
            None,
        ],
        devices: [Some(device), None],
        is_one_disk: false,
    };
    for window in 0..20 {
        background.took(background.rate() / 5);
        now += WINDOW;
        let before = background.rate();
        background.observe(now, Some(&load(window % 2)));
        assert!(background.rate() >= before, "window {window}");
    }
}

//! Bursts of blocks that transfers on several threads share, with an injected clock: a request may
//! come during a step that has the whole burst.

use std::time::Duration;

use super::pacer::{Pacers, Returned};
use super::pacer_tests::{MS, any, blocks};
use crate::request::Schedule;

const BLOCK: u64 = 4096;

fn of(schedule: Schedule) -> Pacers {
    let mut pacers = Pacers::default();
    pacers.set(schedule);
    pacers
}

/// A step that has begun.
struct Step {
    granted: u64,
    changes: u64,
}

fn begin(pacers: &mut Pacers, now: Duration) -> Result<Step, Duration> {
    let granted = pacers.grant(now, any())?;
    pacers.begin_step();
    Ok(Step {
        granted,
        changes: pacers.changes(),
    })
}

fn end(pacers: &mut Pacers, step: &Step, used: u64) {
    pacers.give_back(Returned {
        unused: step.granted.saturating_sub(used),
        overdrawn: used.saturating_sub(step.granted),
        changes: step.changes,
    });
}

#[test]
fn a_burst_that_a_step_returns_is_granted_again() {
    let mut pacers = of(blocks(10, 1000));
    let first = begin(&mut pacers, Duration::ZERO).unwrap();
    assert_eq!(first.granted, 10 * BLOCK);
    // The step may return some of it, so the wait is short.
    assert_eq!(pacers.grant(Duration::ZERO, any()), Err(MS));
    assert_eq!(pacers.grant(MS, any()), Err(MS));
    end(&mut pacers, &first, BLOCK);
    // Something is left for the other one.
    let both = [(); 2].map(|()| begin(&mut pacers, 2 * MS).unwrap());
    assert_eq!(both[0].granted, 9 * BLOCK / 2);
    assert_eq!(both[1].granted, 9 * BLOCK / 4);
    end(&mut pacers, &both[0], 0);
    end(&mut pacers, &both[1], 0);
    let mut last = Vec::new();
    while let Ok(step) = begin(&mut pacers, 2 * MS) {
        last.push(step);
    }
    let granted: u64 = last.iter().map(|step| step.granted).sum();
    assert_eq!(granted, 9 * BLOCK);
    assert!(last.len() < 7, "each grant has a block");
    // One step takes more than its grant, and another one nothing.
    end(&mut pacers, &last[1], last[1].granted + 100);
    end(&mut pacers, &last[0], 0);
    for step in &last[2..] {
        end(&mut pacers, step, step.granted);
    }
    let left = begin(&mut pacers, 2 * MS).unwrap();
    assert_eq!(left.granted, (last[0].granted - 100) / 2);
    end(&mut pacers, &left, last[0].granted);
    // Nothing can come back any more, and the excess is subtracted from the next burst.
    assert_eq!(pacers.grant(2 * MS, any()), Err(1000 * MS));
    let next = begin(&mut pacers, 1002 * MS).unwrap();
    assert_eq!(next.granted, (10 * BLOCK - 100) / 2);
}

/// Others continue after a rest. What the step then returns does not come in addition to the next
/// bursts.
#[test]
fn a_step_that_outlasts_a_rest_stops_no_other() {
    let mut pacers = of(blocks(10, 1000));
    let stalled = begin(&mut pacers, Duration::ZERO).unwrap();
    let (mut now, mut requests) = (Duration::ZERO, 0);
    let next = loop {
        match begin(&mut pacers, now) {
            Ok(step) => break step,
            Err(wait) => now += wait,
        }
        requests += 1;
    };
    assert_eq!((now, next.granted), (1000 * MS, 5 * BLOCK));
    assert!(requests < 15, "{requests} requests in a second");
    end(&mut pacers, &next, 4 * BLOCK);
    end(&mut pacers, &stalled, 0);
    let mut left = 0;
    while let Ok(step) = begin(&mut pacers, now) {
        left += step.granted;
        end(&mut pacers, &step, step.granted);
    }
    assert_eq!(left, 6 * BLOCK);
    assert_eq!(pacers.grant(now, any()), Err(1000 * MS));
    // Nor do they refill a burst whose rest has begun.
    end(&mut pacers, &stalled, 0);
    assert_eq!(pacers.grant(now, any()), Err(1000 * MS));
}

/// Takes steps of all transfers for two seconds, each on its own thread. A step moves `each` bytes
/// in this time. Returns the bytes of each transfer.
fn run(pacers: &mut Pacers, count: usize, each: u64, takes: Duration) -> Vec<u64> {
    let (mut taken, mut next) = (vec![0; count], vec![Duration::ZERO; count]);
    let mut steps: Vec<Option<Step>> = (0..count).map(|_| None).collect();
    for turn in 0.. {
        // Of several at the same time, each one is first at times.
        let index = (0..count).min_by_key(|index| (next[*index], (index + turn) % count));
        let index = index.unwrap();
        let now = next[index];
        if now > 2000 * MS {
            break;
        }
        if let Some(step) = steps[index].take() {
            let used = step.granted.min(each);
            end(pacers, &step, used);
            taken[index] += used;
        }
        next[index] = match begin(pacers, now) {
            Ok(step) => {
                steps[index] = Some(step);
                now + takes
            }
            Err(wait) => {
                assert!(wait > Duration::ZERO, "it would not sleep");
                now + wait
            }
        };
        let bursts = now.as_millis() as u64 / 100 + 1;
        assert!(taken.iter().sum::<u64>() <= bursts * 100 * BLOCK);
    }
    taken
}

#[test]
fn transfers_on_several_threads_take_the_whole_bursts() {
    let takes = Duration::from_micros(200);
    let alone = run(&mut of(blocks(100, 100)), 1, 8 * BLOCK, takes)[0];
    assert!(alone >= 1900 * BLOCK, "{alone}");
    for count in [2, 3, 8] {
        let all = run(&mut of(blocks(100, 100)), count, 8 * BLOCK, takes);
        let sum: u64 = all.iter().sum();
        assert!(sum >= alone / 100 * 97, "{all:?} of {alone}");
        // None waits for the rest while another one takes the whole burst.
        let least = sum / count as u64 / 2;
        assert!(all.iter().all(|one| *one > least), "{all:?}");
    }
    // A limit has bursts too.
    let mut limited = of(Schedule::Unlimited);
    limited.limit(blocks(100, 100), BLOCK);
    let all = run(&mut limited, 2, 8 * BLOCK, takes);
    assert!(all.iter().sum::<u64>() >= alone / 100 * 97, "{all:?}");
}

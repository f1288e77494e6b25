//! From one TCP connection to another, over loopback. Source, relay and sink
//! are three processes; the relay has the sockets as descriptors 3 and 4.

use std::path::Path;

use anyhow::Result;

use super::experiment::{Experiment, available};
use super::streams::{self, From, Places, Stream, To};
use crate::baselines;
use crate::harness::Bench;
use crate::harness::contestant::Contestant;
use crate::harness::files;
use crate::harness::interleave::Setting;
use crate::harness::target::{Against, Measure, Target};

/// The entry in the list of experiments.
pub const EXPERIMENT: Experiment = Experiment {
    name: "relay",
    about: "From one TCP connection to another over loopback.",
    run,
};

const OURS: &str = "cordboard splice";
const LIMIT: &str = "splice 1m";
const SETTING: &str = "tcp to tcp";
const ROUNDS: usize = 9;
const TCP_TO_TCP: (From, To) = (From::Stream(Stream::Tcp), To::Stream(Stream::Tcp));

fn run(bench: &mut Bench) -> Result<()> {
    let size = bench.size(8 << 30, 16 << 20);
    let tools = bench.tools.clone();
    let all = vec![
        ("cordboard", Some(tools.ours(OURS, "splice fd:3 fd:4"))),
        ("library", Some(tools.library("fd:3 fd:4"))),
        ("socat", tools.peer("socat", "-u -b 65536 FD:3 FD:4")),
        (
            "read/write",
            Some(tools.baseline("read-write 64k", "relay-read-write 65536")),
        ),
        (
            "read/write",
            Some(tools.baseline("read-write 256k", "relay-read-write 262144")),
        ),
        (
            "splice",
            Some(tools.baseline("splice 64k", "relay-splice 65536")),
        ),
        (
            "splice",
            Some(tools.baseline("splice 256k", "relay-splice 262144")),
        ),
        (
            "splice",
            Some(tools.baseline(LIMIT, "relay-splice 1048576")),
        ),
    ];
    let contestants: Vec<Contestant> = available(bench, all);
    let setting = Setting {
        name: SETTING.to_owned(),
        expected: baselines::sent(usize::try_from(size)?),
        rounds: ROUNDS,
    };
    let places = Places {
        source: Path::new(""),
        sink: Path::new(""),
        size,
    };
    bench.measure(&setting, &contestants, |turn| {
        streams::between(&tools, TCP_TO_TCP, places, turn).map(|moved| moved.sample)
    })?;
    for (ours, measure, bound) in [
        (OURS, Measure::Rate, 0.95),
        (OURS, Measure::Processor, 1.1),
        ("library", Measure::Rate, 0.95),
        ("library", Measure::Processor, 1.1),
    ] {
        bench.targets.push(Target {
            setting: SETTING.to_owned(),
            ours,
            against: Against::Best(&[LIMIT]),
            measure,
            bound,
        });
    }
    bench.notes.push(format!(
        "{}. The measured time is from the start of the relay until the sink has reached the end \
         of file. The others' processor time is that of the source and the sink.",
        files::size_text(size)
    ));
    Ok(())
}

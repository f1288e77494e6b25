//! From one TCP connection to another, over loopback. Source, relay and sink
//! are three processes; the relay has the sockets as descriptors 3 and 4.

use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Instant;

use anyhow::{Context, Result};

use super::experiment::{Experiment, available};
use crate::baselines;
use crate::harness::Bench;
use crate::harness::contestant::Contestant;
use crate::harness::interleave::{Setting, Turn};
use crate::harness::launch::Job;
use crate::harness::series::Sample;
use crate::harness::target::{Against, Measure, Target};
use crate::harness::{files, tools::Tools};

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

fn run(bench: &mut Bench) -> Result<()> {
    let size = bench.size(8 << 30, 64 << 20);
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
    bench.measure(&setting, &contestants, |turn| once(&tools, size, turn))?;
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

/// The two ends of a connection.
fn connection() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    Ok((near, far))
}

fn once(tools: &Tools, size: u64, turn: &Turn<'_>) -> Result<Sample> {
    let end = |words: &[&str]| -> Vec<OsString> {
        let mut all: Vec<OsString> = vec![tools.bench.clone().into(), "baseline".into()];
        all.extend(words.iter().map(OsString::from));
        all
    };
    let (source_side, relay_in) = connection()?;
    let (relay_out, sink_side) = connection()?;
    let relay =
        Job::new(&turn.command_line(&[]))?.hand_over(vec![relay_in.into(), relay_out.into()]);
    let how = if turn.verifies() { "digest" } else { "count" };
    let sink = Job::new(&end(&["relay-sink", how]))?
        .keep_output()
        .hand_over(vec![sink_side.into()])
        .start()?;
    let source = Job::new(&end(&["relay-source", &size.to_string()]))?
        .hand_over(vec![source_side.into()])
        .start()?;

    let started = Instant::now();
    // If this fails, its sockets are closed too, and both ends notice.
    let relay = relay.start().and_then(|relay| relay.reap());
    let sink = sink.reap()?;
    let wall = started.elapsed().as_secs_f64();
    let source = source.reap()?;

    let relay = relay?.check()?;
    let sink = sink.check().context("the sink")?;
    let source = source.check().context("the source")?;
    let mut words = sink.output.split_whitespace().map(str::parse::<u64>);
    Ok(Sample {
        wall,
        cpu: relay.cpu,
        others: sink.cpu + source.cpu,
        bytes: words.next().context("the sink printed nothing")??,
        digest: words.next().transpose()?,
        ..Sample::default()
    })
}

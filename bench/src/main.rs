//! Experiments that compare Cordboard, other programs and hand-written loops,
//! interleaved in one run, by ratios of medians.
//!
//! `cargo run -r -p bench -- list`, `… run NAME`. Peers from crates.io are
//! found after `cargo install uu_cat uu_cp --root target/peers`.

mod baselines;
mod cli;
mod experiments;
mod harness;
mod paper;
mod paper_cue;
mod post_2006;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;

use cli::{Action, Cli, Run};
use experiments::Experiment;
use harness::env::Environment;
use harness::tools::Tools;
use harness::{Bench, memory, prune, record, runs, summary, sys};

fn main() -> ExitCode {
    act().unwrap_or_else(|error| {
        eprintln!("bench: {error:#}");
        ExitCode::FAILURE
    })
}

fn act() -> Result<ExitCode> {
    // First, because the measured time of a baseline includes its start.
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some("baseline") {
        baselines::run(words.collect())?;
        return Ok(ExitCode::SUCCESS);
    }
    match Cli::parse().action {
        Action::List => {
            for experiment in experiments::ALL {
                println!("{:12} {}", experiment.name, experiment.about);
            }
            Ok(ExitCode::SUCCESS)
        }
        Action::Run(run) => run_all(&run),
        Action::Prune => {
            for file in prune::prune(&runs::directory())? {
                println!("removed {}", file.display());
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn run_all(run: &Run) -> Result<ExitCode> {
    let chosen = choose(&run.names)?;
    sys::reserve_low_descriptors()?;
    sys::end_orderly_on_signals()?;
    let tools = Tools::find()?;
    let _kept = (!run.options().quick).then(memory::Kept::new);
    let mut failed = false;
    for experiment in chosen {
        eprintln!("# {}", experiment.name);
        let mut bench = Bench::new(&run.options(), &tools)?;
        let env = Environment::of(bench.directory.path(), &tools);
        (experiment.run)(&mut bench).with_context(|| experiment.name)?;
        let text = summary::render(experiment.name, experiment.about, &bench);
        println!("{text}");
        if run.record {
            let place = record::write(&runs::directory(), experiment.name, &bench, &env, &text)?;
            eprintln!("recorded in {}", place.display());
        }
        failed |= bench.failed();
    }
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn choose(names: &[String]) -> Result<Vec<Experiment>> {
    if names.iter().any(|name| name == "all") {
        return Ok(experiments::ALL.to_vec());
    }
    let find = |name: &String| match experiments::ALL.iter().find(|e| e.name == name) {
        Some(experiment) => Ok(*experiment),
        None => bail!("unknown experiment {name}: see `list`"),
    };
    names.iter().map(find).collect()
}

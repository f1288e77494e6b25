//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::harness::Options;

/// The experiments.
#[derive(Debug, Parser)]
#[command(name = "bench", about = "The experiments")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Name the experiments
    List,
    /// Run some and print their summaries
    Run(Run),
    /// Remove the raw data of all recorded runs but the newest of each experiment
    Prune,
}

/// `run`
#[derive(Debug, Args)]
pub struct Run {
    /// Experiments, or `all`
    #[arg(required = true)]
    pub names: Vec<String>,
    /// Small sizes and few rounds: to see that everything works
    #[arg(long)]
    pub quick: bool,
    /// Keep raw data, environment and summary in bench/runs
    #[arg(long)]
    pub record: bool,
    /// Rounds of each setting
    #[arg(long, value_name = "N")]
    pub rounds: Option<usize>,
    /// Only contestants whose name contains one of these
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Only settings whose name contains one of these
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub setting: Vec<String>,
    /// Where the files are made [default: the directory for temporary files,
    /// or /var/tmp where that is in memory]
    #[arg(long, value_name = "DIRECTORY")]
    pub dir: Option<PathBuf>,
}

impl Run {
    /// For the harness.
    pub fn options(&self) -> Options {
        Options {
            quick: self.quick,
            record: self.record,
            rounds: self.rounds,
            only: self.only.clone(),
            settings: self.setting.clone(),
            directory: self.dir.clone(),
        }
    }
}

//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::harness::Options;

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "bench", about = "Runs the experiments")]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub action: Action,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// List the experiments
    List,
    /// Run experiments and print their summaries
    Run(Run),
    /// Remove the raw data of all recorded runs except the newest of each
    /// experiment
    Prune,
}

/// The arguments of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Experiments, or `all`
    #[arg(required = true)]
    pub names: Vec<String>,
    /// Use small sizes and few rounds, to check that everything works
    #[arg(long)]
    pub quick: bool,
    /// Keep raw data, environment and summary in bench/runs
    #[arg(long)]
    pub record: bool,
    /// Number of rounds of each setting
    #[arg(long, value_name = "N")]
    pub rounds: Option<usize>,
    /// Only contestants whose name contains one of these
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Only settings whose name contains one of these
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub setting: Vec<String>,
    /// Directory for the files [default: the directory for temporary files, or
    /// /var/tmp if that is a tmpfs]
    #[arg(long, value_name = "DIRECTORY")]
    pub dir: Option<PathBuf>,
}

impl Run {
    /// The options for the harness.
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

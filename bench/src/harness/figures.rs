//! Figures that only the contestant itself can measure. It prints them on
//! standard output, one `name=value` per line.

use anyhow::{Context, Result};

use super::cpu::Cpu;
use super::interleave::Turn;
use super::launch::Job;
use super::series::Sample;

/// Prints a figure.
pub fn print(name: &str, value: f64) {
    println!("{name}={value}");
}

/// Runs a program that measures itself and prints all figures.
pub fn alone(turn: &Turn<'_>) -> Result<Sample> {
    let (finished, _) = Job::new(&turn.command_line(&[]))?.keep_output().run()?;
    let sample = Sample {
        digest: Some(0),
        ..Sample::default()
    };
    add_output(sample, &finished.output)
}

/// Adds the printed figures to a sample. `wall`, `cpu` and `bytes` replace the
/// measurements of the harness.
pub fn add_output(mut sample: Sample, output: &str) -> Result<Sample> {
    for line in output.lines() {
        let (name, value) = line
            .split_once('=')
            .with_context(|| format!("not name=value: {line}"))?;
        let value: f64 = value
            .parse()
            .with_context(|| format!("not name=value: {line}"))?;
        match name {
            "wall" => sample.wall = value,
            "bytes" => sample.bytes = value as u64,
            "cpu" => {
                sample.cpu = Cpu {
                    user: 0.0,
                    system: value,
                }
            }
            _ => sample = sample.with(name, value),
        }
    }
    Ok(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_figures_are_added() {
        let add_output =
            add_output(Sample::default(), "wall=0.5\nbytes=4096\np99 µs=1.25\n").unwrap();
        assert_eq!((add_output.wall, add_output.bytes), (0.5, 4096));
        assert_eq!(add_output.figures, [("p99 µs".to_owned(), 1.25)]);
    }

    #[test]
    fn other_output_is_refused() {
        assert!(add_output(Sample::default(), "hello").is_err());
        assert!(add_output(Sample::default(), "wall=long").is_err());
    }
}

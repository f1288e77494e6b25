//! How a contestant tells the harness what only it can know: `name=value`, a
//! line each, on standard output.

use anyhow::{Context, Result};

use super::cpu::Cpu;
use super::interleave::Turn;
use super::launch::Job;
use super::series::Sample;

/// Says one.
pub fn print(name: &str, value: f64) {
    println!("{name}={value}");
}

/// One turn of a program that measures itself, and says all there is to know.
pub fn alone(turn: &Turn<'_>) -> Result<Sample> {
    let (finished, _) = Job::new(&turn.words(&[]))?.keep_output().run()?;
    let sample = Sample {
        digest: Some(0),
        ..Sample::default()
    };
    heard(sample, &finished.output)
}

/// With what was said. `wall`, `cpu` and `bytes` take the place of the
/// harness's own measurement; everything else is a figure.
pub fn heard(mut sample: Sample, output: &str) -> Result<Sample> {
    for line in output.lines() {
        let (name, value) = line
            .split_once('=')
            .with_context(|| format!("said: {line}"))?;
        let value: f64 = value.parse().with_context(|| format!("said: {line}"))?;
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
    fn what_is_said_is_heard() {
        let heard = heard(Sample::default(), "wall=0.5\nbytes=4096\np99 µs=1.25\n").unwrap();
        assert_eq!((heard.wall, heard.bytes), (0.5, 4096));
        assert_eq!(heard.figures, [("p99 µs".to_owned(), 1.25)]);
    }

    #[test]
    fn anything_else_is_refused() {
        assert!(heard(Sample::default(), "hello").is_err());
        assert!(heard(Sample::default(), "wall=long").is_err());
    }
}

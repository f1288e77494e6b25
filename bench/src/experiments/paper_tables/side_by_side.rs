//! The measured figures next to those of the papers.

use std::fmt::Write as _;

use super::columns::{IMPROVEMENT, PERCENT};
use super::copiers::{CP, LIBRARY, OURS};
use super::devices::Device;
use crate::harness::Bench;
use crate::harness::series::{Series, SettingResult};
use crate::harness::stats::Spread;
use crate::paper::{self, Row};

/// Table 1, in the forms of both papers.
pub fn availability(bench: &Bench) -> String {
    let mut out = "## Compared with the papers' table 1\n\n\
        | device | SCP is | % of idle, CP | % of idle, SCP | F_cp | F_scp | improvement | I |\n\
        |---|---|--:|--:|--:|--:|--:|--:|\n"
        .to_owned();
    for device in Device::ALL {
        if let Some(row) = paper::row(device.name()) {
            out += &availability_of_the_papers(row);
        }
        for (result, ours) in of_device(bench, device) {
            let median = |name: &str, figure: &str| {
                let values = result.of(name)?.figure(figure);
                Some(Spread::of(&values)?.median)
            };
            let (Some(cp), Some(scp)) = (median(CP, PERCENT), median(ours, PERCENT)) else {
                continue;
            };
            let factor = median(ours, IMPROVEMENT).unwrap_or(f64::NAN);
            let slowdown = |percent: f64| paper::slowdown(percent / 100.0).unwrap_or(f64::NAN);
            let _ = writeln!(
                out,
                "| {} | {ours} | {cp:.1} % | {scp:.1} % | {:.2} | {:.2} | {:.1} % | {factor:.2} |",
                device.name(),
                slowdown(cp),
                slowdown(scp),
                paper::percent_more(factor),
            );
        }
    }
    out
}

fn availability_of_the_papers(row: Row) -> String {
    let Row {
        device,
        percent_cp,
        percent_scp,
        improvement,
        f_cp,
        f_scp,
        i,
        ..
    } = row;
    format!(
        "| {device} | *the papers'* | {percent_cp:.1} % | {percent_scp:.1} % | \
         {f_cp:.1} | {f_scp:.1} | {improvement:.1} % | {i:.1} |\n"
    )
}

/// Table 2.
pub fn throughput(bench: &Bench) -> String {
    let mut out = "## Compared with the papers' table 2\n\n\
        | device | SCP is | SCP MB/s | CP MB/s | SCP over CP |\n\
        |---|---|--:|--:|--:|\n"
        .to_owned();
    for device in Device::ALL {
        if let Some(row) = paper::row(device.name()) {
            let _ = writeln!(
                out,
                "| {} | *the papers'* | {:.2} | {:.2} | {:.1} % |",
                row.device,
                row.rate_scp / 1e3,
                row.rate_cp / 1e3,
                row.faster
            );
        }
        for (result, ours) in of_device(bench, device) {
            let rate = |name: &str| {
                let median = result.of(name).and_then(Series::median)?;
                Some(result.bytes as f64 / 1e6 / median)
            };
            let (Some(cp), Some(scp)) = (rate(CP), rate(ours)) else {
                continue;
            };
            let factor = paper::improvement(scp, cp).unwrap_or(f64::NAN);
            let more = paper::percent_more(factor);
            let name = device.name();
            let _ = writeln!(
                out,
                "| {name} | {ours} | {scp:.2} | {cp:.2} | {more:.1} % |"
            );
        }
    }
    out
}

/// The results on this device, once for each Cordboard contestant.
fn of_device(
    bench: &Bench,
    device: Device,
) -> impl Iterator<Item = (&SettingResult, &'static str)> {
    let results = bench.results.iter();
    let results = results.filter(move |r| r.name == device.name());
    results.flat_map(|r| [OURS, LIBRARY].map(|ours| (r, ours)))
}

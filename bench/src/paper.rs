//! The figures of Fall and Pasquale's experiments, and their formulas:
//! "Exploiting In-Kernel Data Paths to Improve I/O Throughput and CPU
//! Availability", as printed by the conference (USENIX, Winter 1993) and as a
//! technical report (UCSD, November 1992).

/// One row of tables 1 and 2 of both papers: an 8 MB file, copied between two
/// devices of this kind.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The kind of device.
    pub device: &'static str,
    /// The rate of the test program during `cp`, in percent of its rate on an
    /// idle machine.
    pub percent_cp: f64,
    /// The same during `scp`, the copy program that uses splice.
    pub percent_scp: f64,
    /// The improvement of `scp` over `cp`, in percent.
    pub improvement: f64,
    /// The slowdown during `cp`, in the form of the report.
    pub f_cp: f64,
    /// The slowdown during `scp`.
    pub f_scp: f64,
    /// The improvement factor of the report.
    pub i: f64,
    /// The throughput of `cp`, in KB/s.
    pub rate_cp: f64,
    /// The throughput of `scp`, in KB/s.
    pub rate_scp: f64,
    /// By how much `scp` is faster, in percent, as printed by the conference.
    pub faster: f64,
}

/// The tables.
pub const ROWS: [Row; 3] = [
    Row {
        device: "RAM",
        percent_cp: 49.3,
        percent_scp: 81.4,
        improvement: 65.1,
        f_cp: 2.0,
        f_scp: 1.2,
        i: 1.7,
        rate_cp: 1884.0,
        rate_scp: 3343.0,
        faster: 77.7,
    },
    Row {
        device: "RZ58",
        percent_cp: 63.6,
        percent_scp: 84.2,
        improvement: 32.4,
        f_cp: 1.6,
        f_scp: 1.2,
        i: 1.3,
        rate_cp: 545.0,
        rate_scp: 587.0,
        faster: 7.3,
    },
    Row {
        device: "RZ56",
        percent_cp: 63.8,
        percent_scp: 79.8,
        improvement: 25.1,
        f_cp: 1.6,
        f_scp: 1.3,
        i: 1.2,
        rate_cp: 371.0,
        rate_scp: 368.0,
        faster: 0.0,
    },
];

/// The size of the file, in bytes.
pub const FILE: u64 = 8 << 20;
/// The rate between medium and drive of the RZ58, in bytes per second: 3.1 to
/// 3.9 MB/s.
pub const RZ58_RATE: u64 = 3_500_000;
/// The same of the RZ56: 1.66 MB/s.
pub const RZ56_RATE: u64 = 1_660_000;

/// The papers' figures for this kind of device.
pub fn row(device: &str) -> Option<Row> {
    ROWS.into_iter().find(|row| row.device == device)
}

/// The rate of the test program relative to its rate on an idle machine: its
/// operations in `seconds` divided by those of an idle machine. 1: no effect.
pub fn availability(operations: f64, seconds: f64, idle_rate: f64) -> Option<f64> {
    (seconds > 0.0 && idle_rate > 0.0).then(|| operations / seconds / idle_rate)
}

/// The report's slowdown F: how many times as long the same operations take.
pub fn slowdown(availability: f64) -> Option<f64> {
    (availability > 0.0).then(|| 1.0 / availability)
}

/// A copy during which the test program runs.
#[derive(Debug, Clone, Copy)]
pub struct DuringCopy {
    /// [`availability`] during the copy.
    pub availability: f64,
    /// The duration of the copy, in seconds.
    pub seconds: f64,
}

impl DuringCopy {
    /// The work of the test program during the copy, in seconds of an idle
    /// machine.
    pub fn done(self) -> f64 {
        self.availability * self.seconds
    }

    /// The time that the test program takes for a fixed number of operations,
    /// which take `work` seconds on an idle machine, if one copy starts
    /// together with it. After the end of the copy it has the processor to
    /// itself.
    pub fn takes(self, work: f64) -> f64 {
        let left = work - self.done();
        if left >= 0.0 {
            self.seconds + left
        } else {
            work / self.availability
        }
    }

    /// The report's improvement I over `cp`: `T_cp / T` for the operations that
    /// the test program does while `cp` copies the file. Of two copies with the
    /// same share of the processor, the shorter one is better.
    pub fn improvement_over(self, cp: DuringCopy) -> Option<f64> {
        improvement(cp.seconds, self.takes(cp.done()))
    }
}

/// The report's improvement I of one copy over another: how many times as fast
/// the test program runs during it. `F_cp / F_scp`.
pub fn improvement(ours: f64, theirs: f64) -> Option<f64> {
    (theirs > 0.0).then(|| ours / theirs)
}

/// By how much a factor exceeds 1, in percent.
pub fn percent_more(factor: f64) -> f64 {
    (factor - 1.0) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digits(value: f64, after_point: usize) -> String {
        format!("{value:.after_point$}")
    }

    #[test]
    fn the_conference_paper_s_table_1_comes_out() {
        for row in ROWS {
            let factor = improvement(row.percent_scp, row.percent_cp).unwrap();
            assert_eq!(
                digits(percent_more(factor), 1),
                digits(row.improvement, 1),
                "{}",
                row.device
            );
        }
    }

    #[test]
    fn the_report_s_table_1_is_the_same_one_in_its_form() {
        for row in ROWS {
            for (percent, f) in [(row.percent_cp, row.f_cp), (row.percent_scp, row.f_scp)] {
                // The number of operations in the time of 100 on an idle
                // machine.
                let share = availability(percent, 1.0, 100.0).unwrap();
                assert_eq!(digits(slowdown(share).unwrap(), 1), digits(f, 1));
            }
            let i = row.f_cp / row.f_scp;
            assert_eq!(digits(i, 1), digits(row.i, 1), "{}", row.device);
        }
    }

    #[test]
    fn table_2_comes_out() {
        // The conference printed MB/s with two digits, and computed percentages
        // from those.
        for row in ROWS {
            let printed = |rate: f64| (rate / 10.0).round() / 100.0;
            let factor = improvement(printed(row.rate_scp), printed(row.rate_cp)).unwrap();
            assert_eq!(
                digits(percent_more(factor), 1),
                digits(row.faster, 1),
                "{}",
                row.device
            );
        }
    }

    #[test]
    fn for_copies_of_equal_duration_it_is_the_papers_formula() {
        for row in ROWS {
            let during_copy = |percent: f64| DuringCopy {
                availability: percent / 100.0,
                seconds: 1e9,
            };
            let (cp, scp) = (during_copy(row.percent_cp), during_copy(row.percent_scp));
            let factor = scp.improvement_over(cp).unwrap();
            assert_eq!(digits(percent_more(factor), 1), digits(row.improvement, 1));
            assert_eq!(cp.improvement_over(cp), Some(1.0));
        }
    }

    #[test]
    fn a_shorter_copy_leaves_the_rest_of_the_time_idle() {
        let cp = DuringCopy {
            availability: 0.5,
            seconds: 4.0,
        };
        // The same share for half a second: 0.25 of 2 are done, 1.75 remain.
        let quick = DuringCopy {
            availability: 0.5,
            seconds: 0.5,
        };
        assert_eq!(quick.takes(cp.done()), 2.25);
        assert_eq!(quick.improvement_over(cp), Some(4.0 / 2.25));
        // Slower than cp with the same share: no improvement.
        let slow = DuringCopy {
            availability: 0.5,
            seconds: 9.0,
        };
        assert_eq!(slow.improvement_over(cp), Some(1.0));
    }

    #[test]
    fn missing_values_are_none() {
        assert_eq!(availability(5.0, 0.0, 1.0), None);
        assert_eq!(availability(5.0, 1.0, 0.0), None);
        assert_eq!(slowdown(0.0), None);
        assert_eq!(improvement(1.0, 0.0), None);
        assert_eq!(row("RZ57").map(|r| r.f_cp), None);
    }
}

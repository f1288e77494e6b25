//! The figures of the paper on `cue()`, in-kernel streams that are controlled by a
//! descriptor, and the formula of its section 4.3.

/// A row of table 1: an FTP server that sends a file of 12 MB to each client.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The number of clients at once.
    pub clients: usize,
    /// The rate of a server that reads and writes, in KB/s.
    pub user_driven: f64,
    /// That with 4 blocks between rests of 16 ms.
    pub k4_t16: f64,
    /// That with 4 blocks between rests of 70 ms.
    pub k4_t70: f64,
}

/// Table 1: the highest rates.
pub const TABLE1: [Row; 4] = [
    row(1, 410.0, 370.0, 200.0),
    row(2, 300.0, 360.0, 350.0),
    row(3, 240.0, 330.0, 300.0),
    row(4, 240.0, 360.0, 317.0),
];

const fn row(clients: usize, user_driven: f64, k4_t16: f64, k4_t70: f64) -> Row {
    Row {
        clients,
        user_driven,
        k4_t16,
        k4_t70,
    }
}

/// The share by which a metering process makes more calls than during user-driven
/// transfers, in the time of those: section 4.3 of the paper on `cue()`, which
/// subtracts the calls that the process makes alone in the time that a slower transfer
/// takes longer. `idle` is its rate alone. `None` without calls.
pub fn metering_gain(
    calls: f64,
    seconds: f64,
    idle: f64,
    user_driven: f64,
    user_driven_seconds: f64,
) -> Option<f64> {
    let comparable = calls + idle * (user_driven_seconds - seconds);
    (user_driven > 0.0).then(|| comparable / user_driven - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gain_of_four_clients_is_half_the_rate() {
        let most = TABLE1.map(|row| row.k4_t16 / row.user_driven);
        assert_eq!(most[3], 1.5, "\"up to 50%\" in the introduction");
        assert!(most.iter().all(|gain| *gain <= 1.5));
    }

    #[test]
    fn the_gain_of_the_metering_process_comes_out() {
        // 60 transfers, 1.7 % longer; 2 million calls more are 5 %, of which half a
        // million fall into the 16 seconds. "Approximately 4 %".
        let (seconds, idle) = (16.0 / 0.017, 0.032);
        let gain = metering_gain(42.0, seconds + 16.0, idle, 40.0, seconds).unwrap();
        assert!((0.035..0.045).contains(&gain), "{gain}");
        // After a faster transfer the process runs alone.
        assert_eq!(metering_gain(1.0, 1.0, 2.0, 2.0, 2.0), Some(0.5));
        assert_eq!(metering_gain(1.0, 1.0, 2.0, 0.0, 2.0), None);
    }
}

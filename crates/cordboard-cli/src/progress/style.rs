//! How progress is shown, and how often.

use std::io::IsTerminal;
use std::time::Duration;

use crate::flags::ProgressMode;
use crate::output;

/// The interval of the drawings.
pub const EVERY: Duration = Duration::from_millis(100);

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Only on request.
    Nothing,
    /// As one line that is drawn again.
    Drawn,
    /// As one line each second: for logs, which keep every line.
    Lines,
}

impl Style {
    /// Returns the style that a flag requests.
    pub fn of(mode: ProgressMode) -> Style {
        Style::on(mode, can_draw())
    }

    /// The same, on an output that can be drawn on or not.
    fn on(mode: ProgressMode, can_draw: bool) -> Style {
        match mode {
            ProgressMode::Auto if can_draw => Style::Drawn,
            ProgressMode::Auto | ProgressMode::Never => Style::Nothing,
            ProgressMode::Always => Style::Drawn,
            ProgressMode::Lines => Style::Lines,
        }
    }

    /// Whether anything is shown.
    pub fn is_shown(self) -> bool {
        self != Style::Nothing
    }

    /// Returns the time of the next showing, if `now` is not before it. `last` is the time
    /// of the one before, or of the start. The times of lines are whole seconds after the
    /// start, so that a late line does not delay the next.
    pub fn next(self, last: Duration, now: Duration) -> Option<Duration> {
        let since = now.saturating_sub(last);
        match self {
            Style::Nothing => None,
            Style::Drawn => (since >= EVERY).then_some(now),
            Style::Lines => match since.as_secs() {
                0 => None,
                seconds => Some(last + Duration::from_secs(seconds)),
            },
        }
    }
}

fn can_draw() -> bool {
    std::io::stderr().is_terminal() && !output::is_dumb()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times of all showings, of moments in milliseconds.
    fn shown(style: Style, start: u64, moments: &[u64]) -> Vec<u64> {
        let mut last = Duration::from_millis(start);
        let due = moments.iter().filter(|now| {
            let next = style.next(last, Duration::from_millis(**now));
            last = next.unwrap_or(last);
            next.is_some()
        });
        due.copied().collect()
    }

    #[test]
    fn lines_come_each_second() {
        let moments: Vec<u64> = (0..=4000).step_by(90).collect();
        let shown_ = shown(Style::Lines, 0, &moments);
        assert_eq!(shown_, [1080, 2070, 3060], "the first after each second");
        // A long wait is one line, and the next one is not late.
        let shown_ = shown(Style::Lines, 500, &[1499, 1500, 9499, 9501, 10_499, 10_500]);
        assert_eq!(shown_, [1500, 9499, 9501, 10_500]);
        assert_eq!(shown(Style::Drawn, 0, &[99, 100, 199, 250]), [100, 250]);
        assert_eq!(shown(Style::Nothing, 0, &moments), [0; 0]);
    }

    #[test]
    fn only_auto_depends_on_the_terminal() {
        for (mode, [terminal, other]) in [
            (ProgressMode::Auto, [Style::Drawn, Style::Nothing]),
            (ProgressMode::Always, [Style::Drawn; 2]),
            (ProgressMode::Lines, [Style::Lines; 2]),
            (ProgressMode::Never, [Style::Nothing; 2]),
        ] {
            assert_eq!(
                [true, false].map(|draws| Style::on(mode, draws)),
                [terminal, other]
            );
        }
    }
}

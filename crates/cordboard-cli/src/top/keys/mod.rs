//! The effect of keys: a pure function from a key and the rows to an action.

use cordboard::cue::Command;
use cordboard::{Aim, Schedule};

use super::row::{Id, Row};
use super::steps;
use crate::keyboard::Key;
use crate::units;

/// The meaning of the next key.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Normal,
    /// The user is asked to confirm that this transfer is cancelled.
    Cancel(Id),
    /// The user types a rate for this transfer.
    Rate(Id, String),
    /// The help is shown.
    Help,
}

/// The action of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Nothing,
    Quit,
    Send(Id, Command),
}

/// The selection, the mode, and the last message.
#[derive(Debug, Default)]
pub struct Keys {
    pub mode: Mode,
    pub message: Option<String>,
    selected: Option<Id>,
    /// The index of the selected row, which remains selected if the row is removed.
    place: usize,
}

impl Keys {
    /// Returns the selected row. If it was removed, the row at its index is selected.
    pub fn select<'a>(&mut self, rows: &[&'a Row]) -> Option<&'a Row> {
        let found = rows.iter().position(|row| Some(row.id) == self.selected);
        self.place = found.unwrap_or(self.place.min(rows.len().saturating_sub(1)));
        let row = rows.get(self.place).copied();
        self.selected = row.map(|row| row.id);
        let gone = |id: &Id| !is_running(rows, *id);
        // A rate is typed to its end: its digits are commands in the normal mode.
        if let Mode::Cancel(id) = &self.mode
            && gone(id)
        {
            self.mode = Mode::Normal;
        }
        row
    }

    /// Carries out a key.
    pub fn press(&mut self, key: Key, rows: &[&Row]) -> Action {
        self.message = None;
        let row = self.select(rows);
        match std::mem::take(&mut self.mode) {
            Mode::Cancel(id) => match key {
                Key::Char('y' | 'Y') => Action::Send(id, Command::Cancel),
                _ => Action::Nothing,
            },
            Mode::Rate(id, text) => self.type_rate(id, text, key, rows),
            Mode::Help if matches!(key, Key::Char('q')) => Action::Quit,
            Mode::Help => Action::Nothing,
            Mode::Normal => self.normal(key, rows, row),
        }
    }

    fn normal(&mut self, key: Key, rows: &[&Row], row: Option<&Row>) -> Action {
        let last = rows.len().saturating_sub(1);
        let place = match key {
            Key::Char('q' | 'Q') => return Action::Quit,
            Key::Char('?' | 'h') => {
                self.mode = Mode::Help;
                return Action::Nothing;
            }
            Key::Up | Key::Char('k') => self.place.saturating_sub(1),
            Key::Down | Key::Char('j') => (self.place + 1).min(last),
            Key::Home | Key::Char('g') => 0,
            Key::End | Key::Char('G') => last,
            key => return self.steer(key, row),
        };
        self.selected = rows.get(place).map(|row| row.id);
        self.place = place;
        Action::Nothing
    }

    fn steer(&mut self, key: Key, row: Option<&Row>) -> Action {
        let Key::Char(letter) = key else {
            return Action::Nothing;
        };
        if !"prc+-=Ra0 ".contains(letter) {
            return Action::Nothing;
        }
        let Some(row) = row else {
            return self.say("no transfer is selected");
        };
        if row.end.is_some() {
            return self.say("this transfer has ended");
        }
        let command = match letter {
            ' ' if row.is_paused() => Command::Resume,
            'r' => Command::Resume,
            'p' | ' ' => Command::Pause,
            'a' => Command::Auto(Aim::Background),
            '0' => Command::Rate(0),
            'c' => {
                self.mode = Mode::Cancel(row.id);
                return Action::Nothing;
            }
            '+' | '-' => match step(row, letter == '+') {
                Ok(rate) => Command::Rate(rate),
                Err(why) => return self.say(why),
            },
            _ => {
                self.mode = Mode::Rate(row.id, String::new());
                return Action::Nothing;
            }
        };
        Action::Send(row.id, command)
    }

    fn type_rate(&mut self, id: Id, mut text: String, key: Key, rows: &[&Row]) -> Action {
        match key {
            Key::Escape => return Action::Nothing,
            Key::Enter if text.is_empty() => return Action::Nothing,
            Key::Enter if !is_running(rows, id) => return self.say("this transfer has ended"),
            Key::Enter => match units::size(text.strip_suffix("/s").unwrap_or(&text)) {
                Ok(rate) => return Action::Send(id, Command::Rate(rate)),
                Err(_) => return self.say("a rate is, for example, 64K, 10MB or 0 for no limit"),
            },
            Key::Backspace => drop(text.pop()),
            // Every rate is shorter.
            Key::Char(letter) if letter != ' ' && text.len() < 20 => {
                text.push(letter);
            }
            _ => {}
        }
        self.mode = Mode::Rate(id, text);
        Action::Nothing
    }

    fn say(&mut self, text: &str) -> Action {
        self.message = Some(text.to_owned());
        Action::Nothing
    }
}

fn is_running(rows: &[&Row], id: Id) -> bool {
    rows.iter().any(|row| row.id == id && row.end.is_none())
}

/// Returns the next rate. Without one, `-` begins at the present speed.
fn step(row: &Row, up: bool) -> Result<u64, &'static str> {
    let rate_of = |schedule| match schedule {
        Schedule::Rate(rate) => Some(rate.get()),
        _ => None,
    };
    let own = row.status.and_then(|status| rate_of(status.schedule));
    // Another schedule may be slower than the limit.
    let is_rate = |schedule| matches!(schedule, Schedule::Rate(_) | Schedule::Unlimited);
    let limited = row.status.filter(|status| is_rate(status.schedule));
    let limit = limited.and_then(|status| rate_of(status.rate_limit));
    match (own.into_iter().chain(limit).min(), up) {
        (rate @ Some(_), true) if rate == limit => Err("a limit forbids a higher rate"),
        (Some(rate), true) => steps::above(rate).ok_or("there is no higher rate"),
        (Some(rate), false) => Ok(steps::below(rate)),
        (None, true) => Err("no rate is set"),
        (None, false) => match row.rate() as u64 {
            0 => Err("no rate is set, and no bytes move"),
            speed => Ok(steps::below(speed)),
        },
    }
}

#[cfg(test)]
mod tests;

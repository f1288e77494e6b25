use super::super::row::tests::status;
use super::*;
use cordboard::Schedule;
use cordboard::cue::State;

fn rows() -> [Row; 3] {
    [1, 2, 3].map(|id| {
        let mut row = Row::new(id, format!("{id}"), None);
        row.update(status(1, 3 << 20));
        row
    })
}

fn press(keys: &mut Keys, rows: &[Row], typed: &str) -> Vec<Action> {
    let rows: Vec<&Row> = rows.iter().collect();
    let each = typed.chars().map(|letter| match letter {
        '\n' => Key::Enter,
        '\x1b' => Key::Escape,
        letter => Key::Char(letter),
    });
    each.map(|key| keys.press(key, &rows))
        .filter(|action| *action != Action::Nothing)
        .collect()
}

#[test]
fn each_key_has_its_command() {
    let (mut keys, mut rows) = (Keys::default(), rows());
    let sent = press(&mut keys, &rows, "p ra0-xq");
    let commands = [
        Command::Pause,
        Command::Pause,
        Command::Resume,
        Command::Auto(Aim::Background),
        Command::Rate(0),
        Command::Rate(2 << 20),
    ];
    let mut expected: Vec<Action> = commands.map(|c| Action::Send(1, c)).into();
    expected.push(Action::Quit);
    assert_eq!(sent, expected);
    let mut paused = status(2, 3 << 20);
    paused.state = State::Paused;
    paused.schedule = Schedule::rate(1 << 20);
    rows[0].update(paused);
    let sent = press(&mut keys, &rows, " +-");
    let commands = [
        Command::Resume,
        Command::Rate(2 << 20),
        Command::Rate(500 << 10),
    ];
    assert_eq!(sent, commands.map(|c| Action::Send(1, c)));
}

/// Keys may arrive before the answers to those before them.
#[test]
fn each_key_begins_where_the_last_one_ended() {
    let (mut keys, mut rows) = (Keys::default(), rows());
    let mut paced = status(2, 3 << 20);
    paced.schedule = Schedule::rate(1 << 20);
    rows[0].update(paced);
    let mut sent = Vec::new();
    for (answers, key) in (2..).zip("+ + ".chars()) {
        let [Action::Send(1, command)] = press(&mut keys, &rows, &key.to_string())[..] else {
            panic!("{key} has no effect");
        };
        rows[0].sent(command, answers);
        sent.push(command);
    }
    let commands = [
        Command::Rate(2 << 20),
        Command::Pause,
        Command::Rate(5 << 20),
        Command::Resume,
    ];
    assert_eq!(sent, commands);
    // The answers to earlier requests, and the last one: a limit has forbidden the rates.
    for _ in 2..6 {
        rows[0].update(paced);
        assert_eq!(rows[0].schedule(), "max 5.0 MiB/s");
    }
    rows[0].update(paced);
    assert_eq!(rows[0].schedule(), "max 1.0 MiB/s");
}

#[test]
fn the_selection_moves_and_stays_with_its_row() {
    let (mut keys, rows) = (Keys::default(), rows());
    assert_eq!(
        press(&mut keys, &rows, "jp"),
        [Action::Send(2, Command::Pause)]
    );
    // The row above is removed.
    assert_eq!(
        press(&mut keys, &rows[1..], "p"),
        [Action::Send(2, Command::Pause)]
    );
    assert_eq!(
        press(&mut keys, &rows[1..], "jjjp"),
        [Action::Send(3, Command::Pause)]
    );
    // The selected row, the last one, is removed: the one before is selected.
    assert_eq!(
        press(&mut keys, &rows[..2], "p"),
        [Action::Send(2, Command::Pause)]
    );
    assert_eq!(
        press(&mut keys, &rows, "gp"),
        [Action::Send(1, Command::Pause)]
    );
    assert_eq!(press(&mut keys, &[], "p"), []);
    assert_eq!(keys.message.as_deref(), Some("no transfer is selected"));
}

#[test]
fn a_cancellation_is_confirmed() {
    let (mut keys, mut rows) = (Keys::default(), rows());
    assert_eq!(press(&mut keys, &rows, "cn"), []);
    assert_eq!(press(&mut keys, &rows, "cp"), [], "another key: no");
    assert_eq!(
        press(&mut keys, &rows, "cy"),
        [Action::Send(1, Command::Cancel)]
    );
    press(&mut keys, &rows, "c");
    rows[0].closed();
    assert_eq!(press(&mut keys, &rows, "y"), [], "it has ended meanwhile");
    assert_eq!(keys.mode, Mode::Normal);
    assert_eq!(press(&mut keys, &rows, "p"), []);
    assert_eq!(keys.message.as_deref(), Some("this transfer has ended"));
}

#[test]
fn a_rate_is_typed() {
    let (mut keys, rows) = (Keys::default(), rows());
    let typed = press(&mut keys, &rows, "=10MB/s\n");
    assert_eq!(typed, [Action::Send(1, Command::Rate(10_000_000))]);
    assert_eq!(
        press(&mut keys, &rows, "R0\n"),
        [Action::Send(1, Command::Rate(0))]
    );
    assert_eq!(press(&mut keys, &rows, "=5q\x1b"), []);
    assert_eq!(press(&mut keys, &rows, "=x\n"), []);
    assert!(keys.message.as_deref().unwrap().starts_with("a rate is"));
    assert_eq!(keys.mode, Mode::Normal);
}

/// The digits of the rate must not be commands for another transfer.
#[test]
fn a_rate_is_typed_for_a_transfer_that_ends() {
    let (mut keys, mut rows) = (Keys::default(), rows());
    assert_eq!(press(&mut keys, &rows, "=1"), []);
    rows[0].closed();
    assert_eq!(press(&mut keys, &rows, "0"), []);
    // Its row is removed, too.
    assert_eq!(press(&mut keys, &rows[1..], "0\n"), []);
    assert_eq!(keys.message.as_deref(), Some("this transfer has ended"));
    assert_eq!(keys.mode, Mode::Normal);
}

/// The rates of keys would have no effect.
#[test]
fn a_limit_forbids_a_step_up() {
    let (mut keys, mut rows) = (Keys::default(), rows());
    let [low, high] = [1 << 20, 5 << 20].map(Schedule::rate);
    for (schedule, up, down) in [
        (Schedule::Unlimited, None, 500 << 10),
        (low, None, 500 << 10),
        (high, None, 500 << 10),
        (Schedule::rate(500 << 10), Some(1 << 20), 200 << 10),
    ] {
        let mut status = status(2, 3 << 20);
        (status.schedule, status.rate_limit) = (schedule, low);
        rows[0].update(status);
        let sent: Vec<Action> = up
            .into_iter()
            .map(|up| Action::Send(1, Command::Rate(up)))
            .collect();
        assert_eq!(press(&mut keys, &rows, "+"), sent);
        let forbids = Some("a limit forbids a higher rate").filter(|_| up.is_none());
        assert_eq!(keys.message.as_deref(), forbids);
        let sent = press(&mut keys, &rows, "-");
        assert_eq!(sent, [Action::Send(1, Command::Rate(down))]);
    }
}

#[test]
fn without_a_rate_there_is_no_step_up() {
    let (mut keys, mut rows) = (Keys::default(), rows());
    assert_eq!(press(&mut keys, &rows, "+"), []);
    assert_eq!(keys.message.as_deref(), Some("no rate is set"));
    rows[0] = Row::new(1, String::new(), None);
    assert_eq!(press(&mut keys, &rows, "-"), []);
    assert_eq!(
        keys.message.as_deref(),
        Some("no rate is set, and no bytes move")
    );
}

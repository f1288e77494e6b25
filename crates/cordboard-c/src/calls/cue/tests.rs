//! Tests of waiting for transfers.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use super::*;

fn bytes_of(records: &[Record]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for record in records {
        record.encode(&mut bytes);
    }
    bytes
}

/// The answer to a mark.
const MARK: Record = Record::Refused {
    word: Command::MARK,
    errno: Errno::EINVAL,
};

/// The answers to one command that starts a transfer, the first of the descriptor.
fn answers() -> Vec<u8> {
    let mut bytes = bytes_of(&[MARK, MARK, Record::Status(Status::idle()), MARK]);
    bytes.extend(bytes_of(&[Record::Started(1)]));
    bytes.extend(done(1, 1));
    bytes
}

/// The record of an end, which cannot be constructed here. `ended`: 1, by its size; 3,
/// cancelled.
fn done(transfer: u32, ended: u32) -> Vec<u8> {
    let mut done = vec![0x520d_0002_u32, transfer, ended];
    done.resize(14, 0);
    done.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The transfers of other threads, one before and one behind it.
#[test]
fn the_ends_of_other_transfers_do_not_count() {
    let mut status = Status::idle();
    (status.transfer, status.queued, status.commanded) = (3, 1, 4);
    let early = Record::Status(Status::idle());
    let mut sent = bytes_of(&[MARK, early, MARK, Record::Status(status), MARK]);
    for (transfer, ended) in [(4, 3), (5, 1), (6, 3)] {
        sent.extend(done(transfer, ended));
    }
    let (ours, mut service) = UnixStream::pair().unwrap();
    service.write_all(&sent).unwrap();
    let mut command = Vec::new();
    Command::Write(6).encode(&mut command);
    assert!(carry_out(ours.as_fd(), &command, Origin::here()).is_ok());
}

/// Transfers between the one that runs and those that wait were cancelled.
#[test]
fn the_number_of_a_transfer_is_that_of_its_command() {
    let mut status = Status::idle();
    (status.transfer, status.queued, status.commanded) = (1, 1, 5);
    let mut sent = bytes_of(&[MARK, MARK, Record::Status(status), MARK]);
    for (transfer, ended) in [(5, 1), (6, 3)] {
        sent.extend(done(transfer, ended));
    }
    let (ours, mut service) = UnixStream::pair().unwrap();
    service.write_all(&sent).unwrap();
    let mut command = Vec::new();
    Command::Write(6).encode(&mut command);
    let failed = carry_out(ours.as_fd(), &command, Origin::here()).unwrap_err();
    assert_eq!(failed.errno, Errno::ECANCELED);
}

/// Another thread commands a transfer, and cancels both. The waiting one ends first.
#[test]
fn the_end_of_a_later_transfer_does_not_count() {
    let mut status = Status::idle();
    status.commanded = 5;
    let known = Record::Status(status);
    // A limit forbids the status.
    let unknown = Record::refused(Command::Status, Errno::EPERM);
    for status in [known, unknown] {
        let mut sent = bytes_of(&[MARK, MARK, status, MARK, Record::Started(6)]);
        for (transfer, ended) in [(7, 3), (6, 1)] {
            sent.extend(done(transfer, ended));
        }
        let (ours, mut service) = UnixStream::pair().unwrap();
        service.write_all(&sent).unwrap();
        let mut command = Vec::new();
        Command::Write(6).encode(&mut command);
        let result = carry_out(ours.as_fd(), &command, Origin::here());
        assert_eq!(result.err().map(|error| error.errno), None);
    }
}

/// Another thread writes the same commands, before and behind those of this call.
#[test]
fn refusals_of_commands_of_other_threads_do_not_count() {
    let refused = |command| Record::refused(command, Errno::EPERM);
    let status = Record::Status(Status::idle());
    for (command, before) in [(Command::Pause, vec![]), (Command::Write(6), vec![status])] {
        let theirs = [Command::Pause, Command::Write(6)].map(refused);
        for (own, errno) in [(None, None), (Some(refused(command)), Some(Errno::EPERM))] {
            let own: Vec<Record> = before.iter().copied().chain(own).collect();
            let all = [&[MARK], &theirs[..], &[MARK], &own, &[MARK], &theirs].concat();
            let mut sent = bytes_of(&all);
            sent.extend(done(1, 1));
            let (ours, mut service) = UnixStream::pair().unwrap();
            service.write_all(&sent).unwrap();
            let mut bytes = Vec::new();
            command.encode(&mut bytes);
            let result = carry_out(ours.as_fd(), &bytes, Origin::here());
            assert_eq!(result.err().map(|error| error.errno), errno, "{command:?}");
        }
    }
}

#[test]
fn records_behind_the_awaited_one_stay_in_the_socket() {
    let (ours, mut service) = UnixStream::pair().unwrap();
    let mut later = bytes_of(&[Record::Started(2), Record::Status(Status::idle())]);
    // The service sends the rest of this record later.
    later.truncate(later.len() - 6);
    let mut sent = answers();
    sent.extend(&later);
    service.write_all(&sent).unwrap();
    let mut command = Vec::new();
    Command::Write(6).encode(&mut command);
    assert!(carry_out(ours.as_fd(), &command, Origin::here()).is_ok());
    service.shutdown(std::net::Shutdown::Write).unwrap();
    let mut left = Vec::new();
    (&ours).read_to_end(&mut left).unwrap();
    assert_eq!(left, later);
}

/// Another thread of the program closes the descriptor and opens a file under its number, just
/// after the call has duplicated it.
#[test]
fn a_number_that_is_reused_meanwhile_is_not_used() {
    use testkit::refuse::STAT;
    let (ours, mut service) = UnixStream::pair().unwrap();
    service.write_all(&answers()).unwrap();
    let (other, _writer) = std::io::pipe().unwrap();
    let mut command = Vec::new();
    Command::Write(6).encode(&mut command);
    let (mut result, mut calls) = (None, 0);
    let body = || {
        result =
            Some(carry_out(ours.as_fd(), &command, Origin::here()).map_err(|error| error.errno))
    };
    let made = testkit::midst::at_each(&STAT.concat(), body, || {
        if calls == 0 {
            testkit::child::replace(ours.as_fd(), other.as_fd());
        }
        calls += 1;
    });
    match made {
        None => testkit::skip::here("no seccomp_unotify(2) here"),
        Some(made) => assert!(made > 0, "no call was held"),
    }
    assert!(matches!(result, None | Some(Ok(()))), "{result:?}");
}

#[test]
fn a_socket_that_ends_within_a_record_is_reported() {
    let (ours, mut service) = UnixStream::pair().unwrap();
    let mut sent = answers();
    sent.truncate(sent.len() - 6);
    service.write_all(&sent).unwrap();
    service.shutdown(std::net::Shutdown::Write).unwrap();
    let mut command = Vec::new();
    Command::Write(6).encode(&mut command);
    let failed = carry_out(ours.as_fd(), &command, Origin::here()).unwrap_err();
    assert_eq!(failed.errno, Errno::EPIPE);
}

/// A filter refuses `sendto(2)` and `recvfrom(2)`.
#[test]
fn the_next_call_is_made_where_one_is_refused() {
    use testkit::refuse::{apart, refuse};
    let (one, all) = ([libc::SYS_sendto, libc::SYS_recvfrom], libc::SYS_sendmsg);
    for errno in [libc::EPERM, libc::ENOSYS] {
        let wait = |calls: &[libc::c_long]| {
            let (ours, mut service) = UnixStream::pair().unwrap();
            service.write_all(&answers()).unwrap();
            let mut command = Vec::new();
            Command::Write(6).encode(&mut command);
            apart(|| {
                refuse(calls, errno);
                carry_out(ours.as_fd(), &command, Origin::here()).map_err(|error| error.errno)
            })
        };
        assert_eq!(wait(&one), Ok(()));
        assert_eq!(
            wait(&[&one[..], &[all]].concat()),
            Err(Errno::from_raw(errno))
        );
    }
}

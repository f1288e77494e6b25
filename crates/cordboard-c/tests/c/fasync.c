/* The paper's interface: FASYNC, SIGIO, F_SETSIG. */
#include "signals.h"

/* Waits until this many bytes are written. */
static void until_written(cord_transfer t, uint64_t bytes)
{
    struct cord_status status = CORD_STATUS_INIT;
    do {
        CHECK(cord_get_status(t, &status) == 0);
        sched_yield();
    } while (status.written < bytes);
}

/* One SIGIO to this process, after the flag is restored. */
static void plain(void)
{
    struct channel a = make_pipe();
    int file = make_file("");
    CHECK(fcntl(a.out, F_SETOWN, getpid()) == 0);
    set_fasync(a.out);
    CHECK(cord_splice(a.out, file, CORD_EOF) == 0);
    cord_transfer t = cord_last(a.out);
    CHECK(t > 0 && cord_last(file) == t);
    CHECK(!has_fasync(a.out));
    CHECK((cord_get_flags(a.out) & O_ASYNC) != 0);
    /* The kernel would signal each of these writes. */
    for (int i = 1; i <= 100; i++) {
        put(a.in, "abc");
        until_written(t, (uint64_t)i * 3);
    }
    CHECK(none_pending());
    close(a.in);
    siginfo_t info = next_signal();
    CHECK(info.si_signo == SIGIO && info.si_code == SI_SIGIO);
    CHECK(info.si_fd == a.out && info.si_band == POLLIN && info.si_errno == 0);
    CHECK(has_fasync(a.out));
    struct cord_report report = CORD_REPORT_INIT;
    CHECK(cord_try(t, &report) == 1 && report.written == 300);
    CHECK(cord_last(a.out) == t);
    CHECK(cord_close(t) == 0);
    FAILS(ENOENT, cord_last(a.out));
    CHECK(none_pending());
    close(a.out);
    close(file);
}

/* The sink has the flag, and another signal. */
static void over_a_socket(void)
{
    struct channel a = make_pipe();
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    CHECK(fcntl(ends[0], F_SETSIG, SIGRTMIN + 1) == 0);
    CHECK(fcntl(ends[0], F_SETOWN, getpid()) == 0);
    set_fasync(ends[0]);
    CHECK(cord_splice(a.out, ends[0], 6) == 0);
    put(a.in, "abc");
    expect(ends[1], "abc");
    CHECK(none_pending());
    put(a.in, "def");
    siginfo_t info = next_signal();
    CHECK(info.si_signo == SIGRTMIN + 1 && info.si_code == SI_SIGIO);
    CHECK(info.si_fd == ends[0] && info.si_band == POLLOUT);
    CHECK(info.si_errno == 0 && none_pending());
    expect(ends[1], "def");
    close(ends[0]);
    close(ends[1]);
    close(a.in);
    close(a.out);
}

/* A transfer that fails. */
static void broken_sink(void)
{
    struct channel a = make_pipe(), b = make_pipe();
    CHECK(fcntl(b.in, F_SETSIG, SIGRTMIN) == 0);
    CHECK(fcntl(b.in, F_SETOWN, getpid()) == 0);
    set_fasync(b.in);
    CHECK(cord_splice(a.out, b.in, CORD_EOF) == 0);
    put(a.in, "abc");
    expect(b.out, "abc");
    close(b.out);
    put(a.in, "def");
    siginfo_t info = next_signal();
    CHECK(info.si_signo == SIGRTMIN && info.si_fd == b.in);
    CHECK(info.si_band == (POLLOUT | POLLERR) && info.si_errno == EPIPE);
    struct cord_report report = CORD_REPORT_INIT;
    CHECK(cord_wait(cord_last(b.in), &report) == 0);
    CHECK(report.failed == CORD_SINK && report.error == EPIPE);
    CHECK(report.written == 3 && has_fasync(b.in));
    CHECK(none_pending());
    close(b.in);
    close(a.in);
    close(a.out);
}

/* A refusal is immediate, and does not change the flag. */
static void refused(void)
{
    struct channel a = make_pipe();
    set_fasync(a.out);
    FAILS(EBADF, cord_splice(a.out, a.out, CORD_EOF));
    struct cord_report report = CORD_REPORT_INIT;
    CHECK(cord_try(CORD_LAST, &report) == 1);
    CHECK(report.failed == CORD_SINK && report.error == EBADF);
    FAILS(EBADF, cord_splice(a.out, -1, CORD_EOF));
    FAILS(EBADF, cord_splice(-1, a.in, CORD_EOF));
    CHECK(has_fasync(a.out));
    FAILS(ENOENT, cord_last(a.out));
    FAILS(EBADF, cord_last(-1));
    CHECK(none_pending());
    close(a.in);
    close(a.out);
}

/* Two transfers on one descriptor: the last one restores the flag. */
static void shared(void)
{
    struct channel a = make_pipe(), b = make_pipe(), sink = make_pipe();
    set_fasync(sink.in);
    CHECK(fcntl(sink.in, F_SETSIG, SIGRTMIN) == 0);
    CHECK(cord_splice(a.out, sink.in, CORD_EOF) == 0);
    /* The flag is suspended, and the second splice is asynchronous
     * nevertheless. */
    CHECK(!has_fasync(sink.in));
    CHECK(cord_splice(b.out, sink.in, CORD_EOF) == 0);
    cord_transfer first = cord_last(a.out), second = cord_last(b.out);
    CHECK(first != second && cord_last(sink.in) == second);
    put(a.in, "abc");
    expect(sink.out, "abc");
    close(a.in);
    next_signal();
    CHECK(!has_fasync(sink.in) && none_pending());
    CHECK(cord_try(first, NULL) == 1 && cord_try(second, NULL) == 0);
    put(b.in, "def");
    expect(sink.out, "def");
    close(b.in);
    next_signal();
    CHECK(has_fasync(sink.in) && none_pending());
    close(a.out);
    close(b.out);
    close(sink.in);
    close(sink.out);
}

/* The program clears the flag during the transfer: it stays cleared. */
static void taken_off(void)
{
    struct channel a = make_pipe(), b = make_pipe();
    set_fasync(a.out);
    CHECK(cord_splice(a.out, b.in, 3) == 0);
    CHECK(cord_set_flags(a.out, 0) == 0);
    CHECK((cord_get_flags(a.out) & O_ASYNC) == 0);
    put(a.in, "abc");
    next_signal();
    CHECK(!has_fasync(a.out));
    put(a.in, "def");
    CHECK(cord_splice(a.out, b.in, 3) == 3);
    expect(b.out, "abcdef");
    CHECK(none_pending());
    close(a.in);
    close(a.out);
    close(b.in);
    close(b.out);
}

/* The same for a regular file, whose flag is emulated. If the program sets
 * the flag again before the end, it stays set. */
static void taken_off_a_file(void)
{
    for (int again = 0; again <= 1; again++) {
        struct channel a = make_pipe();
        int to = make_file("");
        CHECK(cord_set_flags(to, O_ASYNC) == 0);
        CHECK(cord_splice(a.out, to, 3) == 0);
        CHECK(cord_set_flags(to, 0) == 0);
        CHECK((cord_get_flags(to) & O_ASYNC) == 0);
        if (again)
            CHECK(cord_set_flags(to, O_ASYNC) == 0);
        put(a.in, "abc");
        CHECK(next_signal().si_fd == to);
        CHECK(((cord_get_flags(to) & O_ASYNC) != 0) == again);
        CHECK(fcntl(to, F_GETSIG) == (again ? SIGIO : 0));
        put(a.in, "def");
        CHECK(cord_splice(a.out, to, 3) == (again ? 0 : 3));
        if (again)
            CHECK(next_signal().si_fd == to);
        CHECK(lseek(to, 0, SEEK_CUR) == 6 && none_pending());
        close(a.in);
        close(a.out);
        close(to);
    }
}

/* Regular files do not keep FASYNC; cord_set_flags emulates it. */
static void files(void)
{
    int from = make_file("abc"), to = make_file("");
    char name[32];
    snprintf(name, sizeof name, "/proc/self/fd/%d", from);
    CHECK(fcntl(from, F_SETFL, O_ASYNC) == 0 && !has_fasync(from));
    CHECK(cord_set_flags(from, O_ASYNC) == 0 && !has_fasync(from));
    CHECK((cord_get_flags(from) & O_ASYNC) != 0);
    CHECK(cord_splice(from, to, CORD_EOF) == 0);
    siginfo_t info = next_signal();
    CHECK(info.si_signo == SIGIO && info.si_fd == from);
    struct cord_report report = CORD_REPORT_INIT;
    CHECK(cord_try(cord_last(from), &report) == 1 && report.written == 3);
    /* The flag belongs to the open file description: a duplicate has it, ... */
    int copy = dup(from);
    CHECK((cord_get_flags(copy) & O_ASYNC) != 0);
    close(copy);
    /* ... the same file, opened again, does not. */
    int again = open(name, O_RDONLY);
    CHECK(again >= 0 && (cord_get_flags(again) & O_ASYNC) == 0);
    CHECK(cord_splice(again, to, CORD_EOF) == 3);
    close(again);
    CHECK(cord_set_flags(from, 0) == 0);
    CHECK((cord_get_flags(from) & O_ASYNC) == 0 && fcntl(from, F_GETSIG) == 0);
    CHECK(lseek(from, 0, SEEK_SET) == 0);
    CHECK(cord_splice(from, to, CORD_EOF) == 3);
    CHECK(none_pending());
    FAILS(EBADF, cord_set_flags(-1, O_ASYNC));
    FAILS(EBADF, cord_get_flags(12345));
    close(from);
    close(to);
}

/* A file that is opened twice: each description has its own flag. */
static void one_file_twice(int signal)
{
    int to = make_file(""), first = make_file("abc");
    char name[32];
    snprintf(name, sizeof name, "/proc/self/fd/%d", first);
    int second = open(name, O_RDONLY), third = open(name, O_RDONLY);
    CHECK(second >= 0 && third >= 0);
    CHECK(fcntl(first, F_SETSIG, signal) == 0);
    CHECK(fcntl(second, F_SETSIG, signal) == 0);
    CHECK(cord_set_flags(first, O_ASYNC) == 0);
    CHECK(cord_set_flags(second, O_ASYNC) == 0);
    /* A signal for another purpose, such as a lease, does not count as the
     * flag. */
    CHECK(fcntl(third, F_SETSIG, SIGRTMIN + 1) == 0);
    CHECK((cord_get_flags(third) & O_ASYNC) == 0);
    CHECK(cord_splice(third, to, CORD_EOF) == 3);
    CHECK(cord_set_flags(first, 0) == 0);
    CHECK((cord_get_flags(first) & O_ASYNC) == 0);
    CHECK(cord_splice(first, to, CORD_EOF) == 3);
    CHECK((cord_get_flags(second) & O_ASYNC) != 0);
    CHECK(cord_splice(second, to, CORD_EOF) == 0);
    siginfo_t info = next_signal();
    CHECK(info.si_fd == second && info.si_signo == (signal ? signal : SIGIO));
    /* A duplicate has the flag, and keeps it after the number is closed. */
    int copy = dup(second);
    CHECK((cord_get_flags(copy) & O_ASYNC) != 0);
    close(second);
    CHECK(signal || (cord_get_flags(copy) & O_ASYNC) != 0);
    CHECK((cord_get_flags(third) & O_ASYNC) == 0);
    CHECK(cord_set_flags(copy, 0) == 0);
    CHECK((cord_get_flags(copy) & O_ASYNC) == 0 && none_pending());
    close(copy);
    close(third);
    close(first);
    close(to);
}

/* A query closes no copy of the file: the close of any drops the record locks
 * of the process, and may report an error of the file system once. */
static void locks_are_kept(void)
{
    int first = make_file("abc");
    char name[32];
    snprintf(name, sizeof name, "/proc/self/fd/%d", first);
    int second = open(name, O_RDWR | O_CLOEXEC);
    CHECK(second >= 0);
    struct flock lock;
    memset(&lock, 0, sizeof lock);
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    CHECK(fcntl(first, F_SETLK, &lock) == 0);
    CHECK(fcntl(second, F_SETSIG, SIGRTMIN + 1) == 0);
    CHECK(cord_set_flags(first, O_ASYNC) == 0);
    CHECK((cord_get_flags(first) & O_ASYNC) != 0);
    CHECK((cord_get_flags(second) & O_ASYNC) == 0);
    CHECK(cord_set_flags(second, 0) == 0);
    /* A lock of an open description conflicts with those of its process. */
    CHECK(fcntl(second, F_OFD_GETLK, &lock) == 0);
    CHECK(lock.l_type == F_WRLCK && lock.l_pid == getpid());
    close(first);
    close(second);
}

/* Closed and opened again under the same number: the flag is cleared. */
static void closed_and_opened_again(void)
{
    char name[] = "/tmp/cordboard-test-XXXXXX";
    int number = mkostemp(name, O_CLOEXEC), to = make_file("");
    CHECK(cord_set_flags(number, O_ASYNC) == 0);
    close(number);
    CHECK(open(name, O_RDWR | O_CLOEXEC) == number);
    CHECK(unlink(name) == 0);
    CHECK((cord_get_flags(number) & O_ASYNC) == 0);
    CHECK(fcntl(number, F_SETSIG, SIGRTMIN) == 0);
    CHECK((cord_get_flags(number) & O_ASYNC) == 0);
    put(number, "abc");
    CHECK(lseek(number, 0, SEEK_SET) == 0);
    CHECK(cord_splice(number, to, CORD_EOF) == 3);
    CHECK(none_pending());
    close(number);
    close(to);
}

/* Each splice starts while the previous one restores the flag. */
static void in_quick_succession(void)
{
    struct channel from = make_pipe(), to = make_pipe();
    char byte;
    set_fasync(from.out);
    for (int i = 0; i < 1000; i++) {
        put(from.in, "x");
        CHECK(cord_splice(from.out, to.in, 1) == 0);
        CHECK(read(to.out, &byte, 1) == 1 && byte == 'x');
    }
    CHECK(cord_wait(cord_last(from.out), NULL) == 0);
    CHECK(next_signal().si_signo == SIGIO);
}

int main(void)
{
    watchdog();
    listen_to_signals();
    /* The first test: it requires that no number has had a splice before. */
    refused();
    plain();
    over_a_socket();
    broken_sink();
    shared();
    taken_off();
    taken_off_a_file();
    files();
    one_file_twice(0);
    one_file_twice(SIGRTMIN);
    locks_are_kept();
    closed_and_opened_again();
    /* The last test: it leaves pending signals. */
    in_quick_succession();
    return 0;
}

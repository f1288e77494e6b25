/* A child of fork(2): the parent's handles are EBADF, everything else works. */
#include "check.h"

#include <pthread.h>
#include <sys/stat.h>

/* The number of descriptors that are ends of this pipe. */
static int ends_of(int pipe)
{
    struct stat it, other;
    CHECK(fstat(pipe, &it) == 0);
    int count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += fstat(fd, &other) == 0 && other.st_dev == it.st_dev &&
                 other.st_ino == it.st_ino;
    return count;
}

static void child(cord_transfer parents, struct channel a, struct channel b, int marked)
{
    watchdog();
    /* The first call closes the duplicates of the parent's transfer. */
    CHECK(ends_of(a.in) == 3 && ends_of(b.in) == 3);
    FAILS(ENOENT, cord_last(a.out));
    CHECK(ends_of(a.in) == 2 && ends_of(b.in) == 2);
    /* An emulated flag belongs to the description, which the child shares. */
    CHECK((cord_get_flags(marked) & O_ASYNC) != 0);
    CHECK((cord_get_flags(b.in) & O_ASYNC) == 0);
    struct cord_report report = CORD_REPORT_INIT;
    FAILS(EBADF, cord_try(parents, &report));
    FAILS(EBADF, cord_wait(parents, &report));
    FAILS(EBADF, cord_close(parents));
    int from = make_file("sync, "), other = make_file("async");
    CHECK(cord_splice(from, b.in, CORD_EOF) == 6);
    struct cord_request request = CORD_REQUEST_INIT(other, b.in);
    cord_transfer t = cord_start(&request);
    CHECK(t > parents);
    CHECK(cord_wait(t, &report) == 0);
    CHECK(report.written == 5 && report.error == 0);
    CHECK(cord_close(t) == 0);
    close(from);
    close(other);
}

/* Closes the duplicates of a splice with FASYNC: those of the transfer, and the one that keeps
 * the description of the sink. */
static void child_of_fasync(struct channel a, struct channel b)
{
    watchdog();
    CHECK(ends_of(a.in) == 3 && ends_of(b.in) == 4);
    FAILS(ENOENT, cord_last(a.out));
    CHECK(ends_of(a.in) == 2 && ends_of(b.in) == 2);
}

static void with_fasync(void)
{
    struct channel a = make_pipe(), b = make_pipe();
    CHECK(signal(SIGIO, SIG_IGN) != SIG_ERR);
    CHECK(fcntl(b.in, F_SETFL, O_ASYNC) == 0);
    CHECK(cord_splice(a.out, b.in, CORD_EOF) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        child_of_fasync(a, b);
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    /* The parent's transfer still restores the flag. */
    cord_transfer t = cord_last(a.out);
    CHECK(t > 0);
    put(a.in, "abc");
    close(a.in);
    CHECK(cord_wait(t, NULL) == 0);
    CHECK((fcntl(b.in, F_GETFL) & O_ASYNC) != 0);
    expect(b.out, "abc");
    CHECK(cord_close(t) == 0);
    close(a.out);
    close(b.in);
    close(b.out);
}

static pid_t forked;
/* The child closes all descriptors: it can take no record of the parent. */
static int closes_all;

static void fork_here(int signal)
{
    (void)signal;
    pid_t child = fork();
    if (child == 0) {
        watchdog();
        for (int fd = 3; closes_all && fd < 256; fd++)
            close(fd);
    }
    __atomic_store_n(&forked, child, __ATOMIC_RELEASE);
}

struct waiting {
    pthread_t thread;
    cord_transfer transfer;
    int source, sink;
};

/* Signals the first thread once that thread sleeps, which it does only in
 * cord_wait or cord_cue_write. The child that the handler forks must not sleep
 * there. */
static void *when_it_sleeps(void *user)
{
    struct waiting *waiting = (struct waiting *)user;
    char name[64], line[512];
    if (waiting->transfer <= 0) {
        /* The transfer of cord_cue_write runs. */
        put(waiting->source, "a");
        expect(waiting->sink, "a");
    }
    snprintf(name, sizeof name, "/proc/self/task/%d/stat", (int)getpid());
    do {
        sched_yield();
        FILE *file = fopen(name, "r");
        CHECK(file && fgets(line, sizeof line, file));
        fclose(file);
    } while (!strstr(line, ") S "));
    __atomic_store_n(&forked, -1, __ATOMIC_RELEASE);
    CHECK(pthread_kill(waiting->thread, SIGUSR1) == 0);
    pid_t child;
    while ((child = __atomic_load_n(&forked, __ATOMIC_ACQUIRE)) == -1)
        sched_yield();
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    if (waiting->transfer > 0)
        CHECK(cord_cancel(waiting->transfer) == 0);
    else
        put(waiting->source, "bc");
    return NULL;
}

static void set_handler(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = fork_here;
    action.sa_flags = SA_RESTART;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
}

/* A signal handler forks during cord_wait. In the child the call fails at
 * once. */
static void in_a_handler(cord_transfer begin(const struct cord_request *))
{
    set_handler();
    struct channel a = make_pipe(), b = make_pipe();
    struct cord_request request = CORD_REQUEST_INIT(a.out, b.in);
    struct waiting here = {pthread_self(), begin(&request), -1, -1};
    CHECK(here.transfer > 0);
    pthread_t other;
    CHECK(pthread_create(&other, NULL, when_it_sleeps, &here) == 0);
    struct cord_report report = CORD_REPORT_INIT;
    int waited = cord_wait(here.transfer, &report), error = errno;
    if (__atomic_load_n(&forked, __ATOMIC_ACQUIRE) == 0)
        _exit(waited == -1 && error == EBADF ? 0 : 1);
    CHECK(waited == 0 && report.ended == CORD_ENDED_CANCELLED);
    CHECK(pthread_join(other, NULL) == 0);
    CHECK(cord_close(here.transfer) == 0);
    close(a.out);
    close(a.in);
    close(b.out);
    close(b.in);
}

/* The same during cord_cue_write. The child notices that it is one before it
 * finds the descriptor closed (EPIPE). A record that arrives when the signal
 * does stays with the parent. */
static void in_a_handler_of_cue_write(void)
{
    set_handler();
    closes_all = 1;
    struct channel a = make_pipe(), b = make_pipe();
    int c = cord_cue(a.out, b.in);
    CHECK(c >= 0);
    struct waiting here = {pthread_self(), 0, a.in, b.out};
    pthread_t other;
    CHECK(pthread_create(&other, NULL, when_it_sleeps, &here) == 0);
    uint32_t go[] = {CORD_CUE_WRITE, 3};
    ssize_t written = cord_cue_write(c, go, sizeof go);
    int error = errno;
    if (__atomic_load_n(&forked, __ATOMIC_ACQUIRE) == 0)
        _exit(written == -1 && error == EBADF ? 0 : 1);
    CHECK(written == (ssize_t)sizeof go);
    CHECK(pthread_join(other, NULL) == 0);
    closes_all = 0;
    expect(b.out, "bc");
    close(c);
    close(a.out);
    close(a.in);
    close(b.out);
    close(b.in);
}

static void wait_in_it(cord_transfer t, const struct cord_report *report, void *user)
{
    (void)report;
    FAILS(EDEADLK, cord_wait(t, NULL));
    *(pid_t *)user = 0;
}

/* A child that a callback forks can wait for its own transfers. */
static void fork_in_it(cord_transfer t, const struct cord_report *report, void *user)
{
    CHECK(report->written == 3);
    FAILS(EDEADLK, cord_wait(t, NULL));
    pid_t child = fork();
    CHECK(child >= 0);
    *(pid_t *)user = child;
    if (child > 0)
        return;
    watchdog();
    FAILS(EBADF, cord_wait(t, NULL));
    int from = make_file("child's"), to = make_file("");
    struct cord_request request = CORD_REQUEST_INIT(from, to);
    cord_transfer own = cord_start(&request);
    CHECK(own > 0);
    struct cord_report ends = CORD_REPORT_INIT;
    CHECK(cord_wait(own, &ends) == 0);
    CHECK(ends.written == 7 && ends.error == 0);
    char line[512];
    CHECK(cord_json(own, line, sizeof line) > 0);
    FAILS(ENODATA, cord_stranded(own, line, sizeof line));
    /* A callback in the child cannot wait. */
    pid_t unset = -1;
    CHECK(cord_on_end(own, wait_in_it, &unset) == 0);
    CHECK(unset == 0);
    CHECK(cord_wait(own, NULL) == 0);
    CHECK(cord_close(own) == 0);
    _exit(0);
}

static void in_a_callback(void)
{
    struct channel a = make_pipe();
    int to = make_file("");
    struct cord_request request = CORD_REQUEST_INIT(a.out, to);
    cord_transfer t = cord_start(&request);
    CHECK(t > 0);
    pid_t child = 0;
    CHECK(cord_on_end(t, fork_in_it, &child) == 0);
    put(a.in, "abc");
    close(a.in);
    CHECK(cord_wait(t, NULL) == 0);
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(cord_close(t) == 0);
    close(a.out);
    close(to);
}

static void fork_and_return(cord_transfer t, const struct cord_report *report, void *user)
{
    (void)t;
    (void)report;
    pid_t child = fork();
    if (child > 0)
        *(pid_t *)user = child;
}

/* The child would run the parent's other transfers. */
static void returning_from_a_callback(void)
{
    struct channel a = make_pipe(), b = make_pipe(), c = make_pipe(), d = make_pipe();
    struct cord_request other = CORD_REQUEST_INIT(c.out, d.in);
    cord_transfer o = cord_start(&other);
    struct cord_request request = CORD_REQUEST_INIT(a.out, b.in);
    cord_transfer t = cord_start(&request);
    CHECK(o > 0 && t > 0);
    pid_t child = 0;
    CHECK(cord_on_end(t, fork_and_return, &child) == 0);
    close(a.in);
    CHECK(cord_wait(t, NULL) == 0);
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    put(c.in, "abc");
    close(c.in);
    struct cord_report report = CORD_REPORT_INIT;
    CHECK(cord_wait(o, &report) == 0 && report.written == 3);
    expect(d.out, "abc");
    CHECK(cord_close(t) == 0 && cord_close(o) == 0);
    int left[] = {a.out, b.in, b.out, c.out, d.in, d.out};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++)
        close(left[i]);
}

/* The report and the stranded bytes of a synchronous transfer stay with the parent. */
static void after_a_synchronous_transfer(void)
{
    struct channel a = make_pipe();
    put(a.in, "abc");
    close(a.in);
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    struct cord_request request = CORD_REQUEST_INIT(a.out, full);
    request.paths = "read/write";
    FAILS(ENOSPC, cord_run(&request, NULL));
    pid_t pid = fork();
    CHECK(pid >= 0);
    char bytes[8];
    if (pid == 0) {
        watchdog();
        FAILS(EBADF, cord_try(CORD_LAST, NULL));
        FAILS(EBADF, cord_stranded(CORD_LAST, bytes, sizeof bytes));
        FAILS(EBADF, cord_close(CORD_LAST));
        int from = make_file("child's"), to = make_file("");
        CHECK(cord_splice(from, to, CORD_EOF) == 7);
        struct cord_report report = CORD_REPORT_INIT;
        CHECK(cord_try(CORD_LAST, &report) == 1 && report.written == 7);
        CHECK(cord_close(CORD_LAST) == 0);
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(cord_stranded(CORD_LAST, bytes, sizeof bytes) == 3 && memcmp(bytes, "abc", 3) == 0);
    CHECK(cord_close(CORD_LAST) == 0);
    close(a.out);
    close(full);
}

int main(void)
{
    watchdog();
    struct channel a = make_pipe(), b = make_pipe();
    struct cord_request request = CORD_REQUEST_INIT(a.out, b.in);
    cord_transfer t = cord_start(&request);
    CHECK(t > 0);
    int marked = make_file("");
    CHECK(cord_set_flags(marked, O_ASYNC) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        child(t, a, b, marked);
        /* _exit(2) does not run the parent's atexit(3) functions. */
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    expect(b.out, "sync, async");
    /* The parent's transfer is not affected. */
    put(a.in, "abc");
    close(a.in);
    struct cord_report report = CORD_REPORT_INIT;
    CHECK(cord_wait(t, &report) == 0);
    CHECK(report.written == 3 && report.ended == CORD_ENDED_EOF);
    expect(b.out, "abc");
    CHECK(cord_close(t) == 0);
    close(a.out);
    close(b.in);
    close(b.out);
    close(marked);
    with_fasync();
    in_a_handler(cord_start);
    in_a_handler(cord_open);
    in_a_handler_of_cue_write();
    in_a_callback();
    returning_from_a_callback();
    after_a_synchronous_transfer();
    return 0;
}

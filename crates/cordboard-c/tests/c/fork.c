/* A child of fork: the parent's handles are not its own, all else is. */
#include "check.h"

static void child(cord_transfer parents, struct channel b, int marked)
{
    watchdog();
    /* The flag of a file goes with its description. */
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
        child(t, b, marked);
        /* Without the parent's handlers at exit. */
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    expect(b.out, "sync, async");
    /* The parent's goes on as if nothing had been. */
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
    return 0;
}

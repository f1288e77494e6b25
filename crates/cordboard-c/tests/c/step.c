/* Transfers that the program's own event loop drives. */
#include "check.h"

#include <sys/epoll.h>

/* Whether the descriptor says that a step is possible. */
static int is_due(cord_transfer t)
{
    struct pollfd due = {cord_fd(t), POLLIN, 0};
    CHECK(due.fd >= 0);
    return poll(&due, 1, 0) == 1;
}

/* Takes steps as long as they are possible. Returns 1 at the end. */
static int go(cord_transfer t, struct cord_report *report)
{
    while (is_due(t)) {
        int ended = cord_step(t, report);
        CHECK(ended >= 0);
        if (ended)
            return 1;
    }
    return 0;
}

static void the_loop_waits(void)
{
    struct channel a = make_pipe(), b = make_pipe();
    struct cord_request request = CORD_REQUEST_INIT(a.out, b.in);
    cord_transfer t = cord_open(&request);
    CHECK(t > 0);
    /* The transfer keeps duplicates. */
    close(a.out);
    close(b.in);
    struct cord_report report = CORD_REPORT_INIT;
    for (int i = 0; i < 3; i++) {
        CHECK(go(t, &report) == 0);
        CHECK(!is_due(t));
        /* A step too many does nothing. */
        CHECK(cord_step(t, NULL) == 0 && cord_try(t, &report) == 0);
        put(a.in, "abc");
        CHECK(is_due(t) && go(t, &report) == 0);
        expect(b.out, "abc");
    }
    FAILS(EBUSY, cord_json(t, NULL, 0));
    struct cord_status status = CORD_STATUS_INIT;
    CHECK(cord_get_status(t, &status) == 0);
    CHECK(status.written == 9 && !status.ended && status.path[0]);
    close(a.in);
    CHECK(go(t, &report) == 1);
    CHECK(report.written == 9 && report.ended == CORD_ENDED_EOF);
    CHECK(cord_step(t, NULL) == 1 && cord_try(t, &report) == 1 && is_due(t));
    CHECK(cord_wait(t, &report) == 0 && report.written == 9);
    CHECK(cord_get_status(t, &status) == 0 && status.ended && status.written == 9);
    char line[512];
    CHECK(cord_json(t, line, sizeof line) > 0 && strstr(line, "\"ended\":\"eof\""));
    FAILS(ENODATA, cord_stranded(t, line, sizeof line));
    CHECK(cord_close(t) == 0);
    CHECK(read(b.out, line, 1) == 0);
    close(b.out);
}

/* One loop drives many transfers. */
static void many(void)
{
    enum { COUNT = 100 };
    static struct channel a[COUNT], b[COUNT];
    static cord_transfer t[COUNT];
    int loop = epoll_create1(EPOLL_CLOEXEC);
    CHECK(loop >= 0);
    for (int i = 0; i < COUNT; i++) {
        a[i] = make_pipe();
        b[i] = make_pipe();
        struct cord_request request = CORD_REQUEST_INIT(a[i].out, b[i].in);
        t[i] = cord_open(&request);
        CHECK(t[i] > 0);
        struct epoll_event event;
        memset(&event, 0, sizeof event);
        event.events = EPOLLIN;
        event.data.u32 = (uint32_t)i;
        CHECK(epoll_ctl(loop, EPOLL_CTL_ADD, cord_fd(t[i]), &event) == 0);
        put(a[i].in, "message");
        close(a[i].in);
    }
    int finished = 0;
    while (finished < COUNT) {
        struct epoll_event event;
        CHECK(epoll_wait(loop, &event, 1, -1) == 1);
        int i = (int)event.data.u32;
        struct cord_report report = CORD_REPORT_INIT;
        int done = cord_step(t[i], &report);
        CHECK(done >= 0);
        if (!done)
            continue;
        CHECK(report.written == 7 && report.ended == CORD_ENDED_EOF);
        CHECK(cord_close(t[i]) == 0);
        expect(b[i].out, "message");
        close(a[i].out);
        close(b[i].in);
        close(b[i].out);
        finished++;
    }
    close(loop);
}

static int ended;

static void on_end(cord_transfer t, const struct cord_report *report, void *user)
{
    ended++;
    struct cord_report again = CORD_REPORT_INIT;
    /* The handle may be closed already. */
    if (cord_try(t, &again) == 1) {
        CHECK(again.written == report->written);
        FAILS(EDEADLK, cord_wait(t, NULL));
    }
    *(uint64_t *)user += report->written;
}

/* cord_wait takes the steps; callbacks run in it. SIGPIPE kills no process. */
static void waits_and_callbacks(void)
{
    struct channel a = make_pipe(), b = make_pipe();
    struct cord_request request = CORD_REQUEST_INIT(a.out, b.in);
    request.size = 2;
    cord_transfer t = cord_open(&request);
    uint64_t sum = 0;
    CHECK(cord_on_end(t, on_end, &sum) == 0);
    put(a.in, "abc");
    struct cord_report report = CORD_REPORT_INIT;
    CHECK(cord_wait(t, &report) == 0 && report.ended == CORD_ENDED_SIZE);
    CHECK(sum == 2 && cord_on_end(t, on_end, &sum) == 0 && sum == 4);
    CHECK(cord_close(t) == 0);
    expect(a.out, "c");
    expect(b.out, "ab");

    signal(SIGPIPE, SIG_DFL);
    close(b.out);
    t = cord_open(&request);
    put(a.in, "abc");
    CHECK(cord_wait(t, &report) == 0);
    CHECK(report.ended == CORD_ENDED_ERROR && report.error == EPIPE);
    CHECK(report.failed == CORD_SINK);
    CHECK(cord_close(t) == 0);
    close(a.in);
    close(a.out);
    close(b.in);
}

/* The bytes that were read and not written can be read. */
static void cancelled(void)
{
    ended = 0;
    signal(SIGPIPE, SIG_DFL);
    struct channel a = make_pipe(), b = make_pipe();
    char bytes[8];
    fill(b.in);
    put(a.in, "abcdef");
    struct cord_request request = CORD_REQUEST_INIT(a.out, b.in);
    request.paths = "read/write";
    cord_transfer t = cord_open(&request);
    struct cord_report report = CORD_REPORT_INIT;
    CHECK(go(t, &report) == 0);
    CHECK(cord_cancel(t) == 0 && is_due(t));
    CHECK(go(t, &report) == 1);
    CHECK(report.ended == CORD_ENDED_CANCELLED);
    CHECK(report.read == report.stranded && report.written == 0);
    if (report.stranded)
        CHECK(cord_stranded(t, bytes, 8) == 6 && memcmp(bytes, "abcdef", 6) == 0);
    else
        expect(a.out, "abcdef");
    CHECK(cord_close(t) == 0);

    /* Closed before its end: the callback runs, and SIGPIPE kills no process. */
    put(a.in, "again");
    t = cord_open(&request);
    uint64_t sum = 0;
    CHECK(cord_on_end(t, on_end, &sum) == 0);
    CHECK(go(t, NULL) == 0);
    close(b.out);
    CHECK(cord_close(t) == 0 && ended == 1 && sum == 0);
    b = make_pipe();
    request.sink = b.in;
    fill(b.in);

    /* Closed before its end, with a file: it is rewound. */
    FILE *file = tmpfile();
    CHECK(file);
    int fd = fileno(file);
    put(fd, "whole");
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    request.source = fd;
    t = cord_open(&request);
    CHECK(go(t, NULL) == 0 && cord_close(t) == 0);
    CHECK(lseek(fd, 0, SEEK_CUR) == 0);
    fclose(file);
    close(a.in);
    close(a.out);
    close(b.in);
    close(b.out);
}

static void wrong_handles(void)
{
    struct channel a = make_pipe(), b = make_pipe();
    struct cord_request request = CORD_REQUEST_INIT(a.out, b.in);
    FAILS(EFAULT, cord_open(NULL));
    FAILS(EBADF, cord_step(CORD_LAST, NULL));
    FAILS(EBADF, cord_step(99999, NULL));
    cord_transfer t = cord_start(&request);
    FAILS(EINVAL, cord_step(t, NULL));
    CHECK(cord_close(t) == 0);
    t = cord_open(&request);
    struct cord_report wrong = CORD_REPORT_INIT;
    wrong.struct_size = 3;
    FAILS(EINVAL, cord_step(t, &wrong));
    FAILS(EINVAL, cord_detach(t));
    CHECK(cord_close(t) == 0);
    FAILS(EBADF, cord_step(t, NULL));
    request.source = -1;
    FAILS(EBADF, cord_open(&request));
    close(a.in);
    close(a.out);
    close(b.in);
    close(b.out);
}

int main(void)
{
    watchdog();
    the_loop_waits();
    many();
    waits_and_callbacks();
    cancelled();
    wrong_handles();
    return 0;
}

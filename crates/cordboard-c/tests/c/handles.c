/* Handles: start, status, wait, poll, callback, cancel, close, and after. */
#include "check.h"

#include <sys/resource.h>

static void to_the_end(void)
{
    struct channel a = make_pipe(), b = make_pipe();
    struct cord_request request = CORD_REQUEST_INIT(a.out, b.in);
    cord_transfer t = cord_start(&request);
    CHECK(t > 0);
    /* The transfer keeps duplicates. */
    close(a.out);
    close(b.in);
    struct cord_report report = CORD_REPORT_INIT;
    CHECK(cord_try(t, &report) == 0);
    FAILS(EBUSY, cord_json(t, NULL, 0));
    struct pollfd end = {cord_fd(t), POLLIN, 0};
    CHECK(end.fd >= 0 && poll(&end, 1, 0) == 0);
    put(a.in, "abc");
    expect(b.out, "abc");
    struct cord_status status = CORD_STATUS_INIT;
    do {
        CHECK(cord_get_status(t, &status) == 0);
        CHECK(status.in_transit == status.read - status.written);
        sched_yield();
    } while (status.written < 3);
    CHECK(status.written == 3 && !status.ended && status.path[0]);
    close(a.in);
    CHECK(poll(&end, 1, -1) == 1 && end.revents == POLLIN);
    CHECK(cord_try(t, &report) == 1);
    CHECK(report.written == 3 && report.ended == CORD_ENDED_EOF);
    /* The end can be waited for again. */
    report.written = 0;
    CHECK(cord_wait(t, &report) == 0 && report.written == 3);
    CHECK(cord_wait(t, NULL) == 0);
    CHECK(poll(&end, 1, 0) == 1);
    CHECK(cord_get_status(t, &status) == 0 && status.ended && status.written == 3);
    char line[512];
    CHECK(cord_json(t, line, sizeof line) > 0 && strstr(line, "\"ended\":\"eof\""));
    FAILS(ENODATA, cord_stranded(t, line, sizeof line));
    CHECK(cord_close(t) == 0);
    CHECK(read(b.out, line, 1) == 0);
    close(b.out);
}

struct record {
    cord_transfer transfer;
    uint64_t written;
    int times, waited, error;
};

static void on_end(cord_transfer t, const struct cord_report *report, void *user)
{
    struct record *record = (struct record *)user;
    record->transfer = t;
    record->written = report->written;
    record->times += 1;
    record->waited = cord_wait(t, NULL);
    record->error = errno;
}

static void callbacks(void)
{
    struct channel a = make_pipe(), b = make_pipe();
    struct cord_request request = CORD_REQUEST_INIT(a.out, b.in);
    request.size = 2;
    cord_transfer t = cord_start(&request);
    struct record before, after;
    memset(&before, 0, sizeof before);
    memset(&after, 0, sizeof after);
    CHECK(cord_on_end(t, on_end, &before) == 0);
    put(a.in, "abc");
    CHECK(cord_wait(t, NULL) == 0);
    CHECK(before.times == 1 && before.transfer == t && before.written == 2);
    CHECK(before.waited == -1 && before.error == EDEADLK);
    CHECK(cord_on_end(t, on_end, &after) == 0);
    CHECK(after.times == 1 && after.written == 2);
    FAILS(EFAULT, cord_on_end(t, NULL, NULL));
    CHECK(cord_close(t) == 0);
    expect(a.out, "c");
    close(a.in);
    close(a.out);
    close(b.in);
    close(b.out);
}

/* Cancelled with bytes read and not written: cord_stranded returns them. */
static void stranded(void)
{
    struct channel a = make_pipe(), b = make_pipe();
    char bytes[8];
    fill(b.in);
    put(a.in, "abcdef");
    struct cord_request request = CORD_REQUEST_INIT(a.out, b.in);
    request.paths = "read/write";
    cord_transfer t = cord_start(&request);
    struct cord_status status = CORD_STATUS_INIT;
    do {
        CHECK(cord_get_status(t, &status) == 0);
        sched_yield();
    } while (status.read < 6);
    CHECK(status.in_transit == 6);
    FAILS(EBUSY, cord_stranded(t, bytes, 1));
    CHECK(cord_cancel(t) == 0);
    struct cord_report report = CORD_REPORT_INIT;
    CHECK(cord_wait(t, &report) == 0);
    CHECK(report.ended == CORD_ENDED_CANCELLED && report.error == 0);
    CHECK(report.read == 6 && report.written == 0 && report.stranded == 6);
    CHECK(cord_cancel(t) == 0);
    FAILS(EFAULT, cord_stranded(t, NULL, 1));
    CHECK(cord_stranded(t, bytes, 4) == 4 && memcmp(bytes, "abcd", 4) == 0);
    CHECK(cord_stranded(t, bytes, 4) == 2 && memcmp(bytes, "ef", 2) == 0);
    FAILS(ENODATA, cord_stranded(t, bytes, 4));
    CHECK(cord_close(t) == 0);
    close(a.in);
    close(a.out);
    close(b.in);
    close(b.out);
}

/* With the order of calls in docs/c.md, bytes written afterwards come last. */
static void ended_early_and_written_to(void)
{
    struct channel a = make_pipe(), b = make_pipe();
    for (int i = 0; i < 20; i++) {
        struct cord_request request = CORD_REQUEST_INIT(a.out, b.in);
        cord_transfer t = cord_start(&request);
        put(a.in, "abc");
        CHECK(cord_cancel(t) == 0);
        struct cord_report report = CORD_REPORT_INIT;
        CHECK(cord_wait(t, &report) == 0);
        put(b.in, ".");
        char text[8] = "abc";
        text[report.written] = '.';
        text[report.written + 1] = 0;
        expect(b.out, text);
        CHECK(report.read == report.written + report.stranded);
        char left[4];
        uint64_t have = 0;
        while (cord_stranded(t, left, 1) == 1)
            have += (uint64_t)(left[0] == "abc"[report.written + have]);
        CHECK(have == report.stranded);
        CHECK(cord_close(t) == 0);
        expect(a.out, "abc" + report.read);
    }
    close(a.in);
    close(a.out);
    close(b.in);
    close(b.out);
}

/* A running transfer can be waited for if no descriptor is available. */
static void no_descriptor_left(void)
{
    struct channel a = make_pipe(), b = make_pipe();
    struct cord_request request = CORD_REQUEST_INIT(a.out, b.in);
    cord_transfer t = cord_start(&request);
    put(a.in, "a");
    expect(b.out, "a");
    struct rlimit before, none;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none = before;
    none.rlim_cur = 3;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    FAILS(EMFILE, cord_fd(t));
    FAILS(EMFILE, cord_start(&request));
    put(a.in, "bc");
    close(a.in);
    struct cord_report report = CORD_REPORT_INIT;
    CHECK(cord_wait(t, &report) == 0);
    CHECK(report.written == 3 && report.ended == CORD_ENDED_EOF);
    char byte;
    FAILS(ENODATA, cord_stranded(t, &byte, 1));
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(cord_close(t) == 0);
    expect(b.out, "bc");
    close(a.out);
    close(b.in);
    close(b.out);
}

static void not_open(cord_transfer t)
{
    struct cord_report report = CORD_REPORT_INIT;
    struct cord_status status = CORD_STATUS_INIT;
    char byte;
    FAILS(EBADF, cord_wait(t, &report));
    FAILS(EBADF, cord_try(t, &report));
    FAILS(EBADF, cord_get_status(t, &status));
    FAILS(EBADF, cord_fd(t));
    FAILS(EBADF, cord_on_end(t, on_end, NULL));
    FAILS(EBADF, cord_cancel(t));
    FAILS(EBADF, cord_stranded(t, &byte, 1));
    FAILS(EBADF, cord_json(t, NULL, 0));
    FAILS(EBADF, cord_close(t));
    FAILS(EBADF, cord_detach(t));
}

static void closed(void)
{
    struct channel a = make_pipe(), b = make_pipe();
    struct cord_request request = CORD_REQUEST_INIT(a.out, b.in);
    cord_transfer t = cord_start(&request);
    CHECK(cord_close(t) == 0);
    not_open(t);
    not_open(-1);
    not_open(INT64_MIN);
    not_open(INT64_MAX);
    /* This thread has run no transfer. */
    not_open(CORD_LAST);
    /* A new handle has a new number. */
    cord_transfer other = cord_start(&request);
    CHECK(other > 0 && other != t);
    FAILS(EFAULT, cord_get_status(other, NULL));
    struct cord_report report = CORD_REPORT_INIT;
    report.struct_size = 1;
    /* A wrong size is refused before the end too. */
    FAILS(EINVAL, cord_try(other, &report));
    FAILS(EINVAL, cord_wait(other, &report));
    close(a.in);
    CHECK(cord_wait(other, NULL) == 0);
    FAILS(EINVAL, cord_wait(other, &report));
    FAILS(EINVAL, cord_try(other, &report));
    CHECK(cord_close(other) == 0);
    FAILS(EFAULT, cord_start(NULL));
    request.sink = -1;
    FAILS(EBADF, cord_start(&request));
    request.sink = a.out;
    FAILS(EBADF, cord_start(&request));
    close(a.out);
    close(b.in);
    close(b.out);
}

/* cord_close cancels, cord_detach does not. */
static void close_and_detach(void)
{
    struct channel a = make_pipe(), b = make_pipe();
    struct cord_request request = CORD_REQUEST_INIT(a.out, b.in);
    cord_transfer t = cord_start(&request);
    CHECK(cord_detach(t) == 0);
    not_open(t);
    close(a.out);
    close(b.in);
    put(a.in, "abc");
    expect(b.out, "abc");
    close(a.in);
    char byte;
    CHECK(read(b.out, &byte, 1) == 0);
    close(b.out);

    a = make_pipe();
    b = make_pipe();
    struct cord_request again = CORD_REQUEST_INIT(a.out, b.in);
    t = cord_start(&again);
    close(a.out);
    close(b.in);
    CHECK(cord_close(t) == 0);
    /* The end closes the duplicates, though the source is still open. */
    CHECK(read(b.out, &byte, 1) == 0);
    close(a.in);
    close(b.out);
}

int main(void)
{
    watchdog();
    closed();
    to_the_end();
    callbacks();
    stranded();
    close_and_detach();
    ended_early_and_written_to();
    no_descriptor_left();
    return 0;
}

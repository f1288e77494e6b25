/* pthread_cancel(3), which takes effect after the call has returned; and
 * calls of a thread that exits. */
#include "check.h"

#include <pthread.h>

static void nothing(cord_transfer t, const struct cord_report *report, void *user)
{
    (void)t;
    (void)report;
    /* The transfer has ended, so cord_on_end itself calls this. */
    pthread_testcancel();
    *(int *)user += 1;
}

/* Makes every call, with the cancellation pending. */
static void *pending(void *done)
{
    int calls = 0, from = make_file("number, please"), to = make_file("");
    struct channel a = make_pipe();
    char text[512];
    struct cord_request request = CORD_REQUEST_INIT(from, to);
    struct cord_report report = CORD_REPORT_INIT;
    struct cord_status status = CORD_STATUS_INIT;
    request.size = 4;
    CHECK(pthread_cancel(pthread_self()) == 0);
    CHECK(cord_splice(from, to, 4) == 4);
    CHECK(cord_run(&request, &report) == 0 && report.written == 4);
    CHECK(cord_json(CORD_LAST, text, sizeof text) > 0);
    cord_transfer t = cord_start(&request);
    CHECK(t > 0);
    CHECK(cord_fd(t) > 0);
    CHECK(cord_wait(t, &report) == 0 && report.written == 4);
    CHECK(cord_on_end(t, nothing, &calls) == 0 && calls == 1);
    CHECK(cord_try(t, &report) == 1);
    CHECK(cord_get_status(t, &status) == 0 && status.written == 4);
    FAILS(ENODATA, cord_stranded(t, text, sizeof text));
    CHECK(cord_json(t, text, sizeof text) > 0);
    CHECK(cord_cancel(t) == 0);
    CHECK(cord_close(t) == 0);
    int c = cord_cue(from, to);
    const uint32_t go[] = {CORD_CUE_WRITE, 2};
    CHECK(c >= 0);
    CHECK(cord_cue_write(c, go, sizeof go) == (ssize_t)sizeof go);
    request.source = a.out;
    t = cord_start(&request);
    CHECK(t > 0 && cord_detach(t) == 0);
    t = cord_open(&request);
    CHECK(t > 0 && cord_fd(t) > 0);
    CHECK(cord_step(t, &report) == 0);
    CHECK(cord_close(t) == 0);
    CHECK(cord_set_flags(from, O_ASYNC) == 0);
    CHECK((cord_get_flags(from) & O_ASYNC) != 0);
    FAILS(ENOENT, cord_last(from));
    FAILS(EBADF, cord_splice(-1, to, 1));
    *(int *)done = 1;
    /* close(2) is a cancellation point. */
    close(a.in);
    return NULL;
}

static void every_call_returns(void)
{
    int done = 0;
    pthread_t thread;
    void *end;
    CHECK(pthread_create(&thread, NULL, pending, &done) == 0);
    CHECK(pthread_join(thread, &end) == 0);
    CHECK(end == PTHREAD_CANCELED && done == 1);
}

struct pair {
    struct channel from, to;
    ssize_t written;
};

static void *splices(void *user)
{
    struct pair *pair = (struct pair *)user;
    pair->written = cord_splice(pair->from.out, pair->to.in, CORD_EOF);
    pthread_testcancel();
    pair->written = -1;
    return NULL;
}

/* A thread that waits in cord_splice continues to the end. */
static void in_the_midst(void)
{
    struct pair pair = {make_pipe(), make_pipe(), 0};
    pthread_t thread;
    void *end;
    CHECK(pthread_create(&thread, NULL, splices, &pair) == 0);
    put(pair.from.in, "one");
    expect(pair.to.out, "one");
    CHECK(pthread_cancel(thread) == 0);
    put(pair.from.in, "two");
    expect(pair.to.out, "two");
    close(pair.from.in);
    CHECK(pthread_join(thread, &end) == 0);
    CHECK(end == PTHREAD_CANCELED && pair.written == 6);
    close(pair.from.out);
    close(pair.to.in);
    close(pair.to.out);
}

static pthread_key_t last_of_all;

static void runs(void)
{
    int from = make_file("four"), to = make_file("");
    struct cord_request request = CORD_REQUEST_INIT(from, to);
    struct cord_report report = CORD_REPORT_INIT;
    CHECK(cord_run(&request, &report) == 0);
    CHECK(report.written == 4 && report.ended == CORD_ENDED_EOF);
    request.sink = -1;
    CHECK(cord_run(&request, &report) == -1 && errno == EBADF);
    CHECK(report.written == 0 && report.error == EBADF);
    close(from);
    close(to);
}

/* The destructor of a thread-specific value, which may call the library. */
static void at_the_threads_end(void *done)
{
    runs();
    *(int *)done = 1;
}

/* The thread has a CORD_LAST, which is freed before the destructor runs. */
static void *ends(void *done)
{
    runs();
    CHECK(pthread_setspecific(last_of_all, done) == 0);
    return NULL;
}

/* A call while the thread exits has a correct report. */
static void as_the_thread_ends(void)
{
    int done = 0;
    pthread_t thread;
    CHECK(pthread_key_create(&last_of_all, at_the_threads_end) == 0);
    CHECK(pthread_create(&thread, NULL, ends, &done) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && done == 1);
    CHECK(pthread_key_delete(last_of_all) == 0);
}

int main(void)
{
    watchdog();
    every_call_returns();
    in_the_midst();
    as_the_thread_ends();
    return 0;
}

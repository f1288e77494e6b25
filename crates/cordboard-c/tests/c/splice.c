/* cord_splice and cord_run: counts, ends, refusals, no SIGPIPE. */
#include "check.h"

static void counts(void)
{
    int from = make_file("number, please"), to = make_file("");
    CHECK(cord_splice(from, to, 6) == 6);
    CHECK(cord_splice(from, to, CORD_EOF) == 8);
    CHECK(cord_splice(from, to, CORD_EOF) == 0);
    CHECK(lseek(to, 0, SEEK_SET) == 0);
    expect(to, "number, please");
    close(from);
    close(to);
}

static void sizes(void)
{
    struct channel a = make_pipe(), b = make_pipe();
    put(a.in, "abc");
    CHECK(cord_splice(a.out, b.in, 0) == 0);
    CHECK(cord_splice(a.out, b.in, 1) == 1);
    close(a.in);
    /* More than the source has, and more than ssize_t can hold. */
    CHECK(cord_splice(a.out, b.in, SIZE_MAX - 1) == 2);
    expect(b.out, "abc");
    close(a.out);
    close(b.in);
    close(b.out);
}

static void refusals(void)
{
    struct channel a = make_pipe();
    int file = make_file("abc"), folder = open("/", O_RDONLY | O_DIRECTORY);
    FAILS(EBADF, cord_splice(-1, a.in, 1));
    FAILS(EBADF, cord_splice(a.out, -1, 1));
    FAILS(EBADF, cord_splice(a.out, 12345, 1));
    FAILS(EBADF, cord_splice(12345, a.in, 1));
    FAILS(EBADF, cord_splice(INT32_MIN, INT32_MAX, 1));
    /* Wrong direction. */
    FAILS(EBADF, cord_splice(a.in, a.in, 1));
    CHECK(strstr(cord_error(), "not open for reading"));
    FAILS(EBADF, cord_splice(a.out, a.out, 1));
    CHECK(strstr(cord_error(), "not open for writing"));
    FAILS(EISDIR, cord_splice(folder, a.in, 1));
    /* It carries no bytes. Connections do. */
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(listen(listener, 1) == 0);
    FAILS(EINVAL, cord_splice(listener, a.in, 1));
    CHECK(strstr(cord_error(), "the source is a listening socket"));
    FAILS(EINVAL, cord_splice(file, listener, CORD_EOF));
    CHECK(strstr(cord_error(), "the sink is a listening socket"));
    close(listener);
    FAILS(EINVAL, cord_splice(file, file, CORD_EOF));
    struct cord_report report = CORD_REPORT_INIT;
    CHECK(cord_try(CORD_LAST, &report) == 1);
    CHECK(report.ended == CORD_ENDED_ERROR && report.error == EINVAL);
    close(folder);
    close(file);
    close(a.in);
    close(a.out);
}

/* CORD_LAST is the refusal with zero bytes, not the transfer before it. */
static void nothing_moved(int error, int failed)
{
    struct cord_report last = CORD_REPORT_INIT;
    char byte;
    CHECK(cord_try(CORD_LAST, &last) == 1);
    CHECK(last.ended == CORD_ENDED_ERROR && last.error == error);
    CHECK(last.failed == failed && last.read == 0 && last.written == 0);
    FAILS(ENODATA, cord_stranded(CORD_LAST, &byte, 1));
}

/* Refused because of the descriptor number: there is a report, and the message
 * names the side. */
static void early_refusals(void)
{
    int from = make_file("abc"), to = make_file("");
    struct cord_request request = CORD_REQUEST_INIT(-1, to);
    struct cord_report report = CORD_REPORT_INIT;
    const int bad[][2] = {{-1, to}, {12345, to}, {from, -1}, {from, 12345}};
    for (int i = 0; i < 4; i++) {
        int failed = i < 2 ? CORD_SOURCE : CORD_SINK;
        const char *side = i < 2 ? "the source" : "the sink";
        CHECK(lseek(from, 0, SEEK_SET) == 0);
        CHECK(cord_splice(from, to, CORD_EOF) == 3);
        FAILS(EBADF, cord_splice(bad[i][0], bad[i][1], CORD_EOF));
        CHECK(strstr(cord_error(), side));
        nothing_moved(EBADF, failed);

        CHECK(cord_splice(from, to, CORD_EOF) == 0);
        request.source = bad[i][0];
        request.sink = bad[i][1];
        memset(&report, 'x', sizeof report);
        report.struct_size = sizeof report;
        FAILS(EBADF, cord_run(&request, &report));
        CHECK(strstr(cord_error(), side));
        CHECK(report.ended == CORD_ENDED_ERROR && report.error == EBADF);
        CHECK(report.failed == failed && report.written == 0);
        CHECK(!report.path[0]);
        nothing_moved(EBADF, failed);
        FAILS(EBADF, cord_start(&request));
        CHECK(strstr(cord_error(), side));
    }
    /* If the request itself is refused, no side has failed. */
    CHECK(lseek(from, 0, SEEK_SET) == 0);
    CHECK(cord_splice(from, to, CORD_EOF) == 3);
    FAILS(EFAULT, cord_run(NULL, &report));
    CHECK(report.error == EFAULT && report.failed == CORD_NEITHER);
    nothing_moved(EFAULT, CORD_NEITHER);
    close(from);
    close(to);
}

/* Without a reader: EPIPE, and no SIGPIPE, which would end the process. */
static void broken_pipe(void)
{
    struct channel a = make_pipe(), b = make_pipe();
    put(a.in, "abc");
    close(b.out);
    FAILS(EPIPE, cord_splice(a.out, b.in, 3));
    struct cord_report report = CORD_REPORT_INIT;
    CHECK(cord_try(CORD_LAST, &report) == 1);
    CHECK(report.failed == CORD_SINK && report.error == EPIPE);
    CHECK(report.written == 0 && report.read == report.stranded);
    /* Bytes that were not written are not lost: they are stranded, or still
     * in the source. */
    char found[8];
    size_t have = 0;
    ssize_t n;
    while ((n = cord_stranded(CORD_LAST, found + have, 1)) > 0)
        have += (size_t)n;
    CHECK(n == -1 && errno == ENODATA && have == report.stranded);
    if (have < 3)
        expect(a.out, "abc" + have);
    CHECK(memcmp(found, "abc", have) == 0);
    close(a.in);
    close(a.out);
    close(b.in);
}

/* CORD_LAST can be read and closed; all other calls are EBADF. */
static void last(void)
{
    struct channel a = make_pipe(), b = make_pipe();
    struct cord_status status = CORD_STATUS_INIT;
    put(a.in, "abc");
    CHECK(cord_splice(a.out, b.in, 3) == 3);
    CHECK(cord_wait(CORD_LAST, NULL) == 0 && cord_try(CORD_LAST, NULL) == 1);
    FAILS(EBADF, cord_fd(CORD_LAST));
    CHECK(strstr(cord_error(), "CORD_LAST"));
    FAILS(EBADF, cord_get_status(CORD_LAST, &status));
    FAILS(EBADF, cord_cancel(CORD_LAST));
    FAILS(EBADF, cord_detach(CORD_LAST));
    CHECK(cord_close(CORD_LAST) == 0);
    FAILS(EBADF, cord_try(CORD_LAST, NULL));
    FAILS(EBADF, cord_close(CORD_LAST));
    /* Closing it frees stranded bytes. */
    put(a.in, "def");
    close(a.in);
    char byte;
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    struct cord_request request = CORD_REQUEST_INIT(a.out, full);
    request.paths = "read/write";
    FAILS(ENOSPC, cord_run(&request, NULL));
    CHECK(cord_stranded(CORD_LAST, &byte, 1) == 1 && byte == 'd');
    CHECK(cord_close(CORD_LAST) == 0);
    FAILS(EBADF, cord_stranded(CORD_LAST, &byte, 1));
    close(full);
    close(a.out);
    close(b.in);
    close(b.out);
}

static void requests(void)
{
    int from = make_file("0123456789"), to = make_file("");
    struct cord_request request = CORD_REQUEST_INIT(from, to);
    request.source_offset = 4;
    request.size = 3;
    request.flags = CORD_SYNC;
    request.paths = "read/write";
    struct cord_report report = CORD_REPORT_INIT;
    CHECK(cord_run(&request, &report) == 0);
    CHECK(report.read == 3 && report.written == 3 && report.stranded == 0);
    CHECK(report.ended == CORD_ENDED_SIZE && report.failed == CORD_NEITHER);
    CHECK(strcmp(report.path, "read/write") == 0);
    CHECK(lseek(from, 0, SEEK_CUR) == 0);
    CHECK(lseek(to, 0, SEEK_SET) == 0);
    expect(to, "456");

    char line[512];
    ssize_t length = cord_json(CORD_LAST, line, sizeof line);
    CHECK(length > 0 && (size_t)length == strlen(line));
    CHECK(strstr(line, "\"written\":3,\"stranded\":0,\"ended\":\"size\""));
    CHECK(cord_json(CORD_LAST, line, 3) == length && strlen(line) == 2);
    CHECK(cord_json(CORD_LAST, NULL, 0) == length);

    FAILS(EFAULT, cord_run(NULL, NULL));
    FAILS(EFAULT, cord_json(CORD_LAST, NULL, 1));
    request.struct_size = 0;
    FAILS(EINVAL, cord_run(&request, &report));
    request.struct_size = sizeof request;
    report.struct_size = 7;
    FAILS(EINVAL, cord_run(&request, &report));
    request.flags = UINT64_C(1) << 63;
    FAILS(EINVAL, cord_run(&request, NULL));
    request.flags = 0;
    request.paths = "teleport";
    FAILS(EINVAL, cord_run(&request, NULL));
    CHECK(strstr(cord_error(), "`teleport` is not a data path"));
    request.paths = NULL;
    struct channel a = make_pipe();
    request.sink = a.in;
    request.sink_offset = 1;
    report.struct_size = sizeof report;
    FAILS(ESPIPE, cord_run(&request, &report));
    CHECK(report.failed == CORD_SINK && report.error == ESPIPE);
    close(a.in);
    close(a.out);
    close(from);
    close(to);
}

/* An end by `idle_ms` is not a failure, even if the sink did not accept all
 * bytes. */
static void idle(void)
{
    enum { MOST = 1 << 20 };
    char *bytes = (char *)calloc(1, MOST);
    int from[2], to[2];
    CHECK(bytes && socketpair(AF_UNIX, SOCK_STREAM, 0, from) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, to) == 0);
    ssize_t there = send(from[1], bytes, MOST, MSG_DONTWAIT);
    CHECK(there > 0);
    /* The sink has room for a part of the bytes. */
    while (send(to[1], bytes, MOST, MSG_DONTWAIT) > 0)
        continue;
    CHECK(read(to[0], bytes, 40000) == 40000);
    struct cord_request request = CORD_REQUEST_INIT(from[0], to[1]);
    request.idle_ms = 30;
    struct cord_report report = CORD_REPORT_INIT;
    CHECK(cord_run(&request, &report) == 0);
    CHECK(report.ended == CORD_ENDED_IDLE && report.error == 0);
    CHECK(report.failed == CORD_NEITHER && report.stranded > 0);
    CHECK(report.read == report.written + report.stranded);
    /* cord_stranded returns them, as after a failure. */
    uint64_t back = 0;
    ssize_t n;
    while ((n = cord_stranded(CORD_LAST, bytes, MOST)) > 0)
        back += (uint64_t)n;
    CHECK(n == -1 && errno == ENODATA && back == report.stranded);
    for (int i = 0; i < 2; i++) {
        close(from[i]);
        close(to[i]);
    }
    free(bytes);
}

/* Programs built with an older or newer header: their structures are shorter
 * or longer. */
static void versions(void)
{
#ifdef __LP64__
    /* The sizes that programs were built with; a new field does not change them. */
    enum { FIRST_REQUEST = 72, REQUEST = 96, REPORT = 160, STATUS = 96 };
    struct cord_request past = CORD_REQUEST_INIT(-1, -1);
    const size_t sizes[] = {FIRST_REQUEST, REQUEST};
    for (int i = 0; i < 2; i++) {
        past.struct_size = sizes[i];
        FAILS(EBADF, cord_run(&past, NULL));
    }
    /* Bytes behind `struct_size` are not read. */
    past.struct_size = FIRST_REQUEST;
    past.direct = 99;
    past.reserved = 99;
    FAILS(EBADF, cord_run(&past, NULL));
    for (size_t size = FIRST_REQUEST - 1; size < REQUEST; size++) {
        past.struct_size = size == FIRST_REQUEST ? 0 : size;
        FAILS(EINVAL, cord_run(&past, NULL));
    }
    past.struct_size = REQUEST + 1;
    FAILS(EINVAL, cord_run(&past, NULL));
    struct cord_report report = CORD_REPORT_INIT;
    report.struct_size = REPORT;
    CHECK(cord_try(CORD_LAST, &report) == 1);
    report.struct_size = REPORT - 1;
    FAILS(EINVAL, cord_try(CORD_LAST, &report));
    struct cord_status status = CORD_STATUS_INIT;
    struct channel a = make_pipe(), b = make_pipe();
    struct cord_request request = CORD_REQUEST_INIT(a.out, b.in);
    cord_transfer t = cord_start(&request);
    status.struct_size = STATUS;
    CHECK(cord_get_status(t, &status) == 0);
    CHECK(cord_close(t) == 0);
    close(a.in);
    close(a.out);
    close(b.in);
    close(b.out);
#endif
    struct {
        struct cord_request known;
        uint64_t later;
    } newer = {CORD_REQUEST_INIT(-1, -1), 0};
    newer.known.struct_size = sizeof newer;
    FAILS(EBADF, cord_run(&newer.known, NULL));
    newer.later = 1;
    FAILS(E2BIG, cord_run(&newer.known, NULL));
    newer.known.struct_size = sizeof newer.known;
    newer.known.reserved = 1;
    FAILS(E2BIG, cord_run(&newer.known, NULL));
    newer.known.reserved = 0;
    newer.known.direct = 3;
    FAILS(EINVAL, cord_run(&newer.known, NULL));
    CHECK(strcmp(cord_version(), "0.1.0") == 0);
}

/* Direct I/O required, with the paper's watermarks; and direct I/O excluded. */
static void direct(void)
{
    enum { LENGTH = 3 << 20 };
    char *bytes = (char *)malloc(LENGTH), *found = (char *)malloc(LENGTH);
    CHECK(bytes && found);
    for (int i = 0; i < LENGTH; i++)
        bytes[i] = (char)(i * 7 + i / 4096);
    int from = make_file(""), to = make_file("");
    CHECK(pwrite(from, bytes, LENGTH, 0) == LENGTH);
    struct cord_request request = CORD_REQUEST_INIT(from, to);
    struct cord_report report = CORD_REPORT_INIT;
    request.direct = CORD_DIRECT_ALWAYS;
    request.block = 1 << 16;
    request.marks_reads = 3;
    request.marks_writes = 5;
    request.marks_burst = 5;
    CHECK(cord_run(&request, &report) == 0);
    CHECK(report.written == LENGTH && report.ended == CORD_ENDED_EOF);
    CHECK(pread(to, found, LENGTH, 0) == LENGTH);
    CHECK(memcmp(bytes, found, LENGTH) == 0);
    char line[1024];
    CHECK(cord_json(CORD_LAST, line, sizeof line) > 0);
    if (strstr(line, "no direct I/O here"))
        fprintf(stderr, "SKIPPED: direct from C: no direct I/O on /tmp\n");
    else
        CHECK(strncmp(report.path, "direct", strlen("direct")) == 0);

    CHECK(lseek(from, 0, SEEK_SET) == 0 && lseek(to, 0, SEEK_SET) == 0);
    request.direct = CORD_DIRECT_NEVER;
    CHECK(cord_run(&request, &report) == 0 && report.written == LENGTH);
    CHECK(!strstr(report.path, "direct"));
    close(from);
    close(to);
    free(bytes);
    free(found);
}

int main(void)
{
    watchdog();
    counts();
    sizes();
    FAILS(EBADF, cord_splice(-1, 1, 1));
    /* The first call of this thread. */
    nothing_moved(EBADF, CORD_SOURCE);
    refusals();
    early_refusals();
    broken_pipe();
    last();
    requests();
    idle();
    versions();
    direct();
    return 0;
}

/* A thread with the smallest stack that docs/c.md allows makes every call, by
 * every path, from and to every kind of descriptor. */
#include "check.h"

#include <pthread.h>
#include <sys/mman.h>

/* The size in docs/c.md. */
#ifndef STACK
#define STACK (64 << 10)
#endif

enum kind { A_FILE, A_MEMFD, A_PIPE, A_STREAM, A_SEQPACKET, A_DATAGRAM, KINDS };

static const int TYPES[KINDS] = {0, 0, 0, SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM};
static const char TEXT[10000] = "number, please";

/* Makes a descriptor of this kind to write to, and one to read from. */
static struct channel make(enum kind kind)
{
    struct channel made = {-1, -1};
    int ends[2];
    switch (kind) {
    case A_FILE:
        made.in = made.out = make_file("");
        break;
    case A_MEMFD:
        made.in = made.out = memfd_create("memory", MFD_CLOEXEC);
        CHECK(made.in >= 0);
        break;
    case A_PIPE:
        made = make_pipe();
        break;
    default:
        CHECK(socketpair(AF_UNIX, TYPES[kind] | SOCK_CLOEXEC, 0, ends) == 0);
        made.in = ends[0];
        made.out = ends[1];
    }
    return made;
}

static void unmake(struct channel c)
{
    close(c.in);
    if (c.out != c.in)
        close(c.out);
}

/* Moves bytes by this path, or by any path if it is NULL: by cord_run, or by the
 * steps of a handle. Returns whether the path takes the pair. */
static int one(enum kind from, enum kind to, const char *path, uint64_t flags, int steps)
{
    struct channel a = make(from), b = make(to);
    CHECK(write(a.in, TEXT, sizeof TEXT) == sizeof TEXT);
    if (a.in == a.out)
        CHECK(lseek(a.out, 0, SEEK_SET) == 0);
    struct cord_request request = CORD_REQUEST_INIT(a.out, b.in);
    request.size = sizeof TEXT;
    request.paths = path;
    request.flags = flags;
    if (path && strcmp(path, "direct") == 0)
        request.direct = CORD_DIRECT_ALWAYS;
    struct cord_report report = CORD_REPORT_INIT;
    cord_transfer t = steps ? cord_open(&request) : CORD_LAST;
    int taken;
    if (steps)
        taken = t > 0 && cord_wait(t, &report) == 0 && report.error == 0;
    else
        taken = cord_run(&request, &report) == 0;
    CHECK(taken || path || flags);
    CHECK(!taken || report.written == sizeof TEXT);
    CHECK(taken || (report.written == 0 && (steps || cord_error()[0])));
    char line[512];
    if (t >= 0) {
        CHECK(cord_json(t, line, sizeof line) > 0);
        CHECK(cord_close(t) == 0);
    }
    unmake(a);
    unmake(b);
    return taken;
}

static void nothing(cord_transfer t, const struct cord_report *report, void *user)
{
    (void)t;
    (void)report;
    (void)user;
}

static void others(void)
{
    struct channel a = make(A_STREAM), b = make(A_PIPE);
    struct cord_request request = CORD_REQUEST_INIT(a.out, b.in);
    cord_transfer t = cord_start(&request);
    CHECK(t > 0 && cord_fd(t) > 0);
    CHECK(write(a.in, TEXT, sizeof TEXT) == sizeof TEXT);
    char found[512];
    CHECK(read(b.out, found, sizeof found) > 0);
    struct cord_status status = CORD_STATUS_INIT;
    CHECK(cord_get_status(t, &status) == 0);
    CHECK(cord_cancel(t) == 0);
    struct cord_report report = CORD_REPORT_INIT;
    CHECK(cord_wait(t, &report) == 0 && report.ended == CORD_ENDED_CANCELLED);
    CHECK(cord_json(t, found, sizeof found) > 0);
    while (cord_stranded(t, found, sizeof found) > 0)
        continue;
    CHECK(cord_close(t) == 0);
    FAILS(EBADF, cord_splice(-1, b.in, 1));
    unmake(a);
    unmake(b);
    int from = make_file(TEXT), to = make_file("");
    CHECK(cord_set_flags(from, O_ASYNC) == 0);
    CHECK(signal(SIGIO, SIG_IGN) != SIG_ERR);
    CHECK(cord_splice(from, to, CORD_EOF) == 0);
    t = cord_last(from);
    CHECK(t > 0 && cord_wait(t, &report) == 0 && report.written == strlen(TEXT));
    CHECK(cord_on_end(t, nothing, NULL) == 0 && cord_try(t, &report) == 1);
    CHECK(cord_detach(t) == 0);
    CHECK((cord_get_flags(from) & O_ASYNC) != 0 && cord_set_flags(from, 0) == 0);
    struct cord_request again = CORD_REQUEST_INIT(from, to);
    t = cord_open(&again);
    CHECK(t > 0 && cord_fd(t) > 0 && cord_get_status(t, &status) == 0);
    CHECK(cord_step(t, &report) >= 0);
    CHECK(cord_close(t) == 0);
    CHECK(lseek(from, 0, SEEK_SET) == 0);
    int c = cord_cue(from, to);
    const uint32_t go[] = {CORD_CUE_WRITE, 4};
    CHECK(cord_cue_write(c, go, sizeof go) == (ssize_t)sizeof go);
    close(c);
    close(from);
    close(to);
}

static void *all(void *user)
{
    const char *paths[] = {NULL,     "clone",  "direct",   "copy_file_range",
                           "sendfile", "splice", "datagram", "read/write"};
    const uint64_t flags[] = {0, CORD_SPARSE, CORD_SYNC, CORD_STABLE};
    int *taken = (int *)user;
    for (size_t path = 0; path < sizeof paths / sizeof *paths; path++)
        for (int pair = 0; pair < KINDS * KINDS; pair++) {
            enum kind from = (enum kind)(pair / KINDS), to = (enum kind)(pair % KINDS);
            for (size_t flag = 0; flag < sizeof flags / sizeof *flags; flag++)
                *taken += one(from, to, paths[path], flags[flag], 0);
            if (!paths[path])
                *taken += one(from, to, NULL, 0, 1);
        }
    others();
    return NULL;
}

int main(void)
{
    watchdog();
    int taken = 0;
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, STACK) == 0);
    CHECK(pthread_create(&thread, &attributes, all, &taken) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(pthread_attr_destroy(&attributes) == 0);
    /* Each pair at least by the best path, also in steps, and by the fallback. */
    CHECK(taken >= 3 * KINDS * KINDS);
    return 0;
}

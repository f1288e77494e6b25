/* Helpers of all tests. A test ends at the first check that fails. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cordboard.h>

#define CHECK(so)                                                              \
    do {                                                                       \
        int errno_ = errno;                                                    \
        if (!(so)) {                                                           \
            fprintf(stderr, "%s:%d: failed: %s (errno %d %s; %s)\n", __FILE__, \
                    __LINE__, #so, errno_, strerror(errno_), cord_error());    \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

/* The call fails with this errno, and sets a message. */
#define FAILS(error, call)                                                     \
    do {                                                                       \
        errno = 0;                                                             \
        CHECK((call) == -1);                                                   \
        CHECK(errno == (error));                                               \
        CHECK(cord_error()[0] != 0);                                           \
    } while (0)

/* Ends a test that hangs. No test takes a minute. */
static inline void watchdog(void)
{
    alarm(60);
}

struct channel {
    int out; /* reads what is written to `in` */
    int in;
};

static inline struct channel make_pipe(void)
{
    int ends[2];
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    struct channel c = {ends[0], ends[1]};
    return c;
}

static inline void put(int fd, const char *text)
{
    CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

/* Fills a pipe, which then does not block. */
static inline void fill(int fd)
{
    char bytes[4096];
    memset(bytes, 'x', sizeof bytes);
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    while (write(fd, bytes, sizeof bytes) > 0)
        continue;
}

/* Reads exactly this text. */
static inline void expect(int fd, const char *text)
{
    char found[256];
    size_t length = strlen(text), have = 0;
    CHECK(length <= sizeof found);
    while (have < length) {
        ssize_t n = read(fd, found + have, length - have);
        CHECK(n > 0);
        have += (size_t)n;
    }
    CHECK(memcmp(found, text, length) == 0);
}

/* Makes an open file without a name, with this text. */
static inline int make_file(const char *text)
{
    char name[] = "/tmp/cordboard-test-XXXXXX";
    int fd = mkostemp(name, O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK(unlink(name) == 0);
    put(fd, text);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    return fd;
}

#endif

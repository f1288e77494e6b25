/* Control descriptors: cord_cue, cord_cue_write. */
#include "check.h"

#include <cordboard/classic.h>
#include <sys/un.h>

/* Reads one record, whose first word has its length. */
static uint32_t record(int c, uint32_t words[32])
{
    uint32_t first;
    CHECK(read(c, &first, sizeof first) == (ssize_t)sizeof first);
    size_t length = 4 * (size_t)(first >> 16 & 0xff);
    size_t got = 0;
    while (got < length) {
        ssize_t n = read(c, (char *)words + got, length - got);
        CHECK(n > 0);
        got += (size_t)n;
    }
    return first & 0xffff;
}

static void with_write(void)
{
    int from = make_file("number, please"), to = make_file("");
    int c = cord_cue(from, to);
    CHECK(c >= 3 && fcntl(c, F_GETFD) == FD_CLOEXEC);
    uint32_t go[] = {CORD_CUE_WRITE, 6, CORD_CUE_WRITE_TO_END, 0xffffffff};
    CHECK((write)(c, go, sizeof go) == (ssize_t)sizeof go);
    uint32_t words[32];
    /* The bad word is answered while the transfers run. */
    int done = 0, refused = 0;
    while (done < 2 || refused < 1) {
        switch (record(c, words)) {
        case CORD_RECORD_DONE:
            done++;
            CHECK(words[0] == (uint32_t)done && words[3] == 0);
            CHECK(words[1] == (done == 1 ? CORD_DONE_SIZE : CORD_DONE_EOF));
            CHECK(words[4] == (done == 1 ? 6 : 8) && words[5] == 0);
            break;
        case CORD_RECORD_REFUSED:
            refused++;
            CHECK(words[0] == 0xffffffff && words[1] == EINVAL);
            break;
        default:
            break;
        }
    }
    CHECK(lseek(to, 0, SEEK_SET) == 0);
    expect(to, "number, please");
    CHECK(close(c) == 0 && close(from) == 0 && close(to) == 0);
}

/* The environment is read by cord_cue, on the thread that calls it. */
static void environment(void)
{
    int from = make_file("number, please"), to = make_file("");
    int target = cord_cue(from, to);
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    int c = cord_cue(ends[0], target);
    CHECK(target >= 3 && c >= 3);
    CHECK(setenv("CORDBOARD_TUNE", "unknown", 1) == 0);
    CHECK(setenv("CORDBOARD_ENGINE", "unknown", 1) == 0);
    CHECK(cord_cue(from, to) == -1 && errno == EINVAL);
    /* The bytes of the link are a command to the target. */
    uint32_t go[] = {CORD_CUE_WRITE, 6}, words[32], code;
    CHECK((write)(ends[1], go, sizeof go) == (ssize_t)sizeof go);
    uint32_t link[] = {CORD_CUE_WRITE, sizeof go};
    CHECK((write)(c, link, sizeof link) == (ssize_t)sizeof link);
    int of[] = {c, ends[1]};
    for (int i = 0; i < 2; i++) {
        while ((code = record(of[i], words)) != CORD_RECORD_DONE)
            CHECK(code == CORD_RECORD_STARTED);
        CHECK(words[1] == CORD_DONE_SIZE && words[3] == 0);
    }
    CHECK(lseek(to, 0, SEEK_SET) == 0);
    expect(to, "number");
    CHECK(unsetenv("CORDBOARD_TUNE") == 0 && unsetenv("CORDBOARD_ENGINE") == 0);
    CHECK(close(c) == 0 && close(target) == 0);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    CHECK(close(from) == 0 && close(to) == 0);
}

static void waits(void)
{
    int from = make_file("number, please"), to = make_file("");
    int c = cue(from, to);
    int go[] = {WRITE, 6, WRITE, 8};
#ifdef __cplusplus
    CHECK(write(c, go, 8) == 8);
#else
    /* An argument of a macro may have commas. */
    CHECK(write(c, (int[]){WRITE, 6}, 8) == 8);
#endif
    CHECK(write(c, go + 2, 8) == 8);
    CHECK(lseek(to, 0, SEEK_SET) == 0);
    expect(to, "number, please");
    /* Half a command, none, and one that a limit forbids. */
    CHECK(write(c, go, 6) == -1 && errno == EINVAL);
    int none = 7;
    CHECK(write(c, &none, sizeof none) == -1 && errno == EINVAL);
    uint32_t limit[] = {CORD_CUE_LIMIT_BYTES, 5};
    CHECK(write(c, limit, sizeof limit) == (ssize_t)sizeof limit);
    CHECK(write(c, go, 8) == -1 && errno == EPERM);
    CHECK(write(c, NULL, 8) == -1 && errno == EFAULT);
    CHECK(write(c, NULL, 0) == 0);
    CHECK(close(c) == 0);
    CHECK(write(c, go, 8) == -1 && errno == EBADF);
    /* The sink's reader has gone. */
    struct channel channel = make_pipe();
    CHECK(lseek(from, 0, SEEK_SET) == 0);
    c = cue(from, channel.in);
    close(channel.out);
    CHECK(write(c, go, 8) == -1 && errno == EPIPE);
    CHECK(close(c) == 0 && close(channel.in) == 0);
    /* Any other descriptor. */
    CHECK(write(to, "abc", 3) == 3);
    int socket_of_none = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un none_here = {AF_UNIX, "/cordboard/none"};
    CHECK(connect(socket_of_none, &none_here, sizeof none_here) == -1 && errno == ENOENT);
#ifndef __cplusplus
    CHECK(connect(socket_of_none, &(struct sockaddr_un){AF_UNIX, "/cordboard/none"},
                  sizeof none_here) == -1);
#endif
    CHECK(close(socket_of_none) == 0);
    CHECK(cord_cue(from, -1) == -1 && errno == EBADF);
    CHECK(close(from) == 0 && close(to) == 0);
}

/* What limits and a bad value refuse is reported, and no transfer follows. */
static void refused(void)
{
    int from = make_file("number, please"), to = make_file("");
    int c = cue(from, to);
    uint32_t none[] = {CORD_CUE_LIMIT_RATE, 0};
    CHECK(write(c, none, sizeof none) == -1 && errno == EINVAL);
    uint32_t mask[] = {CORD_CUE_LIMIT_COMMANDS, 1u << 1 | 1u << 11};
    CHECK(write(c, mask, sizeof mask) == (ssize_t)sizeof mask);
    uint32_t paced[] = {CORD_CUE_RATE, 1000, CORD_CUE_WRITE, 6};
    CHECK(write(c, paced, sizeof paced) == -1 && errno == EPERM);
    CHECK(lseek(from, 0, SEEK_CUR) == 0);
    CHECK(write(c, paced + 2, 8) == 8);
    CHECK(lseek(from, 0, SEEK_CUR) == 6);
    /* A refusal that was not read is none of a later call. */
    uint32_t both[] = {CORD_CUE_RATE, 1000, 0xffffffff};
    CHECK(write(c, both, sizeof both) == -1);
    CHECK((write)(c, both, sizeof both) == (ssize_t)sizeof both);
    CHECK(write(c, paced + 2, 8) == 8);
    CHECK(lseek(from, 0, SEEK_CUR) == 12);
    CHECK(close(c) == 0 && close(from) == 0 && close(to) == 0);
}

/* More commands and answers than the socket holds, also if it does not block. */
static void many_answers(void)
{
    int from = make_file("number, please"), to = make_file("");
    int c = cue(from, to);
    int least = 1;
    CHECK(setsockopt(c, SOL_SOCKET, SO_SNDBUF, &least, sizeof least) == 0);
    enum { MANY = 4000 };
    static uint32_t all[MANY + 2];
    for (size_t i = 0; i < MANY; i++)
        all[i] = CORD_CUE_STATUS;
    all[MANY] = CORD_CUE_WRITE;
    all[MANY + 1] = 6;
    CHECK(write(c, all, sizeof all) == (ssize_t)sizeof all);
    CHECK(fcntl(c, F_SETFL, fcntl(c, F_GETFL) | O_NONBLOCK) == 0);
    CHECK(write(c, all, sizeof all) == (ssize_t)sizeof all);
    CHECK(lseek(from, 0, SEEK_CUR) == 12);
    CHECK(close(c) == 0 && close(from) == 0 && close(to) == 0);
}

/* The states of the records, and the end of a transfer that is cancelled or fails. */
static void states(void)
{
    struct channel in = make_pipe();
    int c = cord_cue(in.out, in.in);
    uint32_t words[32];
    const uint32_t commands[][3] = {
        {CORD_CUE_STATUS, CORD_STATE_IDLE, 0},
        {CORD_CUE_PAUSE, CORD_STATE_PAUSED, CORD_CUE_STATUS},
        {CORD_CUE_RESUME, CORD_STATE_IDLE, CORD_CUE_STATUS},
    };
    for (size_t i = 0; i < 3; i++) {
        CHECK((write)(c, &commands[i][0], 4) == 4);
        if (commands[i][2] != 0)
            CHECK((write)(c, &commands[i][2], 4) == 4);
        CHECK(record(c, words) == CORD_RECORD_STATUS);
        CHECK(words[0] == commands[i][1]);
    }
    CHECK(close(c) == 0);
    int to = make_file("");
    c = cord_cue(in.out, to);
    const uint32_t go[] = {CORD_CUE_WRITE, 1, CORD_CUE_STATUS}, end = CORD_CUE_CANCEL;
    CHECK((write)(c, go, 12) == 12);
    CHECK(record(c, words) == CORD_RECORD_STARTED);
    CHECK(record(c, words) == CORD_RECORD_STATUS);
    CHECK(words[0] == CORD_STATE_RUNNING);
    CHECK((write)(c, &end, 4) == 4);
    CHECK(record(c, words) == CORD_RECORD_DONE && words[1] == CORD_DONE_CANCELLED);
    CHECK(close(c) == 0 && close(in.in) == 0 && close(in.out) == 0);
    int none = open("/dev/full", O_WRONLY | O_CLOEXEC), from = make_file("abc");
    CHECK(none >= 0);
    c = cord_cue(from, none);
    CHECK((write)(c, go, 8) == 8);
    CHECK(record(c, words) == CORD_RECORD_STARTED);
    CHECK(record(c, words) == CORD_RECORD_DONE && words[1] == CORD_DONE_ERROR);
    CHECK(words[2] == CORD_SINK && words[3] == ENOSPC);
    CHECK(close(c) == 0 && close(from) == 0 && close(none) == 0 && close(to) == 0);
}

/* A socket that is cued to a control descriptor: the peer steers. */
static void remote(void)
{
    int from = make_file("number, please"), to = make_file("");
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    int c = cord_cue(from, to);
    int link = cord_cue(pair[0], c);
    CHECK(c >= 0 && link >= 0);
    uint32_t all = CORD_CUE_WRITE_TO_END;
    CHECK((write)(link, &all, sizeof all) == (ssize_t)sizeof all);
    CHECK(close(link) == 0 && close(c) == 0 && close(pair[0]) == 0);
    uint32_t go[] = {CORD_CUE_WRITE, 6}, words[32];
    CHECK((write)(pair[1], go, sizeof go) == (ssize_t)sizeof go);
    CHECK(record(pair[1], words) == CORD_RECORD_STARTED);
    CHECK(record(pair[1], words) == CORD_RECORD_DONE);
    CHECK(words[4] == 6 && words[6] == 6);
    CHECK(close(pair[1]) == 0);
    CHECK(lseek(to, 0, SEEK_SET) == 0);
    expect(to, "number");
    CHECK(close(from) == 0 && close(to) == 0);
}

/* Writes to a socket that is not a control descriptor and whose peer has closed: programs
 * rely on SIGPIPE to end them. */
static void other_sockets(void)
{
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    CHECK(write(pair[0], "abc", 3) == 3);
    expect(pair[1], "abc");
    CHECK(close(pair[1]) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        signal(SIGPIPE, SIG_DFL);
        _exit(write(pair[0], "abc", 3) == -1 ? 1 : 2);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
    CHECK(close(pair[0]) == 0);
}

int main(void)
{
    watchdog();
    /* First, because it forks: the library has no threads yet. */
    other_sockets();
    /* Before the engine starts. */
    environment();
    with_write();
    waits();
    refused();
    many_answers();
    states();
    remote();
    return 0;
}

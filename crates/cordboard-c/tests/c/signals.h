/* Waiting for the signals of asynchronous splices, one by one. */
#ifndef SIGNALS_H
#define SIGNALS_H

#include "check.h"

#include <pthread.h>
#include <sys/syscall.h>

static sigset_t told;

/* The next signal; and no other is there. */
static inline siginfo_t next_signal(void)
{
    siginfo_t info;
    CHECK(sigwaitinfo(&told, &info) > 0);
    return info;
}

static inline int none_pending(void)
{
    struct timespec now = {0, 0};
    return sigtimedwait(&told, NULL, &now) == -1 && errno == EAGAIN;
}

static inline int has_fasync(int fd)
{
    return (fcntl(fd, F_GETFL) & O_ASYNC) != 0;
}

static inline void set_fasync(int fd)
{
    CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC) == 0);
    CHECK(has_fasync(fd));
}

/* From now on they wait until they are asked for. */
static inline void listen_to_signals(void)
{
    sigemptyset(&told);
    sigaddset(&told, SIGIO);
    sigaddset(&told, SIGRTMIN);
    sigaddset(&told, SIGRTMIN + 1);
    CHECK(pthread_sigmask(SIG_BLOCK, &told, NULL) == 0);
}

#endif

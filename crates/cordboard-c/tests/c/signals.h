/* Waits for the signals of asynchronous splices, one by one. */
#ifndef SIGNALS_H
#define SIGNALS_H

#include "check.h"

#include <pthread.h>
#include <sys/syscall.h>

static sigset_t signals;

/* Waits for the next signal. */
static inline siginfo_t next_signal(void)
{
    siginfo_t info;
    CHECK(sigwaitinfo(&signals, &info) > 0);
    return info;
}

static inline int none_pending(void)
{
    struct timespec now = {0, 0};
    return sigtimedwait(&signals, NULL, &now) == -1 && errno == EAGAIN;
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

/* Blocks the signals: they stay pending until a test waits for them. */
static inline void listen_to_signals(void)
{
    sigemptyset(&signals);
    sigaddset(&signals, SIGIO);
    sigaddset(&signals, SIGRTMIN);
    sigaddset(&signals, SIGRTMIN + 1);
    CHECK(pthread_sigmask(SIG_BLOCK, &signals, NULL) == 0);
}

#endif

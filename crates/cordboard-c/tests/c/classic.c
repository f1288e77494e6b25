/* cordboard/classic.h together with the system's headers. */
#include "check.h"

#include <cordboard/classic.h>
/* Included again, after classic.h: the include guards of these headers work. */
#include <fcntl.h>
#include <sys/time.h>

int main(void)
{
    watchdog();
    struct itimerval none = {{0, 0}, {0, 0}}, before;
    CHECK(setitimer(ITIMER_PROF, &none) == 0);
    CHECK(setitimer(ITIMER_PROF, &none, &before) == 0);

    int from = make_file("abc"), to = make_file("");
    CHECK(splice(from, to, SPLICE_EOF) == 3);
    CHECK(lseek(from, 0, SEEK_SET) == 0);

    /* The macro passes other commands to the system's fcntl(2). */
    struct flock lock;
    memset(&lock, 0, sizeof lock);
    lock.l_type = F_WRLCK;
    CHECK(fcntl(from, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK);
    CHECK(fcntl(from, F_GETFD) == FD_CLOEXEC);
    CHECK(fcntl(from, F_SETFD, 0) == 0 && fcntl(from, F_GETFD) == 0);
    CHECK(fcntl(from, F_SETOWN, -getpgrp()) == 0);
    CHECK(fcntl(from, F_SETOWN, 0) == 0);
    int copy = fcntl(from, F_DUPFD_CLOEXEC, 100);
    CHECK(copy >= 100 && close(copy) == 0);

    CHECK((fcntl(from, F_GETFL) & FASYNC) == 0);
    CHECK(fcntl(from, F_SETFL, fcntl(from, F_GETFL) | FASYNC | O_APPEND) == 0);
    CHECK((fcntl(from, F_GETFL) & (FASYNC | O_APPEND)) == (FASYNC | O_APPEND));
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGIO);
    CHECK(sigprocmask(SIG_BLOCK, &signals, NULL) == 0);
    CHECK(splice(from, to, SPLICE_EOF) == 0);
    CHECK(sigwaitinfo(&signals, NULL) == SIGIO);
    struct cord_report report = CORD_REPORT_INIT;
    CHECK(cord_try(cord_last(from), &report) == 1 && report.written == 3);

#ifdef _GNU_SOURCE
    /* The system's splice(2) can still be called. */
    struct channel a = make_pipe();
    loff_t start = 0;
    ssize_t moved = (splice)(from, &start, a.in, NULL, 3, 0);
    if (moved == -1 && (errno == EPERM || errno == ENOSYS)) {
        fprintf(stderr, "SKIPPED: classic, the system's splice: no splice(2) here\n");
    } else {
        CHECK(moved == 3);
        expect(a.out, "abc");
    }
    close(a.in);
    close(a.out);
#endif
    close(from);
    close(to);
    return 0;
}

/* The receiver of the signal: F_SETOWN, F_SETOWN_EX. The tests end a source
 * by closing it: the kernel signals a write(2) only after its bytes can be
 * read, perhaps after the transfer has ended and the flag is restored. */
#include "signals.h"

static void *listen_for(void *signal)
{
    pid_t *thread = (pid_t *)signal;
    __atomic_store_n(thread, (pid_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
    siginfo_t info = next_signal();
    return info.si_signo == SIGRTMIN ? thread : NULL;
}

/* The owner is one thread: no other thread gets the signal. */
static void one_thread(void)
{
    struct channel a = make_pipe(), b = make_pipe();
    pid_t listening = 0;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, listen_for, &listening) == 0);
    pid_t id;
    while ((id = __atomic_load_n(&listening, __ATOMIC_ACQUIRE)) == 0)
        sched_yield();
    struct f_owner_ex owner = {F_OWNER_TID, id};
    CHECK(fcntl(a.out, F_SETSIG, SIGRTMIN) == 0);
    CHECK(fcntl(a.out, F_SETOWN_EX, &owner) == 0);
    set_fasync(a.out);
    CHECK(cord_splice(a.out, b.in, CORD_EOF) == 0);
    close(a.in);
    void *result;
    CHECK(pthread_join(thread, &result) == 0 && result == &listening);
    CHECK(none_pending());
    close(a.out);
    close(b.in);
    close(b.out);
}

/* The owner is a group: every process in it gets the signal. */
static void group(void)
{
    struct channel a = make_pipe(), b = make_pipe(), ready = make_pipe();
    CHECK(setpgid(0, 0) == 0);
    pid_t child = fork();
    if (child == 0) {
        watchdog();
        close(a.in);
        put(ready.in, "r");
        _exit(next_signal().si_signo == SIGIO ? 0 : 1);
    }
    expect(ready.out, "r");
    set_fasync(a.out);
    CHECK(fcntl(a.out, F_SETOWN, -getpgrp()) == 0);
    CHECK(cord_splice(a.out, b.in, CORD_EOF) == 0);
    close(a.in);
    CHECK(next_signal().si_signo == SIGIO);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    close(a.out);
    close(b.in);
    close(b.out);
    close(ready.in);
    close(ready.out);
}

/* Forks a process outside the group, which SIGIO would end. */
static pid_t bystander(int *life)
{
    struct channel ends = make_pipe(), ready = make_pipe();
    pid_t child = fork();
    if (child == 0) {
        watchdog();
        sigset_t none;
        sigemptyset(&none);
        CHECK(setpgid(0, 0) == 0);
        CHECK(sigprocmask(SIG_SETMASK, &none, NULL) == 0);
        close(ends.in);
        put(ready.in, "r");
        char byte;
        _exit(read(ends.out, &byte, 1) == 0 ? 0 : 1);
    }
    expect(ready.out, "r");
    close(ends.out);
    close(ready.in);
    close(ready.out);
    *life = ends.in;
    return child;
}

/* The first process of a PID namespace: its group is group 1. */
static void first_process(void)
{
    CHECK(getpid() == 1);
    CHECK(setpgid(0, 0) == 0 && getpgrp() == 1);
    int life, status;
    pid_t other = bystander(&life);
    pid_t child = fork();
    if (child == 0) {
        watchdog();
        struct channel a = make_pipe(), b = make_pipe();
        set_fasync(a.out);
        CHECK(fcntl(a.out, F_SETOWN, -getpgrp()) == 0);
        CHECK(cord_splice(a.out, b.in, CORD_EOF) == 0);
        cord_transfer t = cord_last(a.out);
        close(a.in);
        CHECK(cord_wait(t, NULL) == 0);
        /* The signal has been sent to the group. */
        struct timespec now = {0, 0};
        CHECK(sigtimedwait(&signals, NULL, &now) == SIGIO);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(next_signal().si_signo == SIGIO);
    close(life);
    CHECK(waitpid(other, &status, 0) == other && status == 0);
}

/* The owner is group 1: for kill(2), -1 means every process. */
static void group_one(void)
{
    pid_t outside = fork();
    if (outside == 0) {
        watchdog();
        if (unshare(CLONE_NEWPID) != 0) {
            fprintf(stderr, "SKIPPED: process group 1: "
                            "a PID namespace needs root\n");
            _exit(0);
        }
        pid_t first = fork();
        if (first == 0) {
            watchdog();
            first_process();
            _exit(0);
        }
        int status;
        CHECK(waitpid(first, &status, 0) == first && status == 0);
        _exit(0);
    }
    int status;
    CHECK(waitpid(outside, &status, 0) == outside && status == 0);
}

/* The owner is another process: this one gets no signal. */
static void another_process(void)
{
    struct channel a = make_pipe(), b = make_pipe();
    pid_t child = fork();
    if (child == 0) {
        watchdog();
        close(a.in);
        siginfo_t info = next_signal();
        _exit(info.si_signo == SIGRTMIN && info.si_fd == a.out ? 0 : 1);
    }
    CHECK(fcntl(a.out, F_SETSIG, SIGRTMIN) == 0);
    CHECK(fcntl(a.out, F_SETOWN, child) == 0);
    set_fasync(a.out);
    CHECK(cord_splice(a.out, b.in, CORD_EOF) == 0);
    close(a.in);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(none_pending());
    close(a.out);
    close(b.in);
    close(b.out);
}

/* The owner has exited during the transfer: no process gets a signal. */
static void owner_has_exited(int set_at_the_start)
{
    struct channel a = make_pipe(), b = make_pipe(), life = make_pipe();
    pid_t child = fork();
    if (child == 0) {
        watchdog();
        close(life.in);
        close(a.in);
        char byte;
        _exit(read(life.out, &byte, 1) == 0 ? 0 : 1);
    }
    set_fasync(a.out);
    if (set_at_the_start)
        CHECK(fcntl(a.out, F_SETOWN, child) == 0);
    CHECK(cord_splice(a.out, b.in, CORD_EOF) == 0);
    cord_transfer t = cord_last(a.out);
    CHECK(fcntl(a.out, F_SETOWN, child) == 0);
    close(life.in);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    close(a.in);
    /* A signal would have been sent before this returns. */
    CHECK(cord_wait(t, NULL) == 0);
    CHECK(none_pending() && has_fasync(a.out));
    CHECK(cord_close(t) == 0);
    close(a.out);
    close(b.in);
    close(b.out);
    close(life.out);
}

int main(void)
{
    watchdog();
    listen_to_signals();
    one_thread();
    group();
    group_one();
    another_process();
    owner_has_exited(1);
    owner_has_exited(0);
    return 0;
}

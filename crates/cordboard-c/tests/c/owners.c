/* Who is told: F_SETOWN, F_SETOWN_EX. The sources end by being closed: a
 * write(2) has the kernel tell of it after its bytes can be read, so perhaps
 * after the transfer has ended and the flag is back. */
#include "signals.h"

static void *listen_for(void *signal)
{
    pid_t *thread = (pid_t *)signal;
    __atomic_store_n(thread, (pid_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
    siginfo_t info = next_signal();
    return info.si_signo == SIGRTMIN ? thread : NULL;
}

/* The owner is one thread: no other gets it. */
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

/* The owner is a group: everyone in it gets it. */
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

/* The owner is another process, and nobody here is told. */
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

/* The owner has gone meanwhile: nobody is told, this process least of all. */
static void an_owner_that_has_gone(int set_at_the_start)
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
    /* Whoever was to be told has been, once this has returned. */
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
    another_process();
    an_owner_that_has_gone(1);
    an_owner_that_has_gone(0);
    return 0;
}

/* scp: copies a file by splice, as the copy program that Fall and Pasquale
 * measured. (Not the program that copies between hosts.)
 *
 *     cc -D_GNU_SOURCE scp.c $(pkg-config --cflags --libs cordboard) -o scp
 *     ./scp FROM TO
 *
 * The copy is asynchronous. This program has no other work and sleeps until
 * SIGIO reports the end. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cordboard/classic.h>

static volatile sig_atomic_t ended;

static void on_sigio(int signal)
{
    (void)signal;
    ended = 1;
}

static int failed(const char *name)
{
    perror(name);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s FROM TO\n", argv[0]);
        return 2;
    }
    int from = open(argv[1], O_RDONLY);
    struct stat stat;
    if (from < 0 || fstat(from, &stat) != 0)
        return failed(argv[1]);
    int to = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC, stat.st_mode & 0777);
    if (to < 0)
        return failed(argv[2]);

    /* Blocked until sigsuspend(), so that it cannot be missed. */
    sigset_t end, before;
    sigemptyset(&end);
    sigaddset(&end, SIGIO);
    sigprocmask(SIG_BLOCK, &end, &before);
    /* The process that has started this one may have blocked it. */
    sigdelset(&before, SIGIO);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_sigio;
    sigaction(SIGIO, &action, NULL);

    if (fcntl(from, F_SETFL, FASYNC) != 0)
        return failed(argv[1]);
    if (splice(from, to, SPLICE_EOF) != 0) {
        fprintf(stderr, "%s: %s\n", argv[0], cord_error());
        return 1;
    }
    while (!ended)
        sigsuspend(&before);

    struct cord_report report = CORD_REPORT_INIT;
    if (cord_wait(cord_last(from), &report) != 0)
        return failed(argv[0]);
    if (report.error != 0) {
        fprintf(stderr, "%s: %s: %s\n", argv[0],
                argv[report.failed == CORD_SINK ? 2 : 1], strerror(report.error));
        return 1;
    }
    /* close() may report a write error. */
    if (close(to) != 0)
        return failed(argv[2]);
    return 0;
}

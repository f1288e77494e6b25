/* cordboard/classic.h: the names of the papers.
 *
 * With this header the example programs of Fall and Pasquale ("Exploiting
 * In-Kernel Data Paths to Improve I/O Throughput and CPU Availability", 1993)
 * compile as printed. New programs use cordboard.h.
 *
 *   splice(source, sink, size)    cord_splice
 *   SPLICE_EOF                    CORD_EOF
 *   fcntl(fd, F_SETFL, FASYNC)    cord_set_flags, which keeps FASYNC on regular
 *                                 files too
 *   setitimer(which, value)       the third argument is optional
 *
 * So do those of the paper on cue().
 *
 *   cue(s, d)                     cord_cue
 *   WRITE                         CORD_CUE_WRITE
 *   write(c, commands, count)     cord_cue_write, which waits for the transfers;
 *                                 write(2) to any other descriptor
 *   connect(sd, &addr, length)    the address is of any type
 *
 * Linux has its own splice(2), with six arguments, declared in <fcntl.h> under
 * _GNU_SOURCE. So these names are macros, and the system's headers are included
 * first; (splice)(...) calls the system's function. The arguments of write and
 * connect may have commas, as in write(c, (int[]){WRITE, 6}, 8). setitimer needs -std=gnu11
 * or -D_GNU_SOURCE, which declare it. */
#ifndef CORDBOARD_CLASSIC_H
#define CORDBOARD_CLASSIC_H

#include <fcntl.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "../cordboard.h"

#ifndef FASYNC
#define FASYNC O_ASYNC
#endif

#define SPLICE_EOF CORD_EOF

#undef splice
#define splice(...) cord_splice(__VA_ARGS__)

static inline int cord_classic_fcntl(int fd, int cmd, uintptr_t argument)
{
    switch (cmd) {
    case F_SETFL:
        return cord_set_flags(fd, (int)argument);
    case F_GETFL:
        return cord_get_flags(fd);
    default:
        return fcntl(fd, cmd, argument);
    }
}

/* Missing arguments become 0. */
#undef fcntl
#define fcntl(...) CORD_CLASSIC_FCNTL(__VA_ARGS__, 0, 0)
#define CORD_CLASSIC_FCNTL(fd, cmd, argument, ...)                             \
    cord_classic_fcntl((fd), (cmd), (uintptr_t)(argument))

#undef setitimer
#define setitimer(...) CORD_CLASSIC_SETITIMER(__VA_ARGS__, 0, 0)
#define CORD_CLASSIC_SETITIMER(which, value, old, ...)                         \
    (setitimer)((which), (value), (old))

#define WRITE ((int)CORD_CUE_WRITE)

#undef cue
#define cue(...) cord_cue(__VA_ARGS__)

#undef write
#define write(...) cord_cue_write(__VA_ARGS__)

static inline int cord_classic_connect(int sd, const void *address,
                                       socklen_t length)
{
    return connect(sd, (const struct sockaddr *)address, length);
}

#undef connect
#define connect(...) cord_classic_connect(__VA_ARGS__)

#endif /* CORDBOARD_CLASSIC_H */

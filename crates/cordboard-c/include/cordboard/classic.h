/* cordboard/classic.h: the papers' own names.
 *
 * With this header the example programs of Fall and Pasquale ("Exploiting
 * In-Kernel Data Paths to Improve I/O Throughput and CPU Availability", 1993)
 * compile as they were printed. A program of today uses cordboard.h.
 *
 *   splice(source, sink, size)    cord_splice
 *   SPLICE_EOF                    CORD_EOF
 *   fcntl(fd, F_SETFL, FASYNC)    keeps FASYNC on regular files too, which
 *                                 Linux does not: cord_set_flags
 *   setitimer(which, value)       the third argument may be left out
 *
 * Linux has a splice(2) of its own, with six arguments, declared in <fcntl.h>
 * under _GNU_SOURCE. So these names are macros, and the system's headers come
 * first; a program that wants both says (splice)(...) for the kernel's. The
 * timer needs the features that declare it: -std=gnu11, or -D_GNU_SOURCE. */
#ifndef CORDBOARD_CLASSIC_H
#define CORDBOARD_CLASSIC_H

#include <fcntl.h>
#include <stdint.h>
#include <sys/time.h>
#include <unistd.h>

#include "../cordboard.h"

#ifndef FASYNC
#define FASYNC O_ASYNC
#endif

#define SPLICE_EOF CORD_EOF

#undef splice
#define splice(source, sink, size) cord_splice((source), (sink), (size))

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

/* What is left out becomes 0. */
#undef fcntl
#define fcntl(...) CORD_CLASSIC_FCNTL(__VA_ARGS__, 0, 0)
#define CORD_CLASSIC_FCNTL(fd, cmd, argument, ...)                             \
    cord_classic_fcntl((fd), (cmd), (uintptr_t)(argument))

#undef setitimer
#define setitimer(...) CORD_CLASSIC_SETITIMER(__VA_ARGS__, 0, 0)
#define CORD_CLASSIC_SETITIMER(which, value, old, ...)                         \
    (setitimer)((which), (value), (old))

#endif /* CORDBOARD_CLASSIC_H */

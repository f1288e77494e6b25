/* Simulates a kernel that cannot compare two open file descriptions: no
 * F_DUPFD_QUERY (before Linux 6.10), and kcmp(2) filtered, as in containers. */
#ifndef BLIND_H
#define BLIND_H

#include "check.h"

#include <endian.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { DUPFD_QUERY = 1024 + 3, FILE_OF_KCMP = 0 };

#ifdef SYS_fcntl64
#define FCNTL SYS_fcntl64
#else
#define FCNTL SYS_fcntl
#endif

/* The filter binds this thread and the threads that it starts. */
static inline void go_blind(void)
{
    const unsigned half = __BYTE_ORDER == __BIG_ENDIAN ? 4 : 0;
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_kcmp, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FCNTL, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                 (unsigned)offsetof(struct seccomp_data, args) + 8 + half),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, DUPFD_QUERY, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof program / sizeof program[0], program};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
    /* The filter works. */
    int copy = dup(0);
    CHECK(fcntl(0, DUPFD_QUERY, copy) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_kcmp, getpid(), getpid(), FILE_OF_KCMP, 0, copy) == -1);
    close(copy);
}

#endif

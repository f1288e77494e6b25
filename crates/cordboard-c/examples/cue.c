/* cue: sends a file to a TCP server, by the example program of the paper on
 * cue().
 *
 *     cc -D_GNU_SOURCE cue.c $(pkg-config --cflags --libs cordboard) -o cue
 *     ./cue PORT        sends 4096000 bytes of the file "file" to 127.0.0.1
 *
 * The statements between the markers are the paper's. It leaves out CSIZE and
 * the address. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cordboard/classic.h>

#define CSIZE 2

static int failed(const char *what)
{
    perror(what);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s PORT\n", argv[0]);
        return 2;
    }
    struct sockaddr_in addr;
    memset(&addr, 0, sizeof addr);
    addr.sin_family = AF_INET;
    addr.sin_port = htons((unsigned short)atoi(argv[1]));
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);

    /* ---- The example begins ---- */
    int sd, fd, c, commands[CSIZE];
    /* Open connections, etc. */
    sd = socket(AF_INET, SOCK_STREAM, 0);
    connect(sd, &addr, sizeof(addr));
    fd = open("file", O_RDONLY);
    c = cue(fd, sd);
    /* At this point the call is ready for transfers. */
    /* Commands to transfer 4000 KB */
    commands[0] = WRITE;
    commands[1] = 4096000;
    /* The following statement starts the transfer */
    write(c, commands, 2 * sizeof(int));
    /* Dismantle the service */
    close(c);
    /* ---- The example ends ---- */

    if (sd < 0 || fd < 0 || c < 0)
        return failed("cue");
    /* The write fails if a transfer does, for example because no server accepts. */
    if (cord_error()[0]) {
        fprintf(stderr, "cue: %s\n", cord_error());
        return 1;
    }
    close(fd);
    return close(sd) == 0 ? 0 : failed("close");
}

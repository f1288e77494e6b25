/* ftpd: a small FTP server, with the change that the paper on cue() describes.
 *
 *     cc -D_GNU_SOURCE ftpd.c $(pkg-config --cflags --libs cordboard) -o ftpd
 *     ./ftpd PORT [K MS]      serves the files of this directory on 127.0.0.1
 *
 * It sends files (RETR) and their names (NLST), and accepts no uploads. A process
 * serves each client. With -DUSER_DRIVEN, a loop that reads and writes sends the
 * files. Otherwise a control descriptor replaces this loop, and K and MS are its
 * schedule: K blocks, then a rest of MS milliseconds.
 *
 * For a server for daily use, see `cordboard serve ftp`. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cordboard/classic.h>

static uint32_t blocks, rest;

/* Returns a listening socket on the loopback interface, and stores its port. */
static int listen_at(unsigned short *port)
{
    struct sockaddr_in addr;
    socklen_t length = sizeof addr;
    int one = 1, sd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memset(&addr, 0, sizeof addr);
    addr.sin_family = AF_INET;
    addr.sin_port = htons(*port);
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (sd < 0)
        return -1;
    setsockopt(sd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(sd, (struct sockaddr *)&addr, sizeof addr) < 0 || listen(sd, 64) < 0 ||
        getsockname(sd, (struct sockaddr *)&addr, &length) < 0) {
        close(sd);
        return -1;
    }
    *port = ntohs(addr.sin_port);
    return sd;
}

/* Sends a file. Returns 0, or -1 and errno. */
static int send_file(int file, int client)
{
#ifdef USER_DRIVEN
    char block[8192];
    ssize_t n;
    while ((n = read(file, block, sizeof block)) > 0)
        if (write(client, block, (size_t)n) < 0)
            return -1;
    return (int)n;
#else
    uint32_t commands[] = {CORD_CUE_SCHEDULE, blocks, rest, CORD_CUE_WRITE_TO_END};
    int c = cue(file, client);
    ssize_t n = c < 0 ? -1 : write(c, commands, sizeof commands);
    int error = errno;
    if (c >= 0)
        close(c);
    errno = error;
    return n < 0 ? -1 : 0;
#endif
}

__attribute__((format(printf, 2, 3))) static void reply(FILE *out, const char *format, ...)
{
    va_list words;
    va_start(words, format);
    vfprintf(out, format, words);
    va_end(words);
    fputs("\r\n", out);
    fflush(out);
}

/* Opens a regular file of this directory. */
static int open_file(const char *name)
{
    struct stat about;
    int fd;
    if (strchr(name, '/') || name[0] == '.') {
        errno = EACCES;
        return -1;
    }
    fd = open(name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &about) < 0 || !S_ISREG(about.st_mode))) {
        close(fd);
        errno = EACCES;
        return -1;
    }
    return fd;
}

static void retrieve(FILE *out, int data, const char *name)
{
    int file = open_file(name), client, sent, error;
    if (file < 0) {
        reply(out, "550 %s: %s", name, strerror(errno));
        return;
    }
    reply(out, "150 Sending %s", name);
    client = accept(data, NULL, NULL);
    sent = client < 0 ? -1 : send_file(file, client);
    error = errno;
    if (client >= 0)
        close(client);
    close(file);
    if (sent == 0)
        reply(out, "226 Sent");
    else
        reply(out, "%d %s", client < 0 ? 425 : 426, strerror(error));
}

static void names(FILE *out, int data)
{
    DIR *folder = opendir(".");
    FILE *list;
    struct dirent *entry;
    int client;
    reply(out, "150 Sending the names");
    client = accept(data, NULL, NULL);
    list = client < 0 ? NULL : fdopen(client, "w");
    while (folder && list && (entry = readdir(folder)))
        if (entry->d_name[0] != '.')
            fprintf(list, "%s\r\n", entry->d_name);
    if (folder)
        closedir(folder);
    if (list && fclose(list) == 0)
        reply(out, "226 Sent");
    else
        reply(out, "426 %s", strerror(errno));
}

static void serve(int control)
{
    FILE *in = fdopen(control, "r"), *out = fdopen(dup(control), "w");
    char line[1024];
    int data = -1;
    if (!in || !out)
        return;
    reply(out, "220 ftpd");
    while (fgets(line, sizeof line, in)) {
        char *name = line + strcspn(line, " \r\n");
        unsigned short port = 0;
        int more = *name == ' ';
        *name = 0;
        name += more;
        name[strcspn(name, "\r\n")] = 0;
        if (!strcasecmp(line, "USER"))
            reply(out, "331 Any password");
        else if (!strcasecmp(line, "PASS"))
            reply(out, "230 Read-only");
        else if (!strcasecmp(line, "TYPE"))
            reply(out, *name == 'I' || *name == 'A' ? "200 Bytes are not changed" : "504 No");
        else if (!strcasecmp(line, "PWD"))
            reply(out, "257 \"/\"");
        else if (!strcasecmp(line, "EPSV") || !strcasecmp(line, "PASV")) {
            if (data >= 0)
                close(data);
            data = listen_at(&port);
            if (data < 0)
                reply(out, "425 %s", strerror(errno));
            else if (line[0] == 'E' || line[0] == 'e')
                reply(out, "229 (|||%u|)", (unsigned)port);
            else
                reply(out, "227 (127,0,0,1,%u,%u)", port / 256u, port % 256u);
        } else if (!strcasecmp(line, "QUIT")) {
            reply(out, "221 Goodbye");
            break;
        } else if (!strcasecmp(line, "RETR") || !strcasecmp(line, "NLST")) {
            if (data < 0) {
                reply(out, "425 PASV or EPSV first");
                continue;
            }
            if (line[0] == 'R' || line[0] == 'r')
                retrieve(out, data, name);
            else
                names(out, data);
            close(data);
            data = -1;
        } else
            reply(out, "502 No such command");
    }
    fclose(in);
    fclose(out);
}

int main(int argc, char **argv)
{
    unsigned short port;
    int listener, client;
    if (argc != 2 && argc != 4) {
        fprintf(stderr, "usage: %s PORT [K MS]\n", argv[0]);
        return 2;
    }
    port = (unsigned short)atoi(argv[1]);
    if (argc == 4) {
        blocks = (uint32_t)atoi(argv[2]);
        rest = (uint32_t)atoi(argv[3]);
    }
    signal(SIGCHLD, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    listener = listen_at(&port);
    if (listener < 0) {
        perror("listen");
        return 1;
    }
    printf("%u\n", (unsigned)port);
    fflush(stdout);
    while ((client = accept(listener, NULL, NULL)) >= 0 || errno == EINTR) {
        if (client >= 0 && fork() == 0) {
            close(listener);
            serve(client);
            _exit(0);
        }
        if (client >= 0)
            close(client);
    }
    perror("accept");
    return 1;
}

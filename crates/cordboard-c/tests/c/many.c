/* A thousand transfers, none of which leaks a descriptor. */
#include "check.h"

#include <dirent.h>

enum { AT_ONCE = 50, ROUNDS = 20 };

static int descriptors(void)
{
    int n = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder);
    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

static void round_of(int length)
{
    struct channel a[AT_ONCE], b[AT_ONCE];
    cord_transfer t[AT_ONCE];
    char text[64];
    for (int i = 0; i < AT_ONCE; i++) {
        a[i] = make_pipe();
        b[i] = make_pipe();
        struct cord_request request = CORD_REQUEST_INIT(a[i].out, b[i].in);
        t[i] = cord_start(&request);
        CHECK(t[i] > 0);
        close(a[i].out);
        close(b[i].in);
    }
    for (int i = 0; i < AT_ONCE; i++) {
        snprintf(text, sizeof text, "%0*d", length, i);
        put(a[i].in, text);
        close(a[i].in);
    }
    for (int i = AT_ONCE - 1; i >= 0; i--) {
        struct cord_report report = CORD_REPORT_INIT;
        CHECK(cord_wait(t[i], &report) == 0);
        CHECK(report.written == (uint64_t)length && report.error == 0);
        snprintf(text, sizeof text, "%0*d", length, i);
        expect(b[i].out, text);
        CHECK(cord_close(t[i]) == 0);
        close(b[i].out);
    }
}

int main(void)
{
    watchdog();
    /* The first round opens the descriptors that the library keeps. */
    round_of(2);
    int before = descriptors();
    for (int i = 1; i < ROUNDS; i++)
        round_of(2 + i);
    /* The engine closes the last duplicates shortly after the end. A leak of one
     * per transfer would be a thousand. */
    while (descriptors() > before + 8)
        sched_yield();
    return 0;
}

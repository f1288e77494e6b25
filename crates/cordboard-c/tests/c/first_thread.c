/* A program whose first thread has ended: in procfs it is a zombie without descriptors. */
#include "check.h"

#include <pthread.h>

static void until_the_first_has_ended(void)
{
    char name[64], line[512];
    snprintf(name, sizeof name, "/proc/%d/stat", (int)getpid());
    do {
        sched_yield();
        FILE *file = fopen(name, "r");
        CHECK(file && fgets(line, sizeof line, file));
        fclose(file);
    } while (!strstr(line, ") Z "));
}

/* More files than those after which closed ones are removed. */
static void *emulates(void *user)
{
    (void)user;
    until_the_first_has_ended();
    int files[100];
    for (int i = 0; i < 100; i++) {
        files[i] = make_file("");
        CHECK(cord_set_flags(files[i], O_ASYNC) == 0);
    }
    for (int i = 0; i < 100; i++) {
        CHECK((cord_get_flags(files[i]) & O_ASYNC) != 0);
        close(files[i]);
    }
    exit(0);
}

int main(void)
{
    watchdog();
    pthread_t other;
    CHECK(pthread_create(&other, NULL, emulates, NULL) == 0);
    pthread_exit(NULL);
}

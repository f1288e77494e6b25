/* With -DPLUGIN: a shared object that contains the archive. Without: a program that loads it, runs
 * a transfer and closes it. */
#ifdef PLUGIN

#include <cordboard.h>
#include <unistd.h>

int moves(void)
{
    int in[2], out[2];
    if (pipe(in) != 0 || pipe(out) != 0)
        return 0;
    struct cord_request request = CORD_REQUEST_INIT(in[0], out[1]);
    cord_transfer t = cord_start(&request);
    if (write(in[1], "abc", 3) != 3)
        return 0;
    close(in[1]);
    struct cord_report report = CORD_REPORT_INIT;
    return cord_wait(t, &report) == 0 && report.written == 3 && cord_close(t) == 0;
}

#else

#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments)
{
    if (count != 2)
        return 2;
    void *plugin = dlopen(arguments[1], RTLD_NOW);
    if (!plugin) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int (*moves)(void);
    *(void **)&moves = dlsym(plugin, "moves");
    if (!moves || !moves() || dlclose(plugin) != 0)
        return 1;
    /* The code of the threads is still mapped. */
    return dlopen(arguments[1], RTLD_NOW | RTLD_NOLOAD) == NULL;
}

#endif

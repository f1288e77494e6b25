/* FASYNC on a kernel that cannot compare open file descriptions. */
#include "blind.h"
#include "signals.h"

/* The flag is restored, the next splice is asynchronous again, and no
 * descriptor of the library holds the sink open. (The bytes are written
 * before the splice starts: the kernel signals a write(2) too, perhaps after
 * the end of the transfer.) */
static void flag_and_end(void)
{
    struct channel a = make_pipe(), b = make_pipe();
    put(a.in, "abcabcabc");
    set_fasync(a.out);
    for (int i = 0; i < 3; i++) {
        CHECK(cord_splice(a.out, b.in, 3) == 0);
        siginfo_t info = next_signal();
        CHECK(info.si_fd == a.out && has_fasync(a.out));
        expect(b.out, "abc");
    }
    struct channel sink = make_pipe();
    set_fasync(sink.in);
    CHECK(cord_splice(a.out, sink.in, CORD_EOF) == 0);
    close(a.in);
    siginfo_t info = next_signal();
    CHECK(info.si_fd == a.out || info.si_fd == sink.in);
    close(sink.in);
    char byte;
    CHECK(read(sink.out, &byte, 1) == 0);
    close(sink.out);
    close(a.out);
    close(b.in);
    close(b.out);
}

/* Two transfers on one number share the flag. */
static void shared(void)
{
    struct channel a = make_pipe(), b = make_pipe(), sink = make_pipe();
    set_fasync(sink.in);
    CHECK(cord_splice(a.out, sink.in, CORD_EOF) == 0);
    CHECK(!has_fasync(sink.in) && (cord_get_flags(sink.in) & O_ASYNC));
    CHECK(cord_splice(b.out, sink.in, CORD_EOF) == 0);
    close(a.in);
    next_signal();
    CHECK(!has_fasync(sink.in) && none_pending());
    close(b.in);
    next_signal();
    CHECK(has_fasync(sink.in) && none_pending());
    close(a.out);
    close(b.out);
    close(sink.in);
    close(sink.out);
}

/* If the number refers to another file by then, that file keeps its flags. */
static void number_taken_by_another(void)
{
    struct channel a = make_pipe(), b = make_pipe(), other = make_pipe();
    set_fasync(a.out);
    int copy = dup(a.out), number = a.out;
    CHECK(cord_splice(a.out, b.in, CORD_EOF) == 0);
    CHECK(dup2(other.out, number) == number);
    CHECK((cord_get_flags(number) & O_ASYNC) == 0);
    close(a.in);
    CHECK(next_signal().si_fd == number);
    CHECK(has_fasync(copy) && !has_fasync(number));
    close(copy);
    close(number);
    close(b.in);
    close(b.out);
    close(other.in);
    close(other.out);
}

/* Regular files, whose flag is emulated: a splice leaks no descriptor. */
static void files(void)
{
    int from = make_file("abc"), to = make_file("");
    CHECK(cord_set_flags(from, O_ASYNC) == 0);
    int lowest = 0;
    for (int i = 0; i < 20; i++) {
        CHECK(lseek(from, 0, SEEK_SET) == 0);
        CHECK(cord_splice(from, to, CORD_EOF) == 0);
        CHECK(next_signal().si_fd == from);
        /* The engine closes its duplicates shortly after the signal. */
        int free;
        do {
            sched_yield();
            free = dup(from);
            CHECK(free >= 0 && close(free) == 0);
        } while (i > 0 && free > lowest + 4);
        if (i == 0)
            lowest = free;
    }
    CHECK(cord_set_flags(from, 0) == 0);
    CHECK(lseek(from, 0, SEEK_SET) == 0);
    CHECK(cord_splice(from, to, CORD_EOF) == 3);
    close(from);
    close(to);
}

int main(void)
{
    watchdog();
    go_blind();
    listen_to_signals();
    flag_and_end();
    shared();
    number_taken_by_another();
    files();
    return 0;
}

/* player: plays a movie, audio and video, as Figure 1 of Fall and Pasquale's
 * paper on splice(). The lines between the two markers are the figure as
 * printed; the code around them is what it leaves out.
 *
 *     cc -D_GNU_SOURCE player.c $(pkg-config --cflags --libs cordboard) -o player
 *     SPEAKER=audio.fifo VIDEO_DAC=video.fifo ./player [FRAMES_PER_SECOND]
 *
 * Plays movie.audio and movie.video of the working directory. Few machines have
 * a /dev/speaker that takes samples, so the environment names the devices: a
 * path, or fd:N for an open descriptor (a socket cannot be opened by its path).
 * A higher rate is fast forward, a lower one slow motion. The exit status is 0
 * if all of the audio and of the video was written. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cordboard/classic.h>

/* One frame: 64 x 48 pixels of one byte. */
typedef struct {
    unsigned char pixels[48][64];
} frame;

static volatile sig_atomic_t audio_ended;

static void on_sigio(int signal)
{
    (void)signal;
    audio_ended = 1;
}

static void on_sigalrm(int signal)
{
    (void)signal; /* Only interrupts pause(). */
}

static void handle(int signal, void (*handler)(int))
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    if (sigaction(signal, &action, NULL) != 0) {
        perror("sigaction");
        exit(1);
    }
}

/* open(), with the devices that the environment names. */
static int open_device(const char *name, int flags)
{
    const char *place = name;
    if (strcmp(name, "/dev/speaker") == 0 && getenv("SPEAKER"))
        place = getenv("SPEAKER");
    if (strcmp(name, "/dev/video_dac") == 0 && getenv("VIDEO_DAC"))
        place = getenv("VIDEO_DAC");
    int fd = strncmp(place, "fd:", 3) == 0 ? dup(atoi(place + 3)) : open(place, flags);
    if (fd < 0) {
        perror(place);
        exit(1);
    }
    return fd;
}
#define open(name, flags) open_device(name, flags)

int main(int argc, char **argv)
{
    double rate = argc > 1 ? atof(argv[1]) : 25;
    if (!(rate >= 0.001 && rate <= 100000)) {
        fprintf(stderr, "usage: %s [FRAMES_PER_SECOND]\n", argv[0]);
        return 2;
    }
    double interval = 1 / rate;
    struct itimerval inter_frame_time;
    inter_frame_time.it_interval.tv_sec = (time_t)interval;
    inter_frame_time.it_interval.tv_usec =
        (suseconds_t)((interval - (double)(time_t)interval) * 1e6);
    inter_frame_time.it_value = inter_frame_time.it_interval;
    frame video_frame;
    ssize_t rval;

    /* SIGIO is blocked: the end of the audio would interrupt pause() before the
     * next frame is due. It has a handler because an unhandled SIGIO ends a
     * process on Linux; the paper's system ignored it. */
    sigset_t end_of_audio, before;
    sigemptyset(&end_of_audio);
    sigaddset(&end_of_audio, SIGIO);
    sigprocmask(SIG_BLOCK, &end_of_audio, &before);
    /* The process that has started this one may have blocked both. */
    sigdelset(&before, SIGIO);
    sigdelset(&before, SIGALRM);
    sigset_t next_frame;
    sigemptyset(&next_frame);
    sigaddset(&next_frame, SIGALRM);
    sigprocmask(SIG_UNBLOCK, &next_frame, NULL);
    handle(SIGIO, on_sigio);
    handle(SIGALRM, on_sigalrm);

    /* ---- Figure 1 begins ---- */
    int audiofile, videofile;
    int audio_dev, video_dev;

    audiofile = open("movie.audio", O_RDONLY);
    videofile = open("movie.video", O_RDONLY);

    audio_dev = open("/dev/speaker", O_WRONLY);
    video_dev = open("/dev/video_dac", O_WRONLY);

    fcntl(audiofile, F_SETFL, FASYNC);

    splice(audiofile, audio_dev, SPLICE_EOF);

    setitimer(ITIMER_REAL, &inter_frame_time);
    do {
        rval = splice(videofile, video_dev, sizeof(video_frame));
        pause();
    } while (rval > 0);
    /* ---- Figure 1 ends ---- */

    if (rval < 0) {
        fprintf(stderr, "video: %s\n", cord_error());
        return 1;
    }
    memset(&inter_frame_time, 0, sizeof inter_frame_time);
    setitimer(ITIMER_REAL, &inter_frame_time);
    /* If the audio did not start, there is no handle, and no signal to wait for. */
    cord_transfer audio = cord_last(audiofile);
    if (audio < 0) {
        fprintf(stderr, "audio: %s\n", cord_error());
        return 1;
    }
    while (!audio_ended)
        sigsuspend(&before);

    struct cord_report report = CORD_REPORT_INIT;
    if (cord_wait(audio, &report) != 0) {
        fprintf(stderr, "audio: %s\n", cord_error());
        return 1;
    }
    if (report.error != 0) {
        fprintf(stderr, "audio: %s\n", strerror(report.error));
        return 1;
    }
    printf("audio: %llu bytes by %s\n", (unsigned long long)report.written,
           report.path);
    return 0;
}

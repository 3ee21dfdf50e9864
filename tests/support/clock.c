/* A server's clock as a test sets it: preloaded, it answers every question for the time of day with the microseconds
 * that the file of $ECHOMQ_CLOCK holds. Timers of the server itself go by another clock and run on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *frozen;

__attribute__((constructor)) static void open_clock(void) {
    const char *path = getenv("ECHOMQ_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) abort();
    void *page = mmap(NULL, sizeof *frozen, PROT_READ, MAP_SHARED, file, 0);
    if (page == MAP_FAILED) abort();
    close(file);
    frozen = page;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
    (void)zone;
    tv->tv_sec = (time_t)(*frozen / 1000000);
    tv->tv_usec = (suseconds_t)(*frozen % 1000000);
    return 0;
}

int clock_gettime(clockid_t clock, struct timespec *ts) {
    static int (*real)(clockid_t, struct timespec *);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) {
        ts->tv_sec = (time_t)(*frozen / 1000000);
        ts->tv_nsec = (long)(*frozen % 1000000) * 1000;
        return 0;
    }
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    return real(clock, ts);
}

time_t time(time_t *out) {
    time_t now = (time_t)(*frozen / 1000000);
    if (out) *out = now;
    return now;
}

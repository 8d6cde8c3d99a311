/* Loaded before the C library (LD_PRELOAD): the time of day is CLOCK_AHEAD seconds later. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) {
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    }
    int result = real(clock, time);
    const char *ahead = getenv("CLOCK_AHEAD");
    if (result == 0 && clock == CLOCK_REALTIME && ahead) {
        time->tv_sec += atoll(ahead);
    }
    return result;
}

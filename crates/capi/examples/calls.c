/* Compares the time of short copies with that of memcpy. Run it on an idle machine.
 *   cc -O2 calls.c $(pkg-config --cflags --libs thalweg) -o calls
 *   calls [PROFILE]
 * The program calls each function directly: first with one length at a time, then with random lengths up to 256 bytes,
 * whose logarithms are distributed uniformly. A round measures each function once, in random order. It measures memcpy
 * twice, which shows the noise. The program prints memcpy's time divided by the function's time: the median and the first
 * quartile of the rounds. With PROFILE, thalweg uses the kernels that the profile selects. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thalweg.h>
#include <time.h>

enum { ROUNDS = 41, WAYS = 4, LENGTHS = 4096, TIMES = 10 * LENGTHS };

static uint16_t lengths[LENGTHS];
/* Source and sink have different offsets within a page. Otherwise the processor could delay a load, because it seems to
 * depend on the preceding store. */
static unsigned char source[4096] __attribute__((aligned(4096))), sink[2048] __attribute__((aligned(4096)));

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

#define WAY(name, copy)                                                  \
    static __attribute__((noinline)) double name(void)                   \
    {                                                                    \
        double begin = now_ns();                                         \
        for (size_t n = 0; n < TIMES; n++)                               \
            copy(sink, source + 2048, lengths[n % LENGTHS]);             \
        return now_ns() - begin;                                         \
    }
WAY(by_memcpy, memcpy)
WAY(by_memcpy_again, memcpy)
WAY(by_tw_memcpy, tw_memcpy)
WAY(by_function, (tw_memcpy))

static double (*const ways[WAYS])(void) = { by_memcpy, by_memcpy_again, by_tw_memcpy, by_function };
static const char *const names[WAYS] = { "memcpy", "memcpy again", "tw_memcpy", "(tw_memcpy)" };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void compare(const char *what)
{
    double taken[WAYS][ROUNDS], ratios[ROUNDS];

    for (int way = 0; way < WAYS; way++)
        ways[way]();
    for (int round = 0; round < ROUNDS; round++) {
        int order[WAYS] = { 0, 1, 2, 3 };
        for (int left = WAYS; left > 1; left--) {
            int with = rand() % left, last = order[left - 1];
            order[left - 1] = order[with];
            order[with] = last;
        }
        for (int n = 0; n < WAYS; n++)
            taken[order[n]][round] = ways[order[n]]();
    }
    printf("%-8s", what);
    for (int way = 1; way < WAYS; way++) {
        for (int round = 0; round < ROUNDS; round++)
            ratios[round] = taken[0][round] / taken[way][round];
        qsort(ratios, ROUNDS, sizeof *ratios, by_size);
        printf("  %s %.2f [%.2f]", names[way], ratios[ROUNDS / 2], ratios[ROUNDS / 4]);
    }
    qsort(taken[0], ROUNDS, sizeof **taken, by_size);
    printf("  memcpy %.2f ns\n", taken[0][ROUNDS / 2] / TIMES);
}

int main(int argc, char **argv)
{
    static const uint16_t repeated[] = { 1, 4, 8, 16, 24, 32, 48, 64, 100, 128, 200, 256, 1000 };
    tw_profile *profile = NULL;
    tw_error error;

    if (argc > 1 && tw_profile_load(argv[1], &profile, &error) != TW_OK) {
        fprintf(stderr, "calls: %s\n", error.message);
        return 1;
    }
    for (size_t n = 0; n < sizeof repeated / sizeof *repeated; n++) {
        char what[8];
        for (size_t at = 0; at < LENGTHS; at++)
            lengths[at] = repeated[n];
        snprintf(what, sizeof what, "%u", repeated[n]);
        compare(what);
    }
    for (size_t at = 0; at < LENGTHS; at++) {
        unsigned top = 1u << rand() % 8;
        lengths[at] = (uint16_t)(top + (unsigned)rand() % top);
    }
    compare("drawn");
    tw_profile_free(profile);
    return 0;
}

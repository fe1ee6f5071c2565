/* Copies in memory, with the C library or with thalweg. Prints the wall time and the CPU time of the copies in nanoseconds.
 *   copies libc|thalweg BYTES TIMES
 * THALWEG_PROFILE must be a profile with faster kernels. The memory of source and destination was used before. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thalweg.h>
#include <time.h>

static uint64_t now(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* The barrier keeps the compiler from leaving out copies whose result is not read. */
#define COPIES(name, copy)                                                                       \
    static __attribute__((noinline)) void name(unsigned char *to, const unsigned char *from, size_t bytes, size_t times) \
    {                                                                                            \
        for (size_t n = 0; n < times; n++) {                                                     \
            copy(to, from, bytes);                                                               \
            __asm__ volatile("" ::: "memory");                                                   \
        }                                                                                        \
    }
COPIES(by_libc, memcpy)
COPIES(by_thalweg, tw_memcpy)

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    size_t bytes = strtoull(argv[2], NULL, 10), times = strtoull(argv[3], NULL, 10), pages = (bytes / 4096 + 2) * 4096;
    unsigned char *from = aligned_alloc(4096, pages), *to = aligned_alloc(4096, pages);
    int is_ours = strcmp(argv[1], "thalweg") == 0;
    tw_profile *profile = NULL;
    tw_error error = { 0 };

    if (!from || !to)
        return 1;
    if (is_ours && (tw_profile_load(NULL, &profile, &error) != TW_OK || !profile)) {
        fprintf(stderr, "copies: no profile: %s\n", error.message);
        return 1;
    }
    for (size_t n = 0; n < pages; n++)
        from[n] = (unsigned char)(n * 31 + n / 251);
    memset(to, 0, pages);
    /* With equal offsets within a page, the processor could delay a load, because it seems to depend on the preceding store. */
    to += 2048;
    uint64_t wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    (is_ours ? by_thalweg : by_libc)(to, from, bytes, times);
    wall = now(CLOCK_MONOTONIC) - wall;
    cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    if (memcmp(from, to, bytes) != 0) {
        fputs("copies: wrong bytes\n", stderr);
        return 1;
    }
    printf("%" PRIu64 " %" PRIu64 "\n", wall, cpu);
    return 0;
}

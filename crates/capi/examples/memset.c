/* Compares tw_memset with the C library's memset. Run it on an idle machine.
 *   cc -O2 memset.c $(pkg-config --cflags --libs thalweg) -o memset
 *   memset [BYTES...]         default: 65536 and 1073741824
 * A round measures tw_memset once and memset twice, in random order. The second memset shows the noise. The program prints
 * the median times, and the median and the quartiles of the ratios within rounds. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <thalweg.h>
#include <time.h>

enum { ROUNDS = 15, ARMS = 3 };

/* Calls go through volatile pointers, so that the compiler cannot replace them by other code. */
static void *(*volatile const arms[ARMS])(void *, int, size_t) = { memset, memset, tw_memset };

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double sample(int arm, void *memory, size_t bytes)
{
    /* Each sample fills at least 256 MiB, so that the time for reading the clock is negligible. */
    size_t times = ((size_t)1 << 28) / bytes + 1;
    double begin = now_ns();

    for (size_t n = 0; n < times; n++)
        arms[arm](memory, (int)n, bytes);
    return (now_ns() - begin) / (double)times;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void print_ratio(const char *names, double taken[ARMS][ROUNDS], int arm)
{
    double ratios[ROUNDS];

    for (int round = 0; round < ROUNDS; round++)
        ratios[round] = taken[arm][round] / taken[0][round];
    qsort(ratios, ROUNDS, sizeof *ratios, by_size);
    printf("    %s: %.3f [%.3f, %.3f]\n", names, ratios[ROUNDS / 2], ratios[ROUNDS / 4], ratios[ROUNDS - 1 - ROUNDS / 4]);
}

static int compare(size_t bytes)
{
    double taken[ARMS][ROUNDS];
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

    if (memory == MAP_FAILED) {
        perror("memset: mmap");
        return 1;
    }
    for (int arm = 0; arm < ARMS; arm++)
        sample(arm, memory, bytes);
    for (int round = 0; round < ROUNDS; round++) {
        int order[ARMS] = { 0, 1, 2 };
        for (int left = ARMS; left > 1; left--) {
            int with = rand() % left, last = order[left - 1];
            order[left - 1] = order[with];
            order[with] = last;
        }
        for (int n = 0; n < ARMS; n++)
            taken[order[n]][round] = sample(order[n], memory, bytes);
    }
    munmap(memory, bytes);
    printf("%zu bytes\n", bytes);
    print_ratio("memset again / memset", taken, 1);
    print_ratio("tw_memset / memset", taken, 2);
    qsort(taken[0], ROUNDS, sizeof **taken, by_size);
    qsort(taken[2], ROUNDS, sizeof **taken, by_size);
    printf("    memset %.1f ns, tw_memset %.1f ns\n", taken[0][ROUNDS / 2], taken[2][ROUNDS / 2]);
    return 0;
}

int main(int argc, char **argv)
{
    int failed = 0;

    if (argc == 1)
        return compare(1 << 16) | compare((size_t)1 << 30);
    for (int n = 1; n < argc; n++) {
        unsigned long long bytes = strtoull(argv[n], NULL, 0);
        if (bytes == 0 || bytes > (unsigned long long)PTRDIFF_MAX) {
            fprintf(stderr, "usage: %s [BYTES...]\n", argv[0]);
            return TW_USAGE;
        }
        failed |= compare((size_t)bytes);
    }
    return failed;
}

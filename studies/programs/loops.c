/* Study 004: the article's simple_memcpy as a compiler makes it, against memcpy.
 *
 * One operation is one copy of `bytes`. The length is known when this is compiled, or not; what was
 * copied is read back at once, or not. Pairs of buffers follow one another over `span` bytes. */
#include "worker.h"

#include <stddef.h>
#include <sys/mman.h>

enum loop { SIMPLE, MEMCPY };
static const char *const loops[] = { "simple", "memcpy", NULL };
enum use { COPY, READ_BACK };
static const char *const uses[] = { "copy", "read-back", NULL };

static enum loop loop;
static enum use use;
static uint64_t bytes, span, offset;
static int constant, spoil;

static uint64_t pairs, stride;
static uint8_t *sources, *sinks;
static volatile uint64_t seen;

/* As in the article. */
static void *simple_memcpy(void *dst, const void *src, size_t n)
{
    const uint8_t *_src = src;
    uint8_t *_dst = dst;
    size_t i;

    for (i = 0; i < n; ++i)
        _dst[i] = _src[i];

    return dst;
}

/* Nothing of a copy is left out because nobody looks, and no two are made one. */
#define KEPT(pointer) __asm__ volatile("" : : "r"(pointer) : "memory")

#define PASS(COPY_ONE, LENGTH)                                                        \
    for (uint32_t n = 0; n < times; n++) {                                            \
        uint8_t *to = sinks + at * stride + offset;                                   \
        const uint8_t *from = sources + at * stride;                                  \
        COPY_ONE(to, from, LENGTH);                                                   \
        KEPT(to);                                                                     \
        if (use == READ_BACK)                                                         \
            sum += (uint64_t)(to[0] + to[(LENGTH) / 2] + to[(LENGTH) - 1]);           \
        at = at + 1 == pairs ? 0 : at + 1;                                            \
    }

#define LENGTHS(COPY_ONE)                                                             \
    if (!constant) {                                                                  \
        PASS(COPY_ONE, bytes)                                                         \
        return sum;                                                                   \
    }                                                                                 \
    switch (bytes) {                                                                  \
    case 16: PASS(COPY_ONE, 16) break;                                                \
    case 64: PASS(COPY_ONE, 64) break;                                                \
    case 256: PASS(COPY_ONE, 256) break;                                              \
    case 1024: PASS(COPY_ONE, 1024) break;                                            \
    case 4096: PASS(COPY_ONE, 4096) break;                                            \
    }

static uint64_t pass_simple(uint32_t times)
{
    uint64_t sum = 0, at = 0;
    LENGTHS(simple_memcpy)
    return sum;
}

static uint64_t pass_memcpy(uint32_t times)
{
    uint64_t sum = 0, at = 0;
    LENGTHS(memcpy)
    return sum;
}

static uint64_t pass(uint32_t times)
{
    return loop == SIMPLE ? pass_simple(times) : pass_memcpy(times);
}

static uint8_t *memory(uint64_t length)
{
    void *p = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        worker_unfit("mmap of %" PRIu64 " bytes: %s", length, strerror(errno));
    return p;
}

static void warm(void)
{
    worker_needs(2 * pairs * stride);
    sources = memory(pairs * stride);
    sinks = memory(pairs * stride);
    for (uint64_t at = 0; at < pairs * stride; at++)
        sources[at] = (uint8_t)(at * 7 + at / 251);
    memset(sinks, 0, pairs * stride);
    seen = pass(pairs < UINT32_MAX ? (uint32_t)pairs : UINT32_MAX);
}

static void run(uint32_t times, struct cost *cost)
{
    struct worker_mark mark = worker_begin();
    seen = pass(times);
    worker_end(&mark, cost);
    cost->bytes = bytes * times;
}

static const char *check(void)
{
    memset(sinks, 0xee, pairs * stride);
    pass(1);
    if (spoil)
        sinks[offset + bytes / 2] ^= 1;
    if (memcmp(sinks + offset, sources, bytes))
        return "the sink does not hold what the source holds";
    for (uint64_t at = 0; at < stride; at++)
        if ((at < offset || at >= offset + bytes) && sinks[at] != 0xee)
            return "bytes beside the sink were written";
    return NULL;
}

int main(int argc, char **argv)
{
    worker_parameters(argc, argv, "loop use constant offset span spoil bytes scratch ");
    loop = (enum loop)worker_choice("loop", loops);
    use = (enum use)worker_choice("use", uses);
    bytes = worker_number("bytes", 256);
    span = worker_number("span", 0);
    offset = worker_number("offset", 0);
    constant = worker_number("constant", 0) != 0;
    spoil = worker_number("spoil", 0) != 0;
    if (!bytes || bytes > 1u << 30 || offset > 4096 || span > (uint64_t)1 << 40)
        worker_unfit("bytes are to be 1 to 2^30, offset at most 4096, span at most 2^40");
    if (constant && bytes != 16 && bytes != 64 && bytes != 256 && bytes != 1024 && bytes != 4096)
        worker_unfit("constant=1: compiled for 16, 64, 256, 1024 and 4096 bytes");
    stride = (bytes + offset + 63) / 64 * 64;
    pairs = span / 2 / stride;
    if (!pairs)
        pairs = 1;
    struct worker worker = { .warm = warm, .run = run, .check = check };
    return worker_main(&worker);
}

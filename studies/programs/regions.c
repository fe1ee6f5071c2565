/* Study 001: writes to a region of memory, shared or not, by the article's own loops.
 *
 * One operation is `writes` writes of one byte each at random places, or `clears` clearings of the region.
 * The generator alone can be run as well: it is most of the loop. Or nothing is done to the region, to
 * see what it takes by itself. */
#define _GNU_SOURCE
#include "worker.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#define MARK ((char)0x55) /* 0b01010101, as in the article */
#define SEED 1u           /* what rand() has without srand() */

enum kind { FILE_MAP, SYSV, POSIX, MEMFD, MEMFD_HUGE, ANON, ANON_HUGE };
static const char *const kinds[] = { "file", "sysv", "posix", "memfd", "memfd-huge", "anon", "anon-huge", NULL };
enum action { RANDOM, GENERATOR, XORSHIFT, XORSHIFT_ALONE, CLEAR, NONE };
static const char *const actions[] = { "random", "generator", "xorshift", "xorshift-alone", "clear", "none", NULL };

static enum kind kind;
static enum action action;
static uint64_t bytes, writes, clears;
/* Every operation on a new region; the file written before it is mapped; its pages written back all
 * the time meanwhile; a byte spoiled before it is checked, for tests of the check. */
static int fresh, prewritten, flushed, spoil;
static char path[4096];

static char *region;
static int region_fd = -1;
static volatile uint64_t sink;

/* ---- the region ---- */

static void *mapped(int fd, int flags)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (p == MAP_FAILED)
        worker_unfit("mmap of %s, %" PRIu64 " bytes: %s", kinds[kind], bytes, strerror(errno));
    return p;
}

static void sized(int fd)
{
    if (fd < 0)
        worker_unfit("%s: cannot be made: %s", kinds[kind], strerror(errno));
    if (ftruncate(fd, (off_t)bytes))
        worker_unfit("ftruncate of %s to %" PRIu64 ": %s", kinds[kind], bytes, strerror(errno));
}

/* With whole blocks, so that a file system that has large folios uses them. */
static void prewrite(int fd)
{
    static char block[256 << 10];
    for (uint64_t at = 0; at < bytes;) {
        uint64_t left = bytes - at;
        ssize_t n = pwrite(fd, block, left < sizeof block ? left : sizeof block, (off_t)at);
        if (n <= 0)
            worker_unfit("pwrite of %s at %" PRIu64 ": %s", path, at, strerror(errno));
        at += (uint64_t)n;
    }
}

static void *sysv(void)
{
    int id = shmget(IPC_PRIVATE, bytes, IPC_CREAT | IPC_EXCL | 0600);
    if (id < 0)
        worker_unfit("shmget of %" PRIu64 " bytes: %s", bytes, strerror(errno));
    void *p = shmat(id, NULL, 0);
    int error = errno;
    shmctl(id, IPC_RMID, NULL); /* it goes with its last user */
    if (p == (void *)-1)
        worker_unfit("shmat: %s", strerror(error));
    return p;
}

static void map_region(void)
{
    char name[64];
    switch (kind) {
    case FILE_MAP:
        region_fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
        if (region_fd < 0)
            worker_unfit("%s: %s", path, strerror(errno));
        sized(region_fd);
        if (prewritten)
            prewrite(region_fd);
        region = mapped(region_fd, MAP_SHARED);
        return;
    case SYSV:
        region = sysv();
        return;
    case POSIX:
        snprintf(name, sizeof name, "/thalweg-%ld", (long)getpid());
        region_fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        shm_unlink(name);
        break;
    case MEMFD:
    case MEMFD_HUGE:
        region_fd = memfd_create("thalweg", kind == MEMFD ? MFD_CLOEXEC : MFD_CLOEXEC | MFD_HUGETLB);
        break;
    case ANON:
    case ANON_HUGE:
        region = mapped(-1, MAP_PRIVATE | MAP_ANONYMOUS);
        if (kind == ANON_HUGE && madvise(region, bytes, MADV_HUGEPAGE))
            worker_unfit("madvise(MADV_HUGEPAGE): %s", strerror(errno));
        return;
    }
    sized(region_fd);
    region = mapped(region_fd, MAP_SHARED);
}

static void unmap_region(void)
{
    if (kind == SYSV)
        shmdt(region);
    else
        munmap(region, bytes);
    if (region_fd >= 0)
        close(region_fd);
    region_fd = -1;
    region = NULL;
    if (kind == FILE_MAP)
        unlink(path);
}

/* ---- the article's loops ---- */

/* SIZE is a constant in the article, so that `%` is no division. So it is here for the sizes that the
 * study uses. */
#define LOOP(SIZE, BODY)                              \
    for (uint64_t i = 0; i < writes; i++) {           \
        BODY(SIZE)                                    \
    }
#define BY_SIZE(BODY)                                 \
    switch (bytes) {                                  \
    case 1 << 16: LOOP((1 << 16), BODY) break;        \
    case 1 << 26: LOOP((1 << 26), BODY) break;        \
    case 1 << 28: LOOP((1 << 28), BODY) break;        \
    case 1 << 30: LOOP((1 << 30), BODY) break;        \
    default: LOOP(bytes, BODY)                        \
    }

#define WRITE_RAND(SIZE)                              \
    uint64_t pos = (uint64_t)rand() % (SIZE);         \
    memcpy(p + pos, &to_write, sizeof(char));
#define ONLY_RAND(SIZE)                               \
    sum += (uint64_t)rand() % (SIZE);
#define STEP                                          \
    state ^= state << 13;                             \
    state ^= state >> 7;                              \
    state ^= state << 17;
#define WRITE_XORSHIFT(SIZE)                          \
    STEP                                              \
    memcpy(p + state % (SIZE), &to_write, sizeof(char));
#define ONLY_XORSHIFT(SIZE)                           \
    STEP                                              \
    sum += state % (SIZE);

static uint64_t state = 88172645463325252u;

static void random_writes(char *p)
{
    char to_write = MARK;
    BY_SIZE(WRITE_RAND)
}

static void xorshift_writes(char *p)
{
    char to_write = MARK;
    BY_SIZE(WRITE_XORSHIFT)
}

static void generator_alone(void)
{
    uint64_t sum = 0;
    BY_SIZE(ONLY_RAND)
    sink = sum;
}

static void xorshift_alone(void)
{
    uint64_t sum = 0;
    BY_SIZE(ONLY_XORSHIFT)
    sink = sum;
}

static void operate(void)
{
    switch (action) {
    case RANDOM: random_writes(region); break;
    case XORSHIFT: xorshift_writes(region); break;
    case GENERATOR: generator_alone(); break;
    case XORSHIFT_ALONE: xorshift_alone(); break;
    case CLEAR:
        for (uint64_t n = 0; n < clears; n++) {
            memset(region, 0, bytes);
            /* Else nobody reads what is cleared twice, and the compiler may leave one out. */
            __asm__ volatile("" : : "r"(region) : "memory");
        }
        break;
    case NONE:
        break;
    }
}

/* ---- what the lab asks for ---- */

static atomic_int flushing;

/* Keeps writing dirty pages back, as the kernel does every few seconds by itself. */
static void *flush(void *unused)
{
    (void)unused;
    while (atomic_load(&flushing))
        if (fdatasync(region_fd))
            break;
    return NULL;
}

/* The kernel takes the advice without a word, also where it does not follow it. */
static void see_huge_pages(void)
{
    uint64_t huge = worker_smaps((long)getpid(), "AnonHugePages:");
    if (huge < bytes / 2)
        worker_unfit("%" PRIu64 " of %" PRIu64 " MiB are in huge pages"
                     " (/sys/kernel/mm/transparent_hugepage/enabled)", huge >> 20, bytes >> 20);
}

static void warm(void)
{
    worker_needs(bytes);
    map_region();
    if (action == RANDOM || action == XORSHIFT || action == CLEAR)
        memset(region, 0, bytes);
    operate();
    if (kind == ANON_HUGE)
        see_huge_pages();
    if (fresh)
        unmap_region();
}

static uint64_t moved(uint32_t times)
{
    return (action == CLEAR ? bytes * clears : writes) * times;
}

static void run_fresh(uint32_t times, struct cost *cost)
{
    for (uint32_t n = 0; n < times; n++) {
        map_region();
        struct worker_mark mark = worker_begin();
        operate();
        worker_end(&mark, cost);
        unmap_region();
    }
}

static void run_warm(uint32_t times, struct cost *cost)
{
    pthread_t flusher;
    if (flushed) {
        atomic_store(&flushing, 1);
        int error = pthread_create(&flusher, NULL, flush, NULL);
        if (error)
            worker_unfit("pthread_create: %s", strerror(error));
    }
    struct worker_mark mark = worker_begin();
    for (uint32_t n = 0; n < times; n++)
        operate();
    worker_end(&mark, cost);
    if (flushed) {
        atomic_store(&flushing, 0);
        pthread_join(flusher, NULL);
    }
}

static void run(uint32_t times, struct cost *cost)
{
    if (fresh)
        run_fresh(times, cost);
    else
        run_warm(times, cost);
    cost->bytes += moved(times);
}

/* As many places of an operation are looked at in the file too. */
#define MOST_READ 1000

static int file_holds(uint64_t pos)
{
    char byte;
    return region_fd < 0 || (pread(region_fd, &byte, 1, (off_t)pos) == 1 && byte == region[pos]);
}

/* Goes to the places of an operation that began with the generator at `before`: erases what is there,
 * or answers whether all of them hold the mark, in the mapping and in the file. */
static int at_places(uint64_t before, int erase)
{
    uint64_t kept = state;
    int all = 1;
    srand(SEED);
    state = before;
    for (uint64_t i = 0; i < writes && all; i++) {
        uint64_t pos;
        if (action == RANDOM) {
            pos = (uint64_t)rand() % bytes;
        } else {
            STEP
            pos = state % bytes;
        }
        if (erase)
            region[pos] = 0;
        else
            all = region[pos] == MARK && (i >= MOST_READ || file_holds(pos));
    }
    state = kept;
    srand(SEED);
    return all;
}

static const char *look_at_places(void)
{
    uint64_t before = state;
    at_places(before, 1);
    operate();
    if (spoil)
        at_places(before, 1);
    return at_places(before, 0) ? NULL : "a place that was written does not hold what was written";
}

static const char *look_at_all(void)
{
    memset(region, 0xff, bytes);
    operate();
    if (spoil)
        region[bytes / 2] = 1;
    if (region[0] || memcmp(region, region + 1, bytes - 1))
        return "the cleared region holds bytes other than 0";
    return file_holds(bytes / 2) ? NULL : "the file does not hold what its mapping shows";
}

static const char *look(void)
{
    switch (action) {
    case RANDOM:
    case XORSHIFT: return look_at_places();
    case CLEAR: return look_at_all();
    default: operate(); return NULL;
    }
}

static const char *check(void)
{
    if (fresh)
        map_region();
    const char *wrong = look();
    if (fresh)
        unmap_region();
    return wrong;
}

static uint64_t memory(void)
{
    return worker_pss((long)getpid());
}

int main(int argc, char **argv)
{
    worker_parameters(argc, argv, "kind action writes clears fresh prewrite flush spoil bytes scratch ");
    kind = (enum kind)worker_choice("kind", kinds);
    action = (enum action)worker_choice("action", actions);
    bytes = worker_number("bytes", 1 << 16);
    writes = worker_number("writes", 100000);
    clears = worker_number("clears", 1);
    fresh = worker_number("fresh", 0) != 0;
    prewritten = worker_number("prewrite", 0) != 0;
    flushed = worker_number("flush", 0) != 0;
    spoil = worker_number("spoil", 0) != 0;
    if (!bytes || bytes > (uint64_t)INT64_MAX || !writes || !clears)
        worker_unfit("bytes, writes and clears are to be above 0");
    if (flushed && (kind == SYSV || kind == ANON || kind == ANON_HUGE || fresh))
        worker_unfit("flush=1: %s has no file to be written back", fresh ? "a fresh region" : kinds[kind]);
    if (prewritten && kind != FILE_MAP)
        worker_unfit("prewrite=1: only a file can be written before");
    snprintf(path, sizeof path, "%s/region-%ld", worker_text("scratch", "."), (long)getpid());

    struct worker worker = { .faults = fresh || flushed, .warm = warm, .run = run, .check = check, .memory = memory };
    int status = worker_main(&worker);
    if (region && kind == FILE_MAP)
        unlink(path);
    return status;
}

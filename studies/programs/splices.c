/* Study 002: the article's second and third way, /dev/zero to /dev/null through a pipe.
 *
 * One thread splices in and out by turns; or two threads do, each in a blocking call of its own, with no
 * lock and no poll between them but the pipe. One operation moves `bytes`; the pipe is as the kernel
 * makes it unless `pipe` says how large it is to be. */
#define _GNU_SOURCE
#include "worker.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

enum way { ONE, TWO };
static const char *const ways[] = { "one", "two", NULL };

static enum way way;
static uint64_t bytes, capacity;
static int spoil;

static int ends[2], zero, null;
static uint64_t calls;

/* Bytes that go from one descriptor to another, a pipe on one side at least. */
struct leg {
    int from, to;
    uint64_t left, calls;
    int error;
};

/* One call; 0 at the end or after an error. */
static size_t step(struct leg *leg)
{
    ssize_t moved = splice(leg->from, NULL, leg->to, NULL, leg->left, SPLICE_F_MOVE);
    leg->calls++;
    if (moved <= 0) {
        leg->error = moved < 0 ? errno : EPIPE;
        return 0;
    }
    leg->left -= (uint64_t)moved;
    return (size_t)moved;
}

static void *whole(void *argument)
{
    struct leg *leg = argument;
    while (leg->left && step(leg))
        ;
    return NULL;
}

/* Fills the pipe with one call and empties it with as many as it takes. */
static int by_turns(struct leg *in, struct leg *out)
{
    while (in->left) {
        size_t held = step(in);
        if (!held)
            return in->error;
        uint64_t rest = out->left - held;
        for (out->left = held; out->left;)
            if (!step(out))
                return out->error;
        out->left = rest;
    }
    return 0;
}

/* Moves `length` bytes; 0, or the error. */
static int move(int from, int to, uint64_t length)
{
    struct leg in = { .from = from, .to = ends[1], .left = length };
    struct leg out = { .from = ends[0], .to = to, .left = length };
    int error = 0;
    if (way == ONE) {
        error = by_turns(&in, &out);
    } else {
        pthread_t filler;
        if ((error = pthread_create(&filler, NULL, whole, &in)))
            return error;
        whole(&out);
        /* A filler that waits for room would wait for good. */
        if (out.error)
            worker_unfit("splice out of the pipe: %s", strerror(out.error));
        pthread_join(filler, NULL);
        error = in.error;
    }
    calls += in.calls + out.calls;
    return error;
}

static void warm(void)
{
    if (pipe(ends) || (zero = open("/dev/zero", O_RDONLY)) < 0 || (null = open("/dev/null", O_WRONLY)) < 0)
        worker_unfit("pipe, /dev/zero or /dev/null: %s", strerror(errno));
    if (capacity && fcntl(ends[0], F_SETPIPE_SZ, (int)capacity) < 0)
        worker_unfit("a pipe of %" PRIu64 " bytes: %s", capacity, strerror(errno));
    int error = move(zero, null, bytes < (64 << 20) ? bytes : 64 << 20);
    if (error)
        worker_unfit("splice: %s", strerror(error));
}

static void run(uint32_t times, struct cost *cost)
{
    calls = 0;
    struct worker_mark mark = worker_begin();
    for (uint32_t n = 0; n < times; n++) {
        int error = move(zero, null, bytes);
        if (error)
            worker_unfit("splice: %s", strerror(error));
    }
    worker_end(&mark, cost);
    cost->bytes += times * bytes;
    cost->calls += calls;
}

/* The bytes of a memory file go to another one by the same calls: nobody can look into /dev/null. */
static const char *check(void)
{
    enum { LENGTH = (4 << 20) + 4097 };
    int from = memfd_create("from", 0), to = memfd_create("to", 0);
    if (from < 0 || to < 0 || ftruncate(from, LENGTH) || ftruncate(to, LENGTH))
        return "no memory files to look at";
    uint8_t *sent = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, from, 0);
    uint8_t *came = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, to, 0);
    if (sent == MAP_FAILED || came == MAP_FAILED)
        return "no memory to look at";
    for (uint32_t at = 0; at < LENGTH; at++)
        sent[at] = (uint8_t)((at * 2654435761u) >> 24);
    int error = move(from, to, LENGTH);
    if (spoil)
        came[LENGTH / 2] ^= 1;
    int same = !error && !memcmp(sent, came, LENGTH);
    munmap(sent, LENGTH);
    munmap(came, LENGTH);
    close(from);
    close(to);
    return error ? strerror(error) : same ? NULL : "what came out of the pipe is not what went in";
}

int main(int argc, char **argv)
{
    worker_parameters(argc, argv, "way pipe spoil bytes scratch ");
    way = (enum way)worker_choice("way", ways);
    bytes = worker_number("bytes", 256 << 20);
    capacity = worker_number("pipe", 0);
    spoil = worker_number("spoil", 0) != 0;
    if (!bytes || capacity > INT32_MAX)
        worker_unfit("bytes are to be above 0, and a pipe below 2 GiB");
    const struct worker worker = { .counts_calls = 1, .warm = warm, .run = run, .check = check };
    return worker_main(&worker);
}

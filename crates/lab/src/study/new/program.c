/* A file copied by read and write. The lab starts this once a session and asks: warm, run N, check
 * (docs/formats.md, "The worker protocol"). Only what lies between worker_begin and worker_end is timed. */
#include "worker.h"

#include <fcntl.h>
#include <unistd.h>

static uint64_t bytes, buffer;
static int from, to;
static char *block;

static uint64_t copy(void)
{
    uint64_t calls = 0;
    for (uint64_t at = 0; at < bytes;) {
        uint64_t most = bytes - at < buffer ? bytes - at : buffer;
        ssize_t got = pread(from, block, most, (off_t)at);
        if (got <= 0)
            worker_unfit("pread: %s", got ? strerror(errno) : "the file ends early");
        for (ssize_t done = 0; done < got; calls++) {
            ssize_t put = pwrite(to, block + done, (size_t)(got - done), (off_t)at + done);
            if (put < 0)
                worker_unfit("pwrite: %s", strerror(errno));
            done += put;
        }
        at += (uint64_t)got;
        calls++;
    }
    return calls;
}

static int open_in(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0)
        worker_unfit("%s: %s", path, strerror(errno));
    return fd;
}

static void warm(void)
{
    from = open_in(worker_text("scratch", "."), "from");
    to = open_in(worker_text("scratch", "."), "to");
    block = malloc(buffer);
    if (!block)
        worker_unfit("no memory for a buffer of %" PRIu64 " bytes", buffer);
    for (uint64_t at = 0; at < buffer; at++)
        block[at] = (char)(at * 7 + at / 251);
    for (uint64_t at = 0; at < bytes;) {
        uint64_t most = bytes - at < buffer ? bytes - at : buffer;
        ssize_t put = pwrite(from, block, most, (off_t)at);
        if (put < 0)
            worker_unfit("pwrite: %s", strerror(errno));
        at += (uint64_t)put;
    }
    copy();
}

static void run(uint32_t times, struct cost *cost)
{
    struct worker_mark mark = worker_begin();
    for (uint32_t n = 0; n < times; n++)
        cost->calls += copy();
    worker_end(&mark, cost);
    cost->bytes = bytes * times;
}

/* Spoils the sink, copies, and looks at every byte. */
static const char *check(void)
{
    if (ftruncate(to, 0))
        return "the sink cannot be emptied";
    copy();
    char *other = malloc(buffer);
    const char *wrong = other ? NULL : "no memory to look with";
    for (uint64_t at = 0; !wrong && at < bytes; at += buffer) {
        uint64_t most = bytes - at < buffer ? bytes - at : buffer;
        if (pread(from, block, most, (off_t)at) != (ssize_t)most || pread(to, other, most, (off_t)at) != (ssize_t)most)
            wrong = "a file is shorter than what was copied";
        else if (memcmp(block, other, most))
            wrong = "the sink does not hold what the source holds";
    }
    free(other);
    return wrong;
}

int main(int argc, char **argv)
{
    static const struct worker worker = { .counts_calls = 1, .warm = warm, .run = run, .check = check };
    worker_parameters(argc, argv, "bytes scratch buffer ");
    bytes = worker_number("bytes", 0);
    buffer = worker_number("buffer", 65536);
    if (!bytes || !buffer)
        worker_unfit("bytes and buffer are to be above 0");
    return worker_main(&worker);
}

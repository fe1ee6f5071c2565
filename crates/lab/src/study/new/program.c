/* Copies a file by pread and pwrite. The lab starts this program once per session and asks: warm, run N, check
 * (docs/reference/formats.md, "The worker protocol"). Only the time between worker_begin and worker_end counts. */
#include "worker.h"

#include <fcntl.h>
#include <unistd.h>

static uint64_t bytes, buffer;
static char source[4096], sink[4096];
static char *block;

static int opened(const char *path, int flags)
{
    int fd = open(path, flags, 0600);
    if (fd < 0)
        worker_unfit("%s: %s", path, strerror(errno));
    return fd;
}

/* Opens and closes both files for each copy, as the lab's own arms do. Otherwise the times would not be comparable. */
static uint64_t copy(void)
{
    int from = opened(source, O_RDONLY), to = opened(sink, O_WRONLY | O_CREAT);
    uint64_t calls = 4;
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
    close(from);
    close(to);
    return calls;
}

static void warm(void)
{
    const char *folder = worker_text("scratch", ".");
    snprintf(source, sizeof source, "%s/from", folder);
    snprintf(sink, sizeof sink, "%s/to", folder);
    int from = opened(source, O_WRONLY | O_CREAT | O_TRUNC);
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
    close(from);
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

/* Empties the sink, copies, and compares every byte. */
static const char *check(void)
{
    if (truncate(sink, 0))
        return "the sink cannot be emptied";
    copy();
    int from = opened(source, O_RDONLY), to = opened(sink, O_RDONLY);
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
    close(from);
    close(to);
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

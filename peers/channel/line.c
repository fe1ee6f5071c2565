/* Measures a raw cache line: the time that the processors need to pass 64 bytes, without a channel. The program does
 * not sleep, detect the death of a peer or check data. Both processes poll. The time is a lower limit for channels. It
 * also shows if two runs had the same hardware: between two virtual processors, it may differ by a factor of several
 * between days.
 *
 * ping-pong  one line there and one line back
 * stream     an array of lines that are written in turn; the reader publishes from time to time how many it has read */
#define _GNU_SOURCE
#include "two.h"

#include <stdatomic.h>

enum { LINE = 64, APART = 2 * LINE, MOST = 1024 };

struct lane {
    /* The first word of a line shows that the line is new. The sender adds the number of messages so far to the first
     * word of the message. A message begins with its number, and an answer with zero. So the sum differs from the
     * previous word of the line. */
    _Alignas(APART) struct {
        _Alignas(LINE) _Atomic uint64_t first;
        char rest[LINE - sizeof(uint64_t)];
    } lines[MOST];
    _Alignas(APART) _Atomic uint64_t read;
};

static struct {
    struct lane there, back;
} *shared;
static struct lane *to, *from;
static uint64_t lines, sent, seen, received, last[MOST];

static void before(void)
{
    if (two.bytes > LINE)
        worker_unfit("bytes=%" PRIu64 ": a line has %d", two.bytes, LINE);
    lines = two.job == PING_PONG ? 1 : two_depth();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (shared == MAP_FAILED)
        worker_unfit("mmap: %s", strerror(errno));
}

static void meet(enum side side)
{
    to = side == SENDER ? &shared->there : &shared->back;
    from = side == SENDER ? &shared->back : &shared->there;
}

static void pass(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void send_line(const char *bytes, uint64_t length)
{
    uint64_t word, at = sent % lines;
    /* Waits for a free line. In job=ping-pong, the answer shows that the line is free. */
    while (two.job == STREAM && sent - seen == lines) {
        seen = atomic_load_explicit(&to->read, memory_order_acquire);
        pass();
    }
    memcpy(&word, bytes, sizeof word);
    memcpy(to->lines[at].rest, bytes + sizeof word, length - sizeof word);
    sent++;
    atomic_store_explicit(&to->lines[at].first, word + sent, memory_order_release);
}

static void receive_line(char *into, uint64_t length)
{
    uint64_t word, at = received % lines;
    while ((word = atomic_load_explicit(&from->lines[at].first, memory_order_acquire)) == last[at])
        pass();
    last[at] = word;
    received++;
    word -= received;
    memcpy(into, &word, sizeof word);
    memcpy(into + sizeof word, from->lines[at].rest, length - sizeof word);
    if (received % (lines / 4 + 1) == 0)
        atomic_store_explicit(&from->read, received, memory_order_release);
}

int main(int argc, char **argv)
{
    struct way way = { .keys = "", .before = before, .meet = meet, .send = send_line, .receive = receive_line };
    return two_main(argc, argv, &way);
}

/* The ring of thalweg-packets (crates/packets), step for step, round DPDK's rte_memcpy, which is a
 * header and can only be compiled in. It speaks the worker protocol (docs/reference/formats.md), a packet being an
 * operation. Run with copy=libc it is the same program as ours with the kernel `libc`: what the two
 * differ by is the price of the language. Study 004 builds it. By hand, with Debian's libdpdk-dev (whose
 * own flags ask for SSE; the later -march wins):
 *   cc $(pkg-config --cflags libdpdk) -O3 -DWITH_DPDK -march=skylake-avx512 -DRTE_MEMCPY_AVX512 \
 *      -pthread studies/programs/packets.c -o packets
 *   printf 'hello\nwarm\nrun 1000000\ncheck\nquit\n' | ./packets copy=rte sizes=imix
 * For its other paths: -march=haswell (AVX2) or -march=corei7 (SSE), without RTE_MEMCPY_AVX512. */
#define _GNU_SOURCE
#include "worker.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#ifdef WITH_DPDK
#include <rte_memcpy.h>
#endif

enum { ENTRIES = 256, STRIDE = 2048, HEADER = 12, BATCH = 32, HEAD = 24, HEADROOM = 128, MBUF = STRIDE + HEADROOM };
enum { LEAST = 60, MOST = 1518, DRAWN = 1 << 14, FILLER = 0xee };

/* Buffers with growing numbers: from done to posted they are the switch's, else the guest's. */
struct queue {
    uint8_t *memory;
    _Atomic uint32_t lens[ENTRIES];
    _Alignas(128) _Atomic uint64_t posted;
    _Alignas(128) _Atomic uint64_t done;
};

struct guest {
    struct queue *sends, *receives;
    uint64_t sent, received, end, due, bytes, sum;
    size_t next_size;
};

static struct queue queues[2][2];
static uint8_t *mbufs;
static uint32_t *ring, ring_mask, ring_head, ring_tail, count_mbufs;
static uint16_t sizes[DRAWN];
static size_t count_sizes;
static int cores;
static const char *wrong;
static char wrong_text[96];
static volatile uint64_t seen;

static uint8_t *buffer(struct queue *queue, uint64_t number)
{
    return queue->memory + number % ENTRIES * STRIDE;
}

static uint8_t *packet_of(uint32_t mbuf)
{
    return mbufs + (size_t)mbuf * MBUF + HEADROOM;
}

static uint8_t pattern(uint16_t number, size_t at)
{
    return (uint8_t)(number * 31u + at * 7 + (at >> 8));
}

static void relax(void)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
}

/* ---- the switch ---- */

/* In words of four and two bytes: none is read over two that were just written. */
static inline __attribute__((always_inline)) void swap_addresses(uint8_t *packet)
{
    uint32_t to, from;
    uint16_t to_end, from_end;
    memcpy(&to, packet, 4);
    memcpy(&to_end, packet + 4, 2);
    memcpy(&from, packet + 6, 4);
    memcpy(&from_end, packet + 10, 2);
    memcpy(packet, &from, 4);
    memcpy(packet + 4, &from_end, 2);
    memcpy(packet + 6, &to, 4);
    memcpy(packet + 10, &to_end, 2);
}

/* `COPY(to, from, n)` is compiled into it. */
#define FORWARD(NAME, COPY)                                                                      \
    static uint64_t NAME(struct queue *from, struct queue *to)                                   \
    {                                                                                            \
        uint64_t first = atomic_load_explicit(&from->done, memory_order_acquire);                \
        uint64_t target = atomic_load_explicit(&to->done, memory_order_acquire);                 \
        uint64_t waiting = atomic_load_explicit(&from->posted, memory_order_acquire) - first;    \
        uint64_t room = atomic_load_explicit(&to->posted, memory_order_acquire) - target;        \
        uint64_t count = waiting < room ? waiting : room;                                        \
        uint32_t taken[BATCH], lens[BATCH];                                                      \
        if (count > BATCH)                                                                       \
            count = BATCH;                                                                       \
        for (uint64_t n = 0; n < count; n++) {                                                   \
            uint64_t number = first + n;                                                         \
            lens[n] = atomic_load_explicit(&from->lens[number % ENTRIES], memory_order_relaxed) - HEADER; \
            taken[n] = ring[ring_head++ & ring_mask];                                            \
            COPY(packet_of(taken[n]), buffer(from, number) + HEADER, lens[n]);                   \
        }                                                                                        \
        atomic_store_explicit(&from->done, first + count, memory_order_release);                 \
        for (uint64_t n = 0; n < count; n++)                                                     \
            swap_addresses(packet_of(taken[n]));                                                 \
        for (uint64_t n = 0; n < count; n++) {                                                   \
            uint64_t number = target + n;                                                        \
            uint8_t *sink = buffer(to, number);                                                  \
            memset(sink, 0, HEADER);                                                             \
            COPY(sink + HEADER, packet_of(taken[n]), lens[n]);                                   \
            atomic_store_explicit(&to->lens[number % ENTRIES], HEADER + lens[n], memory_order_relaxed); \
            ring[ring_tail++ & ring_mask] = taken[n];                                            \
        }                                                                                        \
        atomic_store_explicit(&to->done, target + count, memory_order_release);                  \
        return count;                                                                            \
    }

FORWARD(forward_libc, memcpy)
#ifdef WITH_DPDK
FORWARD(forward_rte, rte_memcpy)
#endif
static uint64_t (*forward)(struct queue *from, struct queue *to);

/* Both ways once; how many packets. */
static uint64_t forward_both(void)
{
    return forward(&queues[0][0], &queues[1][1]) + forward(&queues[1][0], &queues[0][1]);
}

/* A second core has the switch alone. */
static void *switch_alone(void *packets)
{
    for (uint64_t left = *(uint64_t *)packets, moved; left; left -= moved)
        if (!(moved = forward_both()))
            relax();
    return NULL;
}

/* ---- the guests ---- */

static void look(const uint8_t *bytes, size_t len, uint64_t number)
{
    static const uint8_t swapped[12] = { 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1 };
    const uint8_t *packet = bytes + HEADER;
    const char *what = NULL;
    uint16_t from;
    if (len < HEADER + HEAD || len > STRIDE) {
        what = "its length is not one that was sent";
    } else if (memcmp(packet, swapped, sizeof swapped)) {
        what = "the addresses are not those that were sent, swapped";
    } else if (memcmp(packet + 14, &number, 8)) {
        what = "another one came in its place";
    } else {
        memcpy(&from, packet + 22, 2);
        for (size_t at = HEAD; at < len - HEADER && !what; at++)
            if (packet[at] != pattern(from, at))
                what = "a wrong byte in its body";
        for (size_t at = len; at < STRIDE && !what; at++)
            if (bytes[at] != FILLER)
                what = "bytes behind it were written";
    }
    if (what && !wrong) {
        snprintf(wrong_text, sizeof wrong_text, "packet %" PRIu64 ": %s", number, what);
        wrong = wrong_text;
    }
}

/* It is to send so many packets, and to receive `due`. */
static void guest_start(struct guest *guest, int port, uint64_t sends, uint64_t due)
{
    struct queue *sending = &queues[port][0], *receiving = &queues[port][1];
    *guest = (struct guest){ .sends = sending, .receives = receiving, .due = due };
    guest->sent = atomic_load(&sending->posted);
    guest->received = atomic_load(&receiving->done);
    guest->end = guest->sent + sends;
    for (uint64_t number = 0; number < ENTRIES; number++) {
        for (size_t at = 0; at < STRIDE - HEADER; at++)
            buffer(sending, number)[HEADER + at] = pattern((uint16_t)number, at);
        memset(buffer(receiving, number), FILLER, STRIDE);
    }
    atomic_store(&receiving->posted, guest->received + ENTRIES);
}

static void guest_write(struct guest *guest, uint64_t number)
{
    static const uint8_t head[14] = { 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5 };
    uint8_t *packet = buffer(guest->sends, number) + HEADER;
    uint16_t entry = (uint16_t)(number % ENTRIES), size = sizes[guest->next_size++];
    if (guest->next_size == count_sizes)
        guest->next_size = 0;
    memcpy(packet, head, sizeof head);
    memcpy(packet + 14, &number, 8);
    memcpy(packet + 22, &entry, 2);
    atomic_store_explicit(&guest->sends->lens[entry], HEADER + size, memory_order_relaxed);
}

/* Adds to the sum what it reads of a header, and returns the bytes of the packet. */
static uint64_t guest_read(struct guest *guest, uint64_t number, int looks, uint64_t *sum)
{
    static const size_t places[3] = { 0, HEADER, HEADER + 14 };
    uint32_t len = atomic_load_explicit(&guest->receives->lens[number % ENTRIES], memory_order_relaxed);
    uint8_t *bytes = buffer(guest->receives, number);
    for (int n = 0; n < 3; n++) {
        uint64_t word;
        memcpy(&word, bytes + places[n], 8);
        *sum = (*sum << 1 | *sum >> 63) ^ word;
    }
    if (looks) {
        look(bytes, len, number);
        memset(bytes, FILLER, STRIDE);
    }
    return len - HEADER;
}

/* Sends up to a batch, takes in what came; how many came. */
static uint64_t guest_step(struct guest *guest, int looks)
{
    uint64_t room = atomic_load_explicit(&guest->sends->done, memory_order_acquire) + ENTRIES - guest->sent;
    uint64_t left = guest->end - guest->sent, count = room < BATCH ? room : BATCH;
    if (count > left)
        count = left;
    for (uint64_t n = 0; n < count; n++)
        guest_write(guest, guest->sent + n);
    guest->sent += count;
    atomic_store_explicit(&guest->sends->posted, guest->sent, memory_order_release);
    uint64_t end = atomic_load_explicit(&guest->receives->done, memory_order_acquire);
    uint64_t came = end - guest->received;
    /* Not in the guest's memory: each packet would wait there for the one before it. */
    uint64_t sum = guest->sum, bytes = guest->bytes;
    for (uint64_t number = guest->received; number < end; number++)
        bytes += guest_read(guest, number, looks, &sum);
    guest->sum = sum;
    guest->bytes = bytes;
    guest->due -= came;
    guest->received = end;
    atomic_store_explicit(&guest->receives->posted, end + ENTRIES, memory_order_release);
    return came;
}

static void once(uint64_t packets, int looks, struct cost *cost)
{
    struct guest guests[2];
    pthread_t thread;
    uint64_t other = packets / 2, one = packets - other;
    guest_start(&guests[0], 0, one, other);
    guest_start(&guests[1], 1, other, one);
    struct worker_mark mark = worker_begin();
    if (cores == 2 && (errno = pthread_create(&thread, NULL, switch_alone, &packets)))
        worker_unfit("cores=2: a second thread: %s", strerror(errno));
    while (guests[0].due || guests[1].due) {
        uint64_t came = guest_step(&guests[0], looks) + guest_step(&guests[1], looks);
        if (cores == 1)
            forward_both();
        else if (!came)
            relax();
    }
    if (cores == 2)
        pthread_join(thread, NULL);
    worker_end(&mark, cost);
    cost->bytes += guests[0].bytes + guests[1].bytes;
    seen = guests[0].sum ^ guests[1].sum;
}

/* ---- the worker ---- */

/* Every buffer three times: enough to warm them up, and to look at all of them. */
static void thrice(int looks)
{
    struct cost unused = { 0 };
    once(3 * (uint64_t)count_mbufs, looks, &unused);
}

static void warm(void)
{
    thrice(0);
}

static void run(uint32_t times, struct cost *cost)
{
    once(times, 0, cost);
}

static const char *check(void)
{
    wrong = NULL;
    thrice(1);
    return wrong;
}

/* Guests never see the switch's buffers. */
static const char *alias(void)
{
    return "copied";
}

static void draw_sizes(void)
{
    static const uint16_t imix[12] = { 64, 594, 64, 64, 594, 64, 1518, 64, 594, 64, 594, 64 };
    static const char *const orders[] = { "iid", "rotating", NULL };
    int rotating = worker_choice("order", orders);
    uint64_t state = 0x2545f4914f6cdd1d;
    if (strcmp(worker_text("sizes", ""), "imix")) {
        /* An operation is a packet. */
        uint64_t size = worker_number("sizes", worker_number("bytes", 0));
        if (size < LEAST || size > MOST)
            worker_unfit("packets of %" PRIu64 " bytes: neither imix nor from %d to %d", size, LEAST, MOST);
        sizes[0] = (uint16_t)size;
        count_sizes = 1;
        return;
    }
    count_sizes = rotating ? 12 : DRAWN;
    for (size_t n = 0; n < count_sizes; n++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        sizes[n] = imix[rotating ? n : (state >> 33) % 12];
    }
}

static void *pages(size_t len)
{
    void *memory = aligned_alloc(4096, (len + 4095) / 4096 * 4096);
    if (!memory)
        worker_unfit("no memory for %zu bytes", len);
    memset(memory, 0, len);
    return memory;
}

/* What THALWEG_CPU hides is not there for this program either. */
static int is_hidden(const char *feature)
{
    const char *hidden = getenv("THALWEG_CPU");
    return hidden && strstr(hidden, feature);
}

/* What it was compiled for beyond the architecture's first processor. */
static void needs_processor(void)
{
#ifdef __AVX512F__
    if (is_hidden("-avx2") || is_hidden("-avx512") || !__builtin_cpu_supports("avx512f") ||
        !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl"))
        worker_unfit("this processor has no AVX-512");
#elif defined __AVX2__
    if (is_hidden("-avx2") || !__builtin_cpu_supports("avx2"))
        worker_unfit("this processor has no AVX2");
#endif
}

static void needs_cores(void)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) < cores)
        worker_unfit("cores=%d: it may use %d", cores, CPU_COUNT(&allowed));
}

int main(int argc, char **argv)
{
    static const char *const copies[] = { "libc", "rte", NULL }, *const counts[] = { "1", "2", NULL };
    needs_processor();
    worker_parameters(argc, argv, "copy sizes order mbufs cores bytes scratch ");
    forward = forward_libc;
    if (worker_choice("copy", copies)) {
#ifdef WITH_DPDK
        forward = forward_rte;
#else
        worker_unfit("copy=rte: built without the headers of libdpdk-dev");
#endif
    }
    cores = worker_choice("cores", counts) + 1;
    needs_cores();
    draw_sizes();
    count_mbufs = (uint32_t)worker_number("mbufs", 512);
    if (count_mbufs < 64 || count_mbufs > 65536)
        worker_unfit("mbufs=%u: not from 64 to 65536", count_mbufs);
    for (uint32_t size = 64; ring_mask + 1 < count_mbufs; size *= 2)
        ring_mask = size - 1;
    ring = pages((ring_mask + 1) * sizeof *ring);
    for (uint32_t n = 0; n < count_mbufs; n++)
        ring[ring_tail++ & ring_mask] = n;
    mbufs = pages((size_t)count_mbufs * MBUF);
    for (int port = 0; port < 2; port++)
        for (int way = 0; way < 2; way++)
            queues[port][way].memory = pages(ENTRIES * STRIDE);
    struct worker worker = { .warm = warm, .run = run, .check = check, .alias = alias };
    return worker_main(&worker);
}

/* Two processes that pass bytes by one method, as a worker of a study (docs/reference/formats.md). A program fills in a
 * `struct way` and calls two_main. Process A communicates with the lab and sends; process B receives into private memory.
 * The Rust peers have the same structure, and measure the same work.
 *
 * job=ping-pong  sends a message and receives its copy
 * job=stream     sends messages in one direction; the clock stops when A reads that B has received the last one
 * job=bulk       sends buffers, each of which is answered; fresh=1: B receives into memory that it has never written
 *
 * B compares the number in each message; only `check` compares all bytes. */
#ifndef THALWEG_TWO_H
#define THALWEG_TWO_H

#include "worker.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum side { SENDER, RECEIVER };
enum job { PING_PONG, STREAM, BULK };
static const char *const two_jobs[] = { "ping-pong", "stream", "bulk", NULL };

/* One method of moving bytes from one process to the other. If a call fails, it calls worker_unfit. */
struct way {
    /* The method's own parameters, each followed by a blank. */
    const char *keys;
    /* Called before the second process starts; may be NULL. */
    void (*before)(void);
    /* Creates the second process. Stores descriptors to read from and write to the other one. If NULL, two_main forks. */
    enum side (*split)(int *in, int *out);
    /* Connects the two processes; both call it. */
    void (*meet)(enum side side);
    /* Sends a whole message. The caller may overwrite `from` when this returns. */
    void (*send)(const char *from, uint64_t length);
    /* Receives a whole message into private memory. */
    void (*receive)(char *into, uint64_t length);
    /* Called at the end; may be NULL. */
    void (*leave)(void);
};

static struct {
    const struct way *way;
    enum job job;
    uint64_t bytes;
    int fresh, pinned, spoil;
    char *source, *sink; /* source: memory of A; sink: memory of B, and of A for the answer to a ping */
    uint64_t number;     /* number of the last message */
    int in, out;         /* descriptors for orders and reports */
    long other;          /* B's process id */
} two;

/* ---- memory ---- */

static inline char *two_memory(void)
{
    char *p = mmap(NULL, two.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        worker_unfit("mmap of %" PRIu64 " bytes: %s", two.bytes, strerror(errno));
    return p;
}

/* Fills memory with bytes that depend on their position and on `salt`. */
static inline void two_fill(char *memory, uint64_t salt)
{
    uint64_t word = salt * 0x9e3779b97f4a7c15u + 1;
    for (uint64_t at = 0; at < two.bytes; at += sizeof word) {
        uint64_t left = two.bytes - at;
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        memcpy(memory + at, &word, left < sizeof word ? left : sizeof word);
    }
}

/* Returns a sum that depends on every byte and its position. */
static inline uint64_t two_checksum(const char *memory)
{
    uint64_t sum = 14695981039346656037u;
    for (uint64_t at = 0; at < two.bytes; at += sizeof sum) {
        uint64_t left = two.bytes - at, word = 0;
        memcpy(&word, memory + at, left < sizeof word ? left : sizeof word);
        sum = (sum ^ word) * 1099511628211u;
        sum ^= sum >> 32;
    }
    return sum;
}

static inline uint64_t two_fold(uint64_t sum, uint64_t next)
{
    return (sum ^ next) * 1099511628211u;
}

/* Number of messages that may be in flight in a stream, for methods with a fixed number: about 1 MiB of them. */
static inline uint64_t two_depth(void)
{
    uint64_t fit = (1 << 20) / two.bytes;
    return fit < 4 ? 4 : fit > 1024 ? 1024 : fit;
}

/* ---- orders to B, and its reports ---- */

struct two_order {
    uint32_t what; /* 'w' warm up, 'n' new sink, 'g' receive, 'c' receive and add up sums, 's' sum of the sink */
    uint32_t times;
};

struct two_report {
    uint32_t what;
    int32_t pid;
    struct cost cost;
    uint64_t sum;
};

static inline void two_write(const void *from, size_t length)
{
    if (write(two.out, from, length) != (ssize_t)length)
        worker_unfit("the other process is gone");
}

/* Reads an order or a report from the pipe. It is small enough to arrive whole. Returns 0 at the end. */
static inline int two_read(void *into, size_t length)
{
    ssize_t got;
    do
        got = read(two.in, into, length);
    while (got < 0 && errno == EINTR);
    if (got && got != (ssize_t)length)
        worker_unfit("the other process cannot be heard: %s", got < 0 ? strerror(errno) : "it stammers");
    return got != 0;
}

static inline struct two_report two_hear(uint32_t what)
{
    struct two_report report;
    if (!two_read(&report, sizeof report) || report.what != what)
        worker_unfit("the receiver ended");
    return report;
}

static inline struct two_report two_ask(uint32_t what, uint32_t times)
{
    struct two_order order = { what, times };
    two_write(&order, sizeof order);
    return two_hear(what);
}

/* ---- the work ---- */

static inline void two_number(char *message)
{
    two.number++;
    memcpy(message, &two.number, sizeof two.number);
}

static inline void two_expect(const char *message)
{
    uint64_t number;
    memcpy(&number, message, sizeof number);
    if (number != two.number)
        worker_unfit("message %" PRIu64 " came as %" PRIu64, two.number, number);
}

static inline void two_send_all(uint32_t times)
{
    char ack[8] = { 0 };
    for (uint32_t n = 0; n < times; n++) {
        two_number(two.source);
        two.way->send(two.source, two.bytes);
        if (two.job == PING_PONG) {
            two.way->receive(two.sink, two.bytes);
            two_expect(two.sink);
        } else if (two.job == BULK) {
            two.way->receive(ack, sizeof ack);
        }
    }
    if (two.job == STREAM)
        two.way->receive(ack, sizeof ack);
}

static inline void two_receive_all(uint32_t times, uint64_t *sum)
{
    char ack[8] = { 0 };
    for (uint32_t n = 0; n < times; n++) {
        two.number++;
        two.way->receive(two.sink, two.bytes);
        two_expect(two.sink);
        if (sum)
            *sum = two_fold(*sum, two_checksum(two.sink));
        if (two.job == PING_PONG)
            two.way->send(two.sink, two.bytes);
        else if (two.job == BULK)
            two.way->send(ack, sizeof ack);
    }
    if (two.job == STREAM)
        two.way->send(ack, sizeof ack);
}

static inline void two_obey(void)
{
    struct two_order order;
    while (two_read(&order, sizeof order)) {
        struct two_report report = { .what = order.what };
        if (order.what == 'w' || order.what == 'n') {
            if (two.sink)
                munmap(two.sink, two.bytes);
            two.sink = two_memory();
            if (order.what == 'w')
                memset(two.sink, 1, two.bytes);
        } else if (order.what == 's') {
            report.sum = two_checksum(two.sink);
        } else {
            /* A starts its clock when it reads this report. */
            two_write(&report, sizeof report);
            struct worker_mark mark = worker_begin();
            two_receive_all(order.times, order.what == 'c' ? &report.sum : NULL);
            worker_end(&mark, &report.cost);
            report.what = 'd';
        }
        two_write(&report, sizeof report);
    }
}

static inline void two_add(struct cost *to, const struct cost *from)
{
    to->user_us += from->user_us;
    to->sys_us += from->sys_us;
    to->minor_faults += from->minor_faults;
    to->major_faults += from->major_faults;
    to->voluntary += from->voluntary;
    to->involuntary += from->involuntary;
}

static void two_run(uint32_t times, struct cost *cost)
{
    uint32_t batch = two.fresh ? 1 : times;
    for (uint32_t done = 0; done < times; done += batch) {
        if (two.fresh)
            two_ask('n', 0);
        two_ask('g', batch);
        struct worker_mark mark = worker_begin();
        two_send_all(batch);
        worker_end(&mark, cost);
        struct two_report report = two_hear('d');
        two_add(cost, &report.cost);
    }
    cost->bytes = two.bytes * times;
}

static void two_warm(void)
{
    struct cost unused = { 0 };
    worker_needs(two.bytes * 2);
    two.source = two_memory();
    two_fill(two.source, 1);
    two.sink = two_memory();
    if (two.job == PING_PONG)
        memset(two.sink, 1, two.bytes);
    two_ask('w', 0);
    two_run(two.job == BULK ? 1 : 64, &unused);
}

/* Sends `times` messages with different bytes, and overwrites each when the method allows it. Returns the sum of
 * the sent messages. */
static inline uint64_t two_send_and_scribble(uint32_t times, const char **wrong)
{
    static uint64_t salt = 1;
    char ack[8];
    uint64_t all = 0, sum;
    for (uint32_t n = 0; n < times; n++) {
        two_fill(two.source, ++salt);
        two_number(two.source);
        sum = two_checksum(two.source);
        if (two.spoil)
            two.source[two.bytes - 1] ^= 1;
        all = two.job == BULK ? sum : two_fold(all, sum);
        two.way->send(two.source, two.bytes);
        if (two.job == BULK)
            two.way->receive(ack, sizeof ack);
        memset(two.source, 0, two.bytes);
        if (two.job == PING_PONG) {
            two.way->receive(two.sink, two.bytes);
            if (two_checksum(two.sink) != sum)
                *wrong = "what came back is not what was sent";
        }
    }
    if (two.job == STREAM)
        two.way->receive(ack, sizeof ack);
    return all;
}

static const char *two_check(void)
{
    uint32_t times = two.job == BULK ? 1 : 16;
    const char *wrong = NULL;
    if (two.fresh)
        two_ask('n', 0);
    two_ask(two.job == BULK ? 'g' : 'c', times);
    uint64_t sent = two_send_and_scribble(times, &wrong);
    uint64_t arrived = two_hear('d').sum;
    if (two.job == BULK)
        arrived = two_ask('s', 0).sum;
    return !wrong && arrived != sent ? "what arrived is not what was sent" : wrong;
}

static const char *two_alias(void)
{
    return two.job != BULK ? "none" : two_check() ? "shared" : "copied";
}

static uint64_t two_pss(void)
{
    return worker_pss((long)getpid()) + worker_pss(two.other);
}

/* ---- two processes ---- */

/* Pins A to the first allowed processor, and B to the last. */
static inline void two_pin(enum side side)
{
    cpu_set_t allowed, one;
    int first = -1, last = -1;
    if (sched_getaffinity(0, sizeof allowed, &allowed))
        worker_unfit("sched_getaffinity: %s", strerror(errno));
    for (int n = 0; n < CPU_SETSIZE; n++)
        if (CPU_ISSET(n, &allowed)) {
            first = first < 0 ? n : first;
            last = n;
        }
    if (first == last)
        worker_unfit("pin=1 wants two processors, and one may be used");
    CPU_ZERO(&one);
    CPU_SET(side == SENDER ? first : last, &one);
    if (sched_setaffinity(0, sizeof one, &one))
        worker_unfit("sched_setaffinity: %s", strerror(errno));
}

static inline enum side two_fork(int *in, int *out)
{
    int orders[2], reports[2];
    if (pipe2(orders, O_CLOEXEC) || pipe2(reports, O_CLOEXEC))
        worker_unfit("pipe: %s", strerror(errno));
    long parent = (long)getpid();
    pid_t child = fork();
    if (child < 0)
        worker_unfit("fork: %s", strerror(errno));
    int keep = child ? 1 : 0;
    close(orders[!keep]);
    close(reports[keep]);
    *in = child ? reports[0] : orders[0];
    *out = child ? orders[1] : reports[1];
    if (child)
        return SENDER;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if ((long)getppid() != parent)
        _exit(1);
    return RECEIVER;
}

static inline int two_main(int argc, char **argv, const struct way *way)
{
    char keys[256];
    snprintf(keys, sizeof keys, "job fresh pin spoil bytes scratch %s", way->keys);
    worker_parameters(argc, argv, keys);
    two.way = way;
    two.job = (enum job)worker_choice("job", two_jobs);
    two.bytes = worker_number("bytes", 64);
    two.fresh = worker_number("fresh", 0) != 0;
    two.pinned = worker_number("pin", 0) != 0;
    two.spoil = worker_number("spoil", 0) != 0;
    if (two.bytes < sizeof two.number || two.bytes > (uint64_t)1 << 40)
        worker_unfit("bytes=%" PRIu64 ": a message has 8 bytes at least, 2^40 at most", two.bytes);
    if (two.fresh && two.job != BULK)
        worker_unfit("fresh=1 is for job=bulk");
    signal(SIGPIPE, SIG_IGN);
    if (way->before)
        way->before();
    enum side side = way->split ? way->split(&two.in, &two.out) : two_fork(&two.in, &two.out);
    /* Only A writes to the lab's pipe. B's output goes to standard error. */
    if (side == RECEIVER && dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        _exit(1);
    if (two.pinned)
        two_pin(side);
    way->meet(side);
    int status = 0;
    if (side == RECEIVER) {
        struct two_report here = { .what = 'h', .pid = (int32_t)getpid() };
        two_write(&here, sizeof here);
        two_obey();
    } else {
        struct worker worker = { .faults = two.fresh, .warm = two_warm, .run = two_run, .check = two_check,
                                 .alias = two_alias, .memory = two_pss };
        two.other = two_hear('h').pid;
        status = worker_main(&worker);
        close(two.out);
    }
    if (way->leave)
        way->leave();
    return status;
}

#endif

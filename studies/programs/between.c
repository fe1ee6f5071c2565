/* Study 000: a large piece of A's own memory becomes a piece of B's own memory.
 *
 * A is this process, B a child that is started before there is any buffer. By shared memory: A locks,
 * copies all of it in, unlocks; B locks, copies all of it out, unlocks. By vmsplice: A maps pieces into
 * a pipe, B takes them out at the other end. And `memcpy` by itself in one process, with the article's
 * `mymemcpy` that does it through a pipe. */
#define _GNU_SOURCE
#include "worker.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

enum way { SHM, VMSPLICE, VMSPLICE_READ, MEMCPY, MYMEMCPY };
static const char *const ways[] = { "shm", "vmsplice", "vmsplice-read", "memcpy", "mymemcpy", NULL };
enum side { BOTH, SENDER, RECEIVER };
static const char *const sides[] = { "both", "sender", "receiver", NULL };

static enum way way;
static enum side side;
static uint64_t bytes, piece, pipe_size;
/* B's memory, and the shared one, are new to every operation; a byte spoiled for tests of the check. */
static int fresh, spoil;

static char *source, *sink;       /* A's memory, and B's (or A's second one) */
static char *shared;              /* what both see */
static int shared_fd = -1;
static int data[2] = { -1, -1 };  /* the pipe that vmsplice fills */
static int orders[2], reports[2]; /* A to B, B to A; a closed end is how a death is noticed */

static struct control {
    pthread_mutex_t lock;
    struct cost receiver;
    uint64_t sum;
    uint64_t length; /* bytes of this transfer */
} *control;

/* ---- memory ---- */

static char *private_memory(void)
{
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        worker_unfit("mmap of %" PRIu64 " bytes: %s", bytes, strerror(errno));
    return p;
}

static void see_shared(void)
{
    if (way != SHM)
        return;
    shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shared_fd, 0);
    if (shared == MAP_FAILED)
        worker_unfit("mmap of shared memory, %" PRIu64 " bytes: %s", bytes, strerror(errno));
}

/* Gives the pages of the shared memory back: both mappings fault anew. */
static void renew_shared(void)
{
    if (way == SHM && (ftruncate(shared_fd, 0) || ftruncate(shared_fd, (off_t)bytes)))
        worker_unfit("ftruncate of shared memory: %s", strerror(errno));
}

static void renew(char *memory)
{
    if (madvise(memory, bytes, MADV_DONTNEED))
        worker_unfit("madvise(MADV_DONTNEED): %s", strerror(errno));
}

/* Bytes that say where they belong and which time it is. */
static void fill(char *memory, uint64_t salt)
{
    uint64_t word = salt * 0x9e3779b97f4a7c15u + 1;
    for (uint64_t at = 0; at < bytes; at += sizeof word) {
        uint64_t left = bytes - at;
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        memcpy(memory + at, &word, left < sizeof word ? left : sizeof word);
    }
}

/* Every byte and its place count. */
static uint64_t checksum(const char *memory, uint64_t length)
{
    uint64_t sum = 14695981039346656037u;
    for (uint64_t at = 0; at < length; at += sizeof sum) {
        uint64_t left = length - at, word = 0;
        memcpy(&word, memory + at, left < sizeof word ? left : sizeof word);
        sum = (sum ^ word) * 1099511628211u;
        sum ^= sum >> 32;
    }
    return sum;
}

/* ---- the two ways, as in the article ---- */

static void copy_in_pieces(char *to, const char *from, uint64_t length)
{
    for (uint64_t total = 0; total < length;) {
        uint64_t size = length - total > piece ? piece : length - total;
        memcpy(to + total, from + total, size);
        total += size;
    }
}

/* vmsplice, or read, of all of it, by pieces. */
static void through_pipe(int end, char *memory, uint64_t length, struct cost *cost)
{
    for (uint64_t at = 0; at < length;) {
        uint64_t size = length - at > piece ? piece : length - at;
        struct iovec iov = { .iov_base = memory + at, .iov_len = size };
        ssize_t moved = end == data[0] && way == VMSPLICE_READ ? read(end, memory + at, size)
                                                               : vmsplice(end, &iov, 1, 0x1);
        if (moved <= 0)
            worker_unfit("%s after %" PRIu64 " of %" PRIu64 " bytes: %s",
                         way == VMSPLICE_READ && end == data[0] ? "read" : "vmsplice", at, length,
                         moved ? strerror(errno) : "the other end was closed");
        at += (uint64_t)moved;
        cost->calls++;
    }
}

/* The article's, with its pipe made anew by every call. */
static void mymemcpy(char *to, char *from, uint64_t length, struct cost *cost)
{
    if (pipe2(data, O_CLOEXEC))
        worker_unfit("pipe: %s", strerror(errno));
    if (pipe_size && fcntl(data[1], F_SETPIPE_SZ, (int)pipe_size) < 0)
        worker_unfit("F_SETPIPE_SZ to %" PRIu64 ": %s", pipe_size, strerror(errno));
    cost->calls += pipe_size ? 4 : 3;
    for (uint64_t at = 0; at < length;) {
        uint64_t size = length - at > piece ? piece : length - at;
        struct iovec in = { .iov_base = from + at, .iov_len = size };
        ssize_t moved = vmsplice(data[1], &in, 1, 0x1 | SPLICE_F_NONBLOCK);
        if (moved <= 0)
            worker_unfit("vmsplice into the pipe after %" PRIu64 " bytes: %s", at, strerror(errno));
        for (ssize_t out = 0; out < moved;) {
            struct iovec rest = { .iov_base = to + at + out, .iov_len = (size_t)(moved - out) };
            ssize_t got = vmsplice(data[0], &rest, 1, 0x1);
            if (got <= 0)
                worker_unfit("vmsplice out of the pipe after %" PRIu64 " bytes: %s", at, strerror(errno));
            out += got;
            cost->calls++;
        }
        at += (uint64_t)moved;
        cost->calls++;
    }
    close(data[0]);
    close(data[1]);
}

static void lock(void)
{
    int error = pthread_mutex_lock(&control->lock);
    if (error)
        worker_unfit("the lock: %s", error == EOWNERDEAD ? "the other process died" : strerror(error));
}

/* ---- B ---- */

static void say(int fd, char word)
{
    if (write(fd, &word, 1) != 1)
        worker_unfit("the other process is gone");
}

static char hear(int fd)
{
    char word;
    ssize_t got = read(fd, &word, 1);
    if (got < 0)
        worker_unfit("the other process cannot be heard: %s", strerror(errno));
    return got ? word : 0;
}

static void receive(void)
{
    struct cost *cost = &control->receiver;
    struct worker_mark mark = worker_begin();
    if (way == SHM) {
        lock();
        copy_in_pieces(sink, shared, control->length);
        pthread_mutex_unlock(&control->lock);
    } else {
        through_pipe(data[0], sink, control->length, cost);
    }
    worker_end(&mark, cost);
}

/* 't' transfer, 'w' warm, 'n' new memory, 's' checksum; answers each with the same letter. */
static void obey(void)
{
    for (char word; (word = hear(orders[0])) != 0; say(reports[1], word)) {
        if (word == 't') {
            receive();
        } else if (word == 'w') {
            sink = private_memory();
            memset(sink, 1, bytes);
            see_shared();
        } else if (word == 'n') {
            renew(sink);
        } else if (word == 's') {
            control->sum = checksum(sink, control->length);
        }
    }
}

static long start_receiver(void)
{
    if (pipe2(orders, O_CLOEXEC) || pipe2(reports, O_CLOEXEC) || (way != SHM && pipe2(data, O_CLOEXEC)))
        worker_unfit("pipe: %s", strerror(errno));
    if (way != SHM && pipe_size && fcntl(data[1], F_SETPIPE_SZ, (int)pipe_size) < 0)
        worker_unfit("F_SETPIPE_SZ to %" PRIu64 ": %s", pipe_size, strerror(errno));
    long parent = (long)getpid();
    pid_t child = fork();
    if (child < 0)
        worker_unfit("fork: %s", strerror(errno));
    if (child) {
        close(orders[0]);
        close(reports[1]);
        if (way != SHM)
            close(data[0]), data[0] = -1;
        return child;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if ((long)getppid() != parent)
        _exit(1);
    /* The lab's lines are A's. What B has to say goes to standard error. */
    if (dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        _exit(1);
    close(STDIN_FILENO);
    close(orders[1]);
    close(reports[0]);
    if (way != SHM)
        close(data[1]), data[1] = -1;
    obey();
    _exit(0);
}

/* ---- A ---- */

static long receiver_pid;

static void ask(char word)
{
    say(orders[1], word);
    if (hear(reports[0]) != word)
        worker_unfit("the receiver ended");
}

static int alone(void)
{
    return way == MEMCPY || way == MYMEMCPY;
}

static void send(struct cost *cost)
{
    if (way == SHM) {
        lock();
        /* B waits for the lock while A copies. */
        say(orders[1], 't');
        copy_in_pieces(shared, source, control->length);
        pthread_mutex_unlock(&control->lock);
    } else {
        say(orders[1], 't');
        through_pipe(data[1], source, control->length, cost);
    }
}

static void transfer(struct cost *cost)
{
    if (way == MEMCPY) {
        copy_in_pieces(sink, source, control->length);
    } else if (way == MYMEMCPY) {
        mymemcpy(sink, source, control->length, cost);
    } else {
        send(cost);
        if (hear(reports[0]) != 't')
            worker_unfit("the receiver ended");
    }
}

static void make_new(void)
{
    if (alone()) {
        renew(sink);
    } else {
        renew_shared();
        ask('n');
    }
}

static void warm(void)
{
    struct cost unused = { 0 };
    worker_needs(bytes * (way == SHM ? 3 : 2));
    source = private_memory();
    fill(source, 1);
    if (alone()) {
        sink = private_memory();
        memset(sink, 1, bytes);
    } else {
        see_shared();
        ask('w');
    }
    control->length = bytes;
    transfer(&unused);
}

static void add(struct cost *to, const struct cost *from)
{
    to->user_us += from->user_us;
    to->sys_us += from->sys_us;
    to->minor_faults += from->minor_faults;
    to->major_faults += from->major_faults;
    to->voluntary += from->voluntary;
    to->involuntary += from->involuntary;
    to->calls += from->calls;
}

/* Both sides: the clock from the first byte sent to the last one received. One side: what that side
 * took from its beginning to its end. */
static void run_once(struct cost *cost)
{
    struct cost sender = { 0 };
    memset(&control->receiver, 0, sizeof control->receiver);
    struct worker_mark mark = worker_begin();
    if (side == SENDER && !alone()) {
        send(&sender);
        worker_end(&mark, &sender);
        if (hear(reports[0]) != 't')
            worker_unfit("the receiver ended");
    } else {
        transfer(&sender);
        worker_end(&mark, &sender);
    }
    const struct cost *chosen = side == RECEIVER ? &control->receiver : &sender;
    cost->wall_ns += chosen->wall_ns;
    add(cost, chosen);
    if (side == BOTH)
        add(cost, &control->receiver);
}

static void run(uint32_t times, struct cost *cost)
{
    control->length = bytes;
    for (uint32_t n = 0; n < times; n++) {
        if (fresh)
            make_new();
        run_once(cost);
    }
    cost->bytes = bytes * times;
}

static uint64_t sum_of_sink(void)
{
    if (alone())
        return checksum(sink, control->length);
    ask('s');
    return control->sum;
}

static const char *check(void)
{
    static uint64_t salt = 1;
    struct cost unused = { 0 };
    fill(source, ++salt);
    uint64_t before = checksum(source, bytes);
    if (spoil)
        source[bytes / 2] ^= 1;
    control->length = bytes;
    if (fresh)
        make_new();
    transfer(&unused);
    if (sum_of_sink() != before)
        return "what arrived is not what was sent";
    memset(source, 0, bytes);
    if (sum_of_sink() != before)
        return "B's memory changed when A wrote to its own afterwards";
    return NULL;
}

/* A sends a page and writes to it before B has taken it out: what does B get? */
static const char *alias(void)
{
    struct cost unused = { 0 };
    control->length = bytes < 4096 ? bytes : 4096;
    fill(source, 77);
    uint64_t before = checksum(source, control->length);
    if (alone()) {
        transfer(&unused);
    } else if (way == SHM) {
        lock();
        copy_in_pieces(shared, source, control->length);
        pthread_mutex_unlock(&control->lock);
    } else {
        through_pipe(data[1], source, control->length, &unused);
    }
    memset(source, 0, control->length);
    if (!alone())
        ask('t');
    return sum_of_sink() == before ? "copied" : "shared";
}

static uint64_t memory(void)
{
    return worker_pss((long)getpid()) + (alone() ? 0 : worker_pss(receiver_pid));
}

static void make_control(void)
{
    pthread_mutexattr_t kind;
    control = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (control == MAP_FAILED)
        worker_unfit("mmap: %s", strerror(errno));
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    int error = pthread_mutex_init(&control->lock, &kind);
    if (error)
        worker_unfit("a lock that processes share: %s", strerror(error));
}

int main(int argc, char **argv)
{
    worker_parameters(argc, argv, "way side piece pipe fresh spoil bytes scratch ");
    way = (enum way)worker_choice("way", ways);
    side = (enum side)worker_choice("side", sides);
    bytes = worker_number("bytes", 1 << 20);
    piece = worker_number("piece", PIPE_BUF);
    pipe_size = worker_number("pipe", 0);
    fresh = worker_number("fresh", 0) != 0;
    spoil = worker_number("spoil", 0) != 0;
    if (!bytes || bytes > (uint64_t)1 << 60 || !piece || pipe_size > INT_MAX)
        worker_unfit("bytes (at most 2^60) and piece are to be above 0, pipe at most %d", INT_MAX);
    if (alone() && side != BOTH)
        worker_unfit("side=%s: %s is done by one process", sides[side], ways[way]);
    signal(SIGPIPE, SIG_IGN);
    make_control();
    if (way == SHM && ((shared_fd = memfd_create("thalweg", MFD_CLOEXEC)) < 0 || ftruncate(shared_fd, (off_t)bytes)))
        worker_unfit("shared memory of %" PRIu64 " bytes: %s", bytes, strerror(errno));
    if (!alone())
        receiver_pid = start_receiver();

    struct worker worker = { .faults = fresh, .counts_calls = way != SHM && way != MEMCPY, .warm = warm,
                             .run = run, .check = check, .alias = alias, .memory = memory };
    return worker_main(&worker);
}

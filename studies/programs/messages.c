/* Study 001: the peer of Messages.java, as AFL is the peer of a Java program. It returns every message.
 *
 * It prints `ready PORT` as soon as the other process can connect. The order `run N` on standard input makes it print `go`, return N
 * messages, and print what it used meanwhile: user and system time in microseconds. It ends with standard input.
 *
 * In every method, the message ends in memory of this process alone, and the answer is sent from there. */
#define _GNU_SOURCE
#include "worker.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#ifdef WITH_RING
#include <thalweg.h>
#endif

enum way { UDP, UNIX, MAPPED, RING };
static const char *const ways[] = { "udp", "unix", "mapped", "ring", NULL };

/* Distance of the two sequence numbers, so that no cache line has both, and offset of the messages. */
enum { APART = 128, DATA = 4096 };
/* Number of looks at a sequence number before the processor is given to another thread. */
enum { LOOKS = 10000 };

static enum way way;
static uint64_t bytes;
static const char *path;
static char *own; /* this process's copy of the message */
static int sock = -1;
static char *shared;
static uint64_t sequence;
#ifdef WITH_RING
static tw_consumer *consumer;
static tw_producer *producer;
#endif
enum wait { HYBRID, BLOCK };
static const char *const waits[] = { "hybrid", "block", NULL };
static enum wait waiting;

static void failed(const char *what)
{
    worker_unfit("the peer: %s: %s", what, strerror(errno));
}

static void ready(int port)
{
    printf("ready %d\n", port);
    fflush(stdout);
}

/* ---- sockets ---- */

static void open_udp(void)
{
    struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof name;
    char first;
    sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (sock < 0 || bind(sock, (struct sockaddr *)&name, length) || getsockname(sock, (struct sockaddr *)&name, &length))
        failed("socket");
    ready(ntohs(name.sin_port));
    /* The first datagram shows the address of the other process. */
    if (recvfrom(sock, &first, 1, 0, (struct sockaddr *)&name, &length) != 1 ||
        connect(sock, (struct sockaddr *)&name, length) || send(sock, &first, 1, 0) != 1)
        failed("the first datagram");
}

static void open_unix(void)
{
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    if (strlen(path) >= sizeof name.sun_path)
        worker_unfit("the path of the scratch directory is too long for a socket: %s", path);
    strcpy(name.sun_path, path);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&name, sizeof name) || listen(listener, 1))
        failed(path);
    ready(0);
    sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    close(listener);
    unlink(path);
    if (sock < 0)
        failed("accept");
}

static void return_datagram(void)
{
    ssize_t got = recv(sock, own, bytes, 0);
    if (got != (ssize_t)bytes || send(sock, own, bytes, 0) != got)
        failed("a datagram");
}

static void return_over_stream(void)
{
    for (uint64_t at = 0; at < bytes;) {
        ssize_t got = read(sock, own + at, bytes - at);
        if (got <= 0)
            failed("read");
        at += (uint64_t)got;
    }
    for (uint64_t at = 0; at < bytes;) {
        ssize_t sent = write(sock, own + at, bytes - at);
        if (sent <= 0)
            failed("write");
        at += (uint64_t)sent;
    }
}

/* ---- a mapped file: two sequence numbers, then a message in each direction ---- */

static void open_mapped(void)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        failed(path);
    shared = mmap(NULL, DATA + 2 * bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED)
        failed("mmap");
    close(fd);
    ready(0);
}

static void return_in_memory(void)
{
    uint64_t *theirs = (uint64_t *)shared, *ours = (uint64_t *)(shared + APART);
    sequence++;
    for (uint64_t looks = 1; __atomic_load_n(theirs, __ATOMIC_ACQUIRE) != sequence; looks++)
        if (looks % LOOKS == 0)
            sched_yield();
    memcpy(own, shared + DATA, bytes);
    memcpy(shared + DATA + bytes, own, bytes);
    __atomic_store_n(ours, sequence, __ATOMIC_RELEASE);
}

/* ---- the ring of thalweg ---- */

#ifdef WITH_RING
static void succeeded(tw_status status, const tw_error *error)
{
    if (status != TW_OK)
        worker_unfit("the peer: %s", error->message);
}

static void open_ring(void)
{
    tw_error error;
    tw_channel_options options = TW_CHANNEL_OPTIONS_INIT;
    tw_listener *listener;
    tw_link *link;
    options.wait = waiting == BLOCK ? TW_WAIT_BLOCK : TW_WAIT_HYBRID;
    succeeded(tw_listener_bind(path, TW_SAME_USER, &listener, &error), &error);
    ready(0);
    succeeded(tw_listener_accept(listener, TW_FOREVER, &link, &error), &error);
    succeeded(tw_consumer_open(&link, &options, TW_FOREVER, &consumer, &error), &error);
    succeeded(tw_listener_accept(listener, TW_FOREVER, &link, &error), &error);
    succeeded(tw_producer_open(&link, &options, TW_FOREVER, &producer, &error), &error);
    tw_listener_close(listener);
}

static void return_by_ring(void)
{
    tw_error error;
    size_t length;
    succeeded(tw_consumer_receive_into(consumer, own, bytes, TW_FOREVER, &length, &error), &error);
    succeeded(tw_producer_send(producer, own, length, TW_FOREVER, &error), &error);
}
#else
static void open_ring(void)
{
    worker_unfit("the peer was built without thalweg's C library");
}

static void return_by_ring(void)
{
}
#endif

/* ---- orders ---- */

static void obey(void)
{
    static void (*const returns[])(void) = { return_datagram, return_over_stream, return_in_memory, return_by_ring };
    char line[64];
    uint64_t times;
    while (fgets(line, sizeof line, stdin) && sscanf(line, "run %" SCNu64, &times) == 1) {
        struct cost cost = { 0 };
        printf("go\n");
        fflush(stdout);
        struct worker_mark mark = worker_begin();
        for (uint64_t n = 0; n < times; n++)
            returns[way]();
        worker_end(&mark, &cost);
        printf("used %" PRIu64 " %" PRIu64 "\n", cost.user_us, cost.sys_us);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    static void (*const opens[])(void) = { open_udp, open_unix, open_mapped, open_ring };
    worker_parameters(argc, argv, "way wait bytes path ");
    /* A peer that polls would not notice the end of standard input. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    waiting = (enum wait)worker_choice("wait", waits);
    way = (enum way)worker_choice("way", ways);
    bytes = worker_number("bytes", 64);
    path = worker_text("path", "");
    signal(SIGPIPE, SIG_IGN);
    own = bytes && bytes <= UINT32_MAX ? malloc(bytes) : NULL;
    if (!own)
        worker_unfit("no memory for messages of %" PRIu64 " bytes", bytes);
    opens[way]();
    obey();
    return 0;
}

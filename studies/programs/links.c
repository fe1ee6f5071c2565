/* Study 003: a file over a link between two hosts, with and without TLS.
 *
 * The hosts are two network namespaces that a veth pair connects. `mbit` limits both ends by a token bucket (tc-tbf(8)), because a limit
 * of the link is what a loopback does not have; 0 does not limit them. The sender is this process, the receiver its child, which reads
 * 256 KiB at a time, or a TLS record. One operation is the file, of `bytes` bytes, and a report that all of it came. With cold=1, at most
 * one page in a hundred of the file is in the page cache when an operation begins. */
#define _GNU_SOURCE
#include "worker.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef WITH_TLS
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#endif
#ifdef WITH_URING
#include <liburing.h>
#endif

enum way { READ_SEND, SENDFILE, SEND_ZC, TLS, KTLS };
static const char *const ways[] = { "read-send", "sendfile", "send-zc", "tls", "ktls", NULL };

enum { READER = 256 << 10, PORT = 4000, PIECE = 1 << 20 };
/* Addresses of the benchmark network of RFC 2544. They exist in the namespaces only. */
#define SENDER "198.18.0.1"
#define RECEIVER "198.18.0.2"

static enum way way;
static uint64_t bytes, buffer, mbit;
static int spoil, cold;
static char path[4200];
static char *buf;
static int file = -1, sock = -1;
static pid_t receiver;
/* Orders to the receiver, 'c' with a comparison and 'r' without; its reports. */
static int orders = -1, reports = -1;

struct report {
    uint64_t user_us, sys_us;
    char ok;
};

static void failed(const char *what)
{
    worker_unfit("%s: %s", what, strerror(errno));
}

/* ---- TLS: a key and a certificate that only these two processes know ---- */

#ifdef WITH_TLS
static SSL *ssl;
static SSL_CTX *contexts[2]; /* of the sender, of the receiver */

static void tls_failed(const char *what)
{
    worker_unfit("%s: %s", what, ERR_error_string(ERR_get_error(), NULL));
}

static void make_tls(void)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();
    contexts[0] = SSL_CTX_new(TLS_client_method());
    contexts[1] = SSL_CTX_new(TLS_server_method());
    if (!key || !certificate || !contexts[0] || !contexts[1])
        tls_failed("TLS");
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 86400);
    X509_set_pubkey(certificate, key);
    if (!X509_sign(certificate, key, EVP_sha256()) || SSL_CTX_use_certificate(contexts[1], certificate) != 1 ||
        SSL_CTX_use_PrivateKey(contexts[1], key) != 1)
        tls_failed("the certificate");
    for (int n = 0; n < 2; n++)
        if (!SSL_CTX_set_min_proto_version(contexts[n], TLS1_3_VERSION) ||
            !SSL_CTX_set_ciphersuites(contexts[n], "TLS_AES_128_GCM_SHA256"))
            tls_failed("TLS 1.3");
    if (way == KTLS)
        SSL_CTX_set_options(contexts[0], SSL_OP_ENABLE_KTLS);
    X509_free(certificate);
    EVP_PKEY_free(key);
}

static void greet_tls(int is_receiver)
{
    ssl = SSL_new(contexts[is_receiver]);
    if (!ssl || SSL_set_fd(ssl, sock) != 1 || (is_receiver ? SSL_accept(ssl) : SSL_connect(ssl)) != 1)
        tls_failed("the TLS handshake");
    if (way == KTLS && !is_receiver && !BIO_get_ktls_send(SSL_get_wbio(ssl)))
        worker_unfit("this kernel or OpenSSL does not encrypt in the kernel: /proc/sys/net/ipv4/tcp_available_ulp must have tls");
}

static ssize_t receive_tls(char *into, size_t length)
{
    return SSL_read(ssl, into, (int)length);
}

static void send_tls(void)
{
    for (uint64_t at = 0; at < bytes;) {
        ssize_t got = pread(file, buf, buffer, (off_t)at);
        if (got <= 0 || SSL_write(ssl, buf, (int)got) != got)
            worker_unfit("TLS: the connection broke");
        at += (uint64_t)got;
    }
}

static void send_ktls(void)
{
    for (uint64_t at = 0; at < bytes;) {
        ossl_ssize_t sent = SSL_sendfile(ssl, file, (off_t)at, bytes - at, 0);
        if (sent <= 0)
            worker_unfit("SSL_sendfile: the connection broke");
        at += (uint64_t)sent;
    }
}
#else
static void make_tls(void)
{
    worker_unfit("built without OpenSSL");
}
static void greet_tls(int is_receiver)
{
    (void)is_receiver;
}
static ssize_t receive_tls(char *into, size_t length)
{
    (void)into, (void)length;
    return -1;
}
static void send_tls(void)
{
}
static void send_ktls(void)
{
}
#endif

/* ---- io_uring: pages of the page cache, without a copy where the network allows it ---- */

#ifdef WITH_URING
static struct io_uring ring;
static char *map;

static void make_ring(void)
{
    struct io_uring_probe *probe;
    map = mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0);
    if (map == MAP_FAILED)
        failed("mmap");
    int result = io_uring_queue_init(64, &ring, 0);
    if (result)
        worker_unfit("io_uring: %s", strerror(-result));
    probe = io_uring_get_probe_ring(&ring);
    if (!probe || !io_uring_opcode_supported(probe, IORING_OP_SEND_ZC))
        worker_unfit("this kernel has no IORING_OP_SEND_ZC (Linux 6.0)");
    io_uring_free_probe(probe);
}

/* The result of the request in flight, or 0 for a note that the pages of an earlier one are free. Counts the expected notes. */
static uint64_t next_completion(unsigned *notes)
{
    struct io_uring_cqe *cqe;
    if (io_uring_wait_cqe(&ring, &cqe))
        worker_unfit("io_uring: no completion");
    int32_t result = cqe->res;
    uint32_t flags = cqe->flags;
    io_uring_cqe_seen(&ring, cqe);
    if (flags & IORING_CQE_F_NOTIF) {
        --*notes;
        return 0;
    }
    if (result <= 0)
        worker_unfit("IORING_OP_SEND_ZC: %s", strerror(-result));
    *notes += (flags & IORING_CQE_F_MORE) != 0;
    return (uint64_t)result;
}

static void send_zc(void)
{
    unsigned notes = 0;
    for (uint64_t at = 0, sent; at < bytes; at += sent) {
        io_uring_prep_send_zc(io_uring_get_sqe(&ring), sock, map + at, bytes - at < buffer ? bytes - at : buffer, MSG_WAITALL, 0);
        if (io_uring_submit(&ring) != 1)
            worker_unfit("io_uring: the request was not accepted");
        while (!(sent = next_completion(&notes)))
            ;
    }
    while (notes)
        next_completion(&notes);
}
#else
static void make_ring(void)
{
    worker_unfit("built without liburing");
}
static void send_zc(void)
{
}
#endif

/* ---- plain TCP ---- */

static void read_and_send(void)
{
    for (uint64_t at = 0; at < bytes;) {
        ssize_t got = pread(file, buf, buffer, (off_t)at);
        if (got <= 0)
            failed(path);
        for (ssize_t done = 0; done < got;) {
            ssize_t sent = send(sock, buf + done, (size_t)(got - done), 0);
            if (sent <= 0)
                failed("send");
            done += sent;
        }
        at += (uint64_t)got;
    }
}

static void send_file(void)
{
    off_t at = 0;
    while ((uint64_t)at < bytes)
        if (sendfile(sock, file, &at, bytes - (uint64_t)at) <= 0)
            failed("sendfile");
}

/* ---- the link ---- */

static void call(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void call(const char *format, ...)
{
    char command[256];
    va_list words;
    va_start(words, format);
    vsnprintf(command, sizeof command, format, words);
    va_end(words);
    /* The lab reads standard output. */
    strncat(command, " >/dev/null", sizeof command - strlen(command) - 1);
    int status = system(command);
    if (status)
        worker_unfit("%s: status %d (needs iproute2, veth and tbf)", command, WEXITSTATUS(status));
}

static void new_namespace(void)
{
    if (unshare(CLONE_NEWNET))
        worker_unfit("a network namespace: %s; run the lab as root", strerror(errno));
}

static void configure(const char *address)
{
    call("ip address add %s/30 dev link0 && ip link set link0 up", address);
    if (mbit)
        call("tc qdisc add dev link0 root tbf rate %" PRIu64 "mbit burst 1mb latency 50ms", mbit);
}

/* ---- the receiver ---- */

static void report(char ok)
{
    struct rusage used;
    struct report now = { 0 };
    getrusage(RUSAGE_SELF, &used);
    now.user_us = (uint64_t)used.ru_utime.tv_sec * 1000000 + (uint64_t)used.ru_utime.tv_usec;
    now.sys_us = (uint64_t)used.ru_stime.tv_sec * 1000000 + (uint64_t)used.ru_stime.tv_usec;
    now.ok = ok;
    if (write(reports, &now, sizeof now) != sizeof now)
        exit(1);
}

static void receive(void)
{
    char order, *expected = malloc(READER);
    while (read(orders, &order, 1) == 1) {
        char ok = 1;
        for (uint64_t at = 0; at < bytes;) {
            size_t want = bytes - at < READER ? (size_t)(bytes - at) : READER;
            ssize_t got = way == TLS || way == KTLS ? receive_tls(buf, want) : read(sock, buf, want);
            if (got <= 0)
                exit(1);
            if (spoil)
                buf[0] ^= 1;
            if (order == 'c' && (!expected || pread(file, expected, (size_t)got, (off_t)at) != got || memcmp(buf, expected, (size_t)got)))
                ok = 0;
            at += (uint64_t)got;
        }
        report(ok);
    }
    exit(0);
}

static void start_receiver(void)
{
    int to[2], from[2];
    char word = 0;
    if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC) || (receiver = fork()) < 0)
        failed("the receiver");
    orders = receiver ? to[1] : to[0];
    reports = receiver ? from[0] : from[1];
    close(receiver ? to[0] : to[1]);
    close(receiver ? from[1] : from[0]);
    if (receiver) {
        if (read(reports, &word, 1) != 1)
            worker_unfit("the receiver has no network namespace");
        call("ip link add link0 type veth peer name link0 netns %ld", (long)receiver);
        configure(SENDER);
        if (write(orders, &word, 1) != 1 || read(reports, &word, 1) != 1)
            worker_unfit("the receiver does not listen");
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    new_namespace();
    if (write(reports, &word, 1) != 1 || read(orders, &word, 1) != 1)
        exit(1);
    configure(RECEIVER);
    struct sockaddr_in name = { .sin_family = AF_INET, .sin_port = htons(PORT) };
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&name, sizeof name) || listen(listener, 1) || write(reports, &word, 1) != 1 ||
        (sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0)
        failed("the receiver");
    if (way == TLS || way == KTLS)
        greet_tls(1);
    receive();
}

/* ---- what the lab asks for ---- */

static void fill_file(void)
{
    uint64_t state = 88172645463325252;
    file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    for (uint64_t at = 0; at < bytes;) {
        for (uint64_t n = 0; n + 8 <= PIECE; n += 8) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            memcpy(buf + n, &state, 8);
        }
        uint64_t length = bytes - at < PIECE ? bytes - at : PIECE;
        if (file < 0 || pwrite(file, buf, length, (off_t)at) != (ssize_t)length)
            failed(path);
        at += length;
    }
    unlink(path);
    if (cold && fsync(file))
        failed(path);
}

static uint64_t resident_pages(void)
{
    static unsigned char *pages;
    uint64_t count = (bytes + 4095) / 4096, resident = 0;
    void *view = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
    if (!pages)
        pages = malloc(count);
    if (!pages || view == MAP_FAILED || mincore(view, bytes, pages))
        failed("mincore");
    munmap(view, bytes);
    for (uint64_t n = 0; n < count; n++)
        resident += pages[n] & 1;
    return resident;
}

/* Removes the file from the page cache. Pages that the network or another processor still holds go a little later; a hundredth may stay. */
static void drop_cache(void)
{
    uint64_t resident = 0;
    for (int tries = 0; tries < 200; tries++) {
        posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
        resident = resident_pages();
        if (resident * 4096 * 100 <= bytes)
            return;
        usleep(20000);
    }
    worker_unfit("%" PRIu64 " pages of the file stay in the page cache", resident);
}

static struct report transfer(char order)
{
    static void (*const sends[])(void) = { read_and_send, send_file, send_zc, send_tls, send_ktls };
    struct report got;
    if (write(orders, &order, 1) != 1)
        worker_unfit("the receiver ended");
    sends[way]();
    if (read(reports, &got, sizeof got) != sizeof got)
        worker_unfit("the receiver ended");
    return got;
}

static struct report last;

static void warm(void)
{
    struct sockaddr_in name = { .sin_family = AF_INET, .sin_port = htons(PORT) };
    new_namespace();
    fill_file();
    if (way == TLS || way == KTLS)
        make_tls();
    if (way == SEND_ZC)
        make_ring();
    start_receiver();
    inet_pton(AF_INET, RECEIVER, &name.sin_addr);
    sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (sock < 0 || connect(sock, (struct sockaddr *)&name, sizeof name))
        failed("connect");
    if (way == TLS || way == KTLS)
        greet_tls(0);
    last = transfer('r');
}

static void run(uint32_t times, struct cost *cost)
{
    struct report first = last;
    for (uint32_t n = 0; n < times; n++) {
        if (cold)
            drop_cache();
        struct worker_mark mark = worker_begin();
        last = transfer('r');
        worker_end(&mark, cost);
    }
    cost->user_us += last.user_us - first.user_us;
    cost->sys_us += last.sys_us - first.sys_us;
    cost->bytes = bytes * times;
}

static const char *check(void)
{
    last = transfer('c');
    return last.ok ? NULL : "the receiver got other bytes than the file has";
}

int main(int argc, char **argv)
{
    worker_parameters(argc, argv, "way buffer mbit cold spoil bytes scratch ");
    way = (enum way)worker_choice("way", ways);
    bytes = worker_number("bytes", 63000000);
    buffer = worker_number("buffer", 64 << 10);
    mbit = worker_number("mbit", 0);
    spoil = worker_number("spoil", 0) != 0;
    cold = worker_number("cold", 0) != 0;
    const char *scratch = worker_text("scratch", ".");
    struct statfs system;
    if (cold && !statfs(scratch, &system) && system.f_type == TMPFS_MAGIC)
        worker_unfit("the scratch directory is on tmpfs, where files are always in memory; --scratch names another one");
    if (!bytes || !buffer || buffer > PIECE)
        worker_unfit("bytes=%" PRIu64 " buffer=%" PRIu64 ": at least 1, and a buffer of 1 MiB at most", bytes, buffer);
    worker_needs(2 * bytes);
    snprintf(path, sizeof path, "%s/link-%ld", scratch, (long)getpid());
    signal(SIGPIPE, SIG_IGN);
    buf = malloc(PIECE);
    if (!buf)
        worker_unfit("no memory for a buffer");
    struct worker worker = { .warm = warm, .run = run, .check = check };
    return worker_main(&worker);
}

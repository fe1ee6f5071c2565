/* Packets through DPDK's vhost library, between two processes on two processors: a guest that sends by virtio-user, and a switch that
 * receives by vhost and frees what it received. vhost copies each packet once, by rte_memcpy.
 *   vhost SIZES SECONDS SOCKET FOLDER      SIZES: 64, or 64,64,570: packets of these lengths in turn
 * The vhost library must be the one in FOLDER. Prints the nanoseconds per packet, and how many of the calls that receive came back
 * empty: if many did, the guest limits, and not the copy. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

enum { BURST = 32, BUFFERS = 8192, DESCRIPTORS = 1024, MOST_SIZES = 16, CHECKED = 10000 };

static unsigned sizes[MOST_SIZES], count_of_sizes;

static void fail(const char *what, int error)
{
    fprintf(stderr, "vhost: %s: %s\n", what, strerror(error < 0 ? -error : error));
    exit(1);
}

static void read_sizes(char *words)
{
    for (char *word = strtok(words, ","); word; word = strtok(NULL, ",")) {
        unsigned size = (unsigned)atoi(word);
        if (size < 64 || size > 1518 || count_of_sizes == MOST_SIZES) {
            fprintf(stderr, "vhost: %s: at most %d lengths of 64 to 1518 bytes\n", word, MOST_SIZES);
            exit(2);
        }
        sizes[count_of_sizes++] = size;
    }
}

/* Writes bytes that depend on their position in the buffer, so that is_whole detects wrong bytes. */
static void fill(struct rte_mempool *pool, void *unused, void *object, unsigned n)
{
    unsigned char *data = rte_pktmbuf_mtod((struct rte_mbuf *)object, unsigned char *);
    (void)pool, (void)unused, (void)n;
    for (unsigned at = 0; at < 1518; at++)
        data[at] = (unsigned char)(at * 7 + 3);
}

static int is_whole(struct rte_mbuf *packet)
{
    const unsigned char *data = rte_pktmbuf_mtod(packet, unsigned char *);
    for (unsigned at = 0; at < packet->data_len; at++)
        if (data[at] != (unsigned char)(at * 7 + 3))
            return 0;
    return packet->nb_segs == 1;
}

/* Starts DPDK without huge pages and hardware, on one processor, with one device. Returns the buffers of its only port, 0. */
static struct rte_mempool *start(const char *name, const char *core, const char *device, const char *socket)
{
    char prefix[64], with_socket[256];
    struct rte_eth_conf plain = { 0 };
    snprintf(prefix, sizeof prefix, "--file-prefix=%s-%ld", name, (long)getpid());
    snprintf(with_socket, sizeof with_socket, "--vdev=%s=%s", device, socket);
    char *words[] = { (char *)(uintptr_t)name, "-l", (char *)(uintptr_t)core, "--no-huge", "--no-pci", "--no-shconf", "--no-telemetry",
                      "-m", "256", "--log-level=error", prefix, with_socket, NULL };
    if (rte_eal_init(12, words) < 0)
        fail("rte_eal_init", rte_errno);
    struct rte_mempool *pool = rte_pktmbuf_pool_create("buffers", BUFFERS, 256, 0, RTE_MBUF_DEFAULT_BUF_SIZE, 0);
    if (!pool)
        fail("the buffers", rte_errno);
    int error = rte_eth_dev_configure(0, 1, 1, &plain);
    if (!error)
        error = rte_eth_rx_queue_setup(0, 0, DESCRIPTORS, 0, NULL, pool);
    if (!error)
        error = rte_eth_tx_queue_setup(0, 0, DESCRIPTORS, 0, NULL);
    if (!error)
        error = rte_eth_dev_start(0);
    if (error)
        fail(device, error);
    return pool;
}

/* The guest: sends until it is killed. */
static void send_packets(const char *socket)
{
    struct rte_mempool *pool = start("guest", "1", "net_virtio_user0,path", socket);
    struct rte_mbuf *packets[BURST];
    rte_mempool_obj_iter(pool, fill, NULL);
    for (unsigned next = 0;;) {
        if (rte_pktmbuf_alloc_bulk(pool, packets, BURST))
            continue;
        for (unsigned n = 0; n < BURST; n++) {
            packets[n]->pkt_len = packets[n]->data_len = (uint16_t)sizes[next];
            next = next + 1 == count_of_sizes ? 0 : next + 1;
        }
        for (uint16_t sent = 0; sent < BURST;)
            sent += rte_eth_tx_burst(0, 0, packets + sent, (uint16_t)(BURST - sent));
    }
}

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

/* Removes the runtime directories of both processes, which DPDK leaves behind. */
static void remove_directories(pid_t guest)
{
    char own[4096], other[4200];
    snprintf(own, sizeof own, "%s", rte_eal_get_runtime_dir());
    snprintf(other, sizeof other, "%s/../guest-%ld", own, (long)guest);
    rmdir(other);
    rte_eal_cleanup();
    rmdir(own);
}

static uint64_t calls, empty;

/* Receives for some seconds, or until `most` packets have arrived. Returns the number of packets. */
static uint64_t receive(double seconds, uint64_t most, int checks)
{
    struct rte_mbuf *packets[BURST];
    uint64_t count = 0;
    for (double end = now() + seconds; count < most;) {
        uint16_t got = rte_eth_rx_burst(0, 0, packets, BURST);
        calls++;
        empty += !got;
        for (uint16_t n = 0; checks && n < got; n++)
            if (!is_whole(packets[n])) {
                fprintf(stderr, "vhost: a packet arrived with other bytes\n");
                exit(1);
            }
        rte_pktmbuf_free_bulk(packets, got);
        count += got;
        if (now() > end)
            break;
    }
    return count;
}

/* Ends with a failure if the process has not mapped the vhost library of this folder. */
static void check_library(const char *folder)
{
    char line[4400];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, folder) && strstr(line, "librte_vhost")) {
            fclose(maps);
            return;
        }
    fprintf(stderr, "vhost: the process uses another vhost library than that in %s\n", folder);
    exit(1);
}

int main(int argc, char **argv)
{
    char ready = 0;
    int line[2];
    if (argc != 5) {
        fprintf(stderr, "usage: vhost SIZES SECONDS SOCKET FOLDER\n");
        return 2;
    }
    read_sizes(argv[1]);
    double seconds = atof(argv[2]);
    if (!count_of_sizes || seconds <= 0 || pipe(line))
        return 2;
    pid_t guest = fork();
    if (guest < 0)
        fail("fork", errno);
    if (!guest) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (read(line[0], &ready, 1) != 1)
            return 1;
        send_packets(argv[3]);
    }
    start("switch", "0", "net_vhost0,iface", argv[3]);
    check_library(argv[4]);
    if (write(line[1], &ready, 1) != 1)
        return 1;
    if (receive(20, CHECKED, 1) < CHECKED) {
        fprintf(stderr, "vhost: no packets came from the guest\n");
        return 1;
    }
    receive(0.5, UINT64_MAX, 0);
    calls = empty = 0;
    double begin = now();
    uint64_t count = receive(seconds, UINT64_MAX, 0);
    double took = now() - begin;
    kill(guest, SIGKILL);
    waitpid(guest, NULL, 0);
    remove_directories(guest);
    printf("%.3f ns, %.1f %% of the calls were empty\n", took * 1e9 / (double)count, 100.0 * (double)empty / (double)calls);
    return 0;
}

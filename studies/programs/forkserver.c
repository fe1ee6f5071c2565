/* Study 001: does a fuzzer suffer if its coverage map is a mapped file instead of SysV shared memory?
 *
 * One operation is one execution, as in AFL with its fork server: the fuzzer clears the map, writes the input, and asks the server for a
 * child. The child reads the input, counts `edges` branches in the map, and exits. The server reports its status, and the fuzzer compares
 * the map with those of all earlier executions. The map has `bytes` bytes. The server is this program, started by execve(2). It maps the
 * memory by itself, from the name in an environment variable.
 *
 * With role=fuzzer, the server is Target.java, which runs each execution in one virtual machine. Then this program is started by the
 * server, gets its reports from standard input, and sends its orders to standard output. It begins with a line that names the map, and
 * executes as many times as a number on standard input says. */
#define _GNU_SOURCE
#include "worker.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

enum kind { SYSV, POSIX, FILE_MAP };
static const char *const kinds[] = { "sysv", "posix", "file", NULL };

/* The descriptors and the hello of AFL's fork server. */
enum { ORDERS = 198, REPORTS = 199, HELLO = 0 };
/* An order: one more execution, or a report of what the server and its children used. */
enum { EXECUTE = 0, USED = 1 };
static const char NAME[] = "THALWEG_MAP", INPUT[] = "THALWEG_INPUT";

static enum kind kind;
static uint64_t bytes, edges;
static int spoil;
static char name[4200], input[4200];
static unsigned char *map, *virgin;
static int input_fd = -1, orders = -1, reports = -1;
static pid_t server;
static uint32_t seed;

enum role { BOTH, SERVER, FUZZER };
static const char *const roles[] = { "both", "server", "fuzzer", NULL };

/* ---- the map ---- */

static int opened(enum kind of, const char *at, int flags)
{
    return of == POSIX ? shm_open(at, flags, 0600) : open(at, flags | O_CLOEXEC, 0600);
}

/* Maps memory that exists. */
static void *mapped(enum kind of, const char *at)
{
    if (of == SYSV)
        return shmat(atoi(at), NULL, 0);
    int fd = opened(of, at, O_RDWR);
    void *p = fd < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return p;
}

static void remove_map(void)
{
    if (kind == POSIX)
        shm_unlink(name);
    else
        unlink(name);
}

static void make_map(void)
{
    if (kind == SYSV) {
        int id = shmget(IPC_PRIVATE, bytes, IPC_CREAT | IPC_EXCL | 0600);
        if (id < 0)
            worker_unfit("shmget of %" PRIu64 " bytes: %s", bytes, strerror(errno));
        snprintf(name, sizeof name, "%d", id);
        map = mapped(kind, name);
        /* Linux lets the server attach a removed segment by its id, as long as this process uses it. */
        shmctl(id, IPC_RMID, NULL);
    } else {
        int fd = opened(kind, name, O_RDWR | O_CREAT | O_EXCL);
        if (fd < 0 || ftruncate(fd, (off_t)bytes))
            worker_unfit("%s: %s", name, strerror(errno));
        close(fd);
        atexit(remove_map);
        map = mapped(kind, name);
    }
    if (map == MAP_FAILED)
        worker_unfit("mapping %s memory of %" PRIu64 " bytes: %s", kinds[kind], bytes, strerror(errno));
}

/* The instrumentation of AFL: the index is this branch and the one before. */
static void count_edges(unsigned char *into, uint32_t from)
{
    uint32_t before = 0;
    for (uint64_t n = 0; n < edges; n++) {
        from = from * 1664525u + 1013904223u;
        uint32_t here = from >> 8;
        into[(here ^ before) & (bytes - 1)]++;
        before = here >> 1;
    }
}

/* ---- the target: a fork server and its children ---- */

static void read_all(int fd, void *into, size_t length)
{
    if (read(fd, into, length) != (ssize_t)length)
        _exit(0); /* The fuzzer is gone. */
}

static void write_all(int fd, const void *from, size_t length)
{
    if (write(fd, from, length) != (ssize_t)length)
        _exit(0);
}

static void execute(const char *input_path)
{
    uint32_t first;
    int fd = open(input_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, &first, sizeof first) != sizeof first)
        _exit(1);
    count_edges(map, first);
    _exit(0);
}

static void report_usage(void)
{
    struct rusage own, children;
    getrusage(RUSAGE_SELF, &own);
    getrusage(RUSAGE_CHILDREN, &children);
    uint64_t used[4] = {
        (uint64_t)(own.ru_utime.tv_sec + children.ru_utime.tv_sec) * 1000000 + (uint64_t)(own.ru_utime.tv_usec + children.ru_utime.tv_usec),
        (uint64_t)(own.ru_stime.tv_sec + children.ru_stime.tv_sec) * 1000000 + (uint64_t)(own.ru_stime.tv_usec + children.ru_stime.tv_usec),
        (uint64_t)(own.ru_minflt + children.ru_minflt),
        (uint64_t)(own.ru_majflt + children.ru_majflt),
    };
    write_all(REPORTS, used, sizeof used);
}

static void serve(void)
{
    const char *input_path = getenv(INPUT);
    uint32_t order = HELLO;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    map = mapped(kind, getenv(NAME));
    if (map == MAP_FAILED || !input_path)
        _exit(1);
    write_all(REPORTS, &order, sizeof order);
    for (;;) {
        int status;
        read_all(ORDERS, &order, sizeof order);
        if (order == USED) {
            report_usage();
            continue;
        }
        pid_t child = fork();
        if (child < 0)
            _exit(1);
        if (!child)
            execute(input_path);
        write_all(REPORTS, &child, sizeof child);
        if (waitpid(child, &status, 0) != child)
            _exit(1);
        write_all(REPORTS, &status, sizeof status);
    }
}

/* ---- the fuzzer ---- */

static void start_server(void)
{
    int to[2], from[2];
    char self[64], with_kind[32], with_bytes[32], with_edges[32];
    snprintf(with_kind, sizeof with_kind, "kind=%s", kinds[kind]);
    snprintf(with_bytes, sizeof with_bytes, "bytes=%" PRIu64, bytes);
    snprintf(with_edges, sizeof with_edges, "edges=%" PRIu64, edges);
    snprintf(self, sizeof self, "/proc/%ld/exe", (long)getpid());
    setenv(NAME, name, 1);
    setenv(INPUT, input, 1);
    if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC) || (server = fork()) < 0)
        worker_unfit("the fork server: %s", strerror(errno));
    if (!server) {
        if (dup2(to[0], ORDERS) < 0 || dup2(from[1], REPORTS) < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
            _exit(1);
        execl(self, self, "role=server", with_kind, with_bytes, with_edges, (char *)NULL);
        _exit(1);
    }
    close(to[0]);
    close(from[1]);
    orders = to[1];
    reports = from[0];
}

static void hear(void *into, size_t length)
{
    if (read(reports, into, length) != (ssize_t)length)
        worker_unfit("the fork server ended");
}

static void order(uint32_t what)
{
    if (write(orders, &what, sizeof what) != sizeof what)
        worker_unfit("the fork server ended");
}

/* The number of map words with a count that no earlier execution had, as AFL compares them. */
static uint64_t compare_map(void)
{
    uint64_t found = 0;
    for (uint64_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        uint64_t now, before;
        memcpy(&now, map + at, sizeof now);
        memcpy(&before, virgin + at, sizeof before);
        if (now & before) {
            found++;
            before &= ~now;
            memcpy(virgin + at, &before, sizeof before);
        }
    }
    return found;
}

static volatile uint64_t findings;

static void execute_once(void)
{
    int32_t child, status;
    memset(map, 0, bytes);
    if (pwrite(input_fd, &seed, sizeof seed, 0) != sizeof seed)
        worker_unfit("%s: %s", input, strerror(errno));
    order(EXECUTE);
    hear(&child, sizeof child);
    hear(&status, sizeof status);
    if (status)
        worker_unfit("process %d of the target ended with status %d", (int)child, (int)status);
    findings += compare_map();
}

static void usage(uint64_t used[4])
{
    order(USED);
    hear(used, 4 * sizeof *used);
}

static void make_fuzzer(void)
{
    make_map();
    virgin = malloc(bytes);
    if (!virgin)
        worker_unfit("no memory for %" PRIu64 " bytes", bytes);
    memset(virgin, 0xff, bytes);
    input_fd = open(input, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (input_fd < 0)
        worker_unfit("%s: %s", input, strerror(errno));
}

static void warm(void)
{
    uint32_t hello;
    make_fuzzer();
    start_server();
    hear(&hello, sizeof hello);
    for (int n = 0; n < 100; n++, seed++)
        execute_once();
}

static void run(uint32_t times, struct cost *cost)
{
    uint64_t before[4], after[4];
    usage(before);
    struct worker_mark mark = worker_begin();
    for (uint32_t n = 0; n < times; n++, seed++)
        execute_once();
    worker_end(&mark, cost);
    usage(after);
    cost->user_us += after[0] - before[0];
    cost->sys_us += after[1] - before[1];
    cost->minor_faults += after[2] - before[2];
    cost->major_faults += after[3] - before[3];
    cost->bytes = bytes * times;
}

static const char *check(void)
{
    unsigned char *expected = calloc(1, bytes);
    if (!expected)
        worker_unfit("no memory for %" PRIu64 " bytes", bytes);
    count_edges(expected, ++seed);
    execute_once();
    if (spoil)
        map[bytes / 2]++;
    int differs = memcmp(map, expected, bytes);
    free(expected);
    return differs ? "the map does not have the branches of the child" : NULL;
}

/* Obeys Target.java: a number of executions, then the order USED with what this process used for them. */
static void obey(void)
{
    uint32_t times;
    printf("map %s\n", name);
    fflush(stdout);
    while (read(reports, &times, sizeof times) == sizeof times) {
        struct cost cost = { 0 };
        struct worker_mark mark = worker_begin();
        for (uint32_t n = 0; n < times; n++, seed++)
            execute_once();
        worker_end(&mark, &cost);
        uint32_t used[3] = { USED, (uint32_t)cost.user_us, (uint32_t)cost.sys_us };
        if (write(orders, used, sizeof used) != sizeof used)
            break;
    }
}

int main(int argc, char **argv)
{
    worker_parameters(argc, argv, "kind edges role input spoil bytes scratch ");
    kind = (enum kind)worker_choice("kind", kinds);
    bytes = worker_number("bytes", 65536);
    edges = worker_number("edges", 2000);
    spoil = worker_number("spoil", 0) != 0;
    if (bytes < sizeof(uint64_t) || bytes & (bytes - 1) || bytes > (uint64_t)1 << 30)
        worker_unfit("bytes=%" PRIu64 ": the size of the map is a power of two, 8 bytes to 1 GiB", bytes);
    signal(SIGPIPE, SIG_IGN);
    enum role role = (enum role)worker_choice("role", roles);
    if (role == SERVER)
        serve();
    const char *scratch = worker_text("scratch", ".");
    struct statfs system;
    if (kind == FILE_MAP && !statfs(scratch, &system) && system.f_type == TMPFS_MAGIC)
        worker_unfit("the scratch directory is on tmpfs, as POSIX shared memory; --scratch names another one");
    if (role == FUZZER)
        snprintf(input, sizeof input, "%s", worker_text("input", ""));
    else
        snprintf(input, sizeof input, "%s/input-%ld", scratch, (long)getpid());
    if (kind == POSIX)
        snprintf(name, sizeof name, "/thalweg-map-%ld", (long)getpid());
    else
        snprintf(name, sizeof name, "%s/map-%ld", scratch, (long)getpid());
    if (role == FUZZER) {
        orders = STDOUT_FILENO;
        reports = STDIN_FILENO;
        make_fuzzer();
        obey();
        return 0;
    }
    /* A child's pages of the map are new to it, so faults are part of the work. */
    struct worker worker = { .faults = 1, .warm = warm, .run = run, .check = check };
    int result = worker_main(&worker);
    unlink(input);
    return result;
}

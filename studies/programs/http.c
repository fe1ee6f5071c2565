/* A file server and a client that asks it for one file again and again, on connections that are kept, in a network of
 * their own: the same congestion control for every server, a port that is free, and a processor for each side. The
 * server is `thalweg serve`, or nginx. The operation is one request. */
#define _GNU_SOURCE
#include "worker.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PORT = 8000, MOST_WORDS = 32, LONGEST_HEAD = 4096 };
enum { THALWEG, NGINX };
static const char *const servers[] = { "thalweg", "nginx", NULL };

/* One connection, and how far its answer has come. */
struct client {
    int socket;
    size_t head; /* bytes of it that are here; the body has begun when `body` is set */
    int body;
    uint64_t at; /* bytes of the body */
    char text[LONGEST_HEAD + 1];
};

static struct client *clients;
static unsigned connections;
static uint64_t bytes, room;
static char *content, *buffer;
static char request[] = "GET /file HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
static int epoll;
static pid_t server;

static void end_server(void)
{
    if (server > 0)
        kill(server, SIGKILL);
}

/* ---- a network and two processors ---- */

static void own_network(void)
{
    if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET))
        worker_unfit("a network namespace: %s", strerror(errno));
    struct ifreq lo = { .ifr_name = "lo" };
    int probe = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (probe < 0 || ioctl(probe, SIOCGIFFLAGS, &lo))
        worker_unfit("loopback: %s", strerror(errno));
    lo.ifr_flags |= IFF_UP;
    if (ioctl(probe, SIOCSIFFLAGS, &lo))
        worker_unfit("loopback: %s", strerror(errno));
    close(probe);
    const char *control = worker_text("control", "reno");
    int file = open("/proc/sys/net/ipv4/tcp_congestion_control", O_WRONLY | O_CLOEXEC);
    if (file < 0 || write(file, control, strlen(control)) < 0)
        worker_unfit("congestion control %s: %s", control, strerror(errno));
    close(file);
}

/* To the processor of this number among those that there are for us. */
static void pin(int which)
{
    static cpu_set_t all;
    if (!CPU_COUNT(&all) && sched_getaffinity(0, sizeof all, &all))
        worker_unfit("sched_getaffinity: %s", strerror(errno));
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && !which--) {
            CPU_SET(cpu, &one);
            if (sched_setaffinity(0, sizeof one, &one))
                worker_unfit("sched_setaffinity: %s", strerror(errno));
            return;
        }
    worker_unfit("server and client want a processor each");
}

/* ---- the server ---- */

static int put(const char *path, const char *what, size_t length)
{
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    size_t at = 0;
    while (file >= 0 && at < length) {
        ssize_t put = write(file, what + at, length - at);
        if (put < 0 && errno != EINTR)
            break;
        at += put > 0 ? (size_t)put : 0;
    }
    return file >= 0 && !close(file) && at == length;
}

/* `program=` or the one that measures: it is measured too. */
static void exec_thalweg(pid_t lab, const char *root)
{
    char own[64], *list[MOST_WORDS] = { "thalweg", "serve", (char *)root, "--listen", "127.0.0.1:8000", "--threads",
                                        "1", "--log", "none", "--idle-timeout", "1h" };
    int count = 11;
    for (char *word = strtok(strdup(worker_text("words", "")), " "); word && count < MOST_WORDS - 1;
         word = strtok(NULL, " "))
        list[count++] = word;
    snprintf(own, sizeof own, "/proc/%d/exe", lab);
    execv(worker_text("program", own), list);
}

static void exec_nginx(const char *scratch)
{
    static char path[4200], text[16384], conf[4200], log[4200];
    snprintf(path, sizeof path, "%s:../.tools/nginx/usr/sbin", getenv("PATH") ? getenv("PATH") : "/usr/sbin");
    setenv("PATH", path, 1);
    int length = snprintf(text, sizeof text,
                          "daemon off; master_process off; worker_processes 1; pid %1$s/pid; error_log %1$s/log;\n"
                          "events { worker_connections 12000; }\n"
                          "http { access_log off; keepalive_requests 1000000000; keepalive_timeout 1h;\n"
                          "client_body_temp_path %1$s/a; proxy_temp_path %1$s/b; fastcgi_temp_path %1$s/c;\n"
                          "uwsgi_temp_path %1$s/d; scgi_temp_path %1$s/e; %2$s\n"
                          "server { listen 127.0.0.1:8000; root %1$s/root; } }\n",
                          scratch, worker_text("words", ""));
    snprintf(conf, sizeof conf, "%s/conf", scratch);
    snprintf(log, sizeof log, "%s/log", scratch);
    if (length > 0 && (size_t)length < sizeof text && put(conf, text, (size_t)length))
        execlp("nginx", "nginx", "-p", scratch, "-e", log, "-c", conf, NULL);
}

/* Connects, at once or within ten seconds where the server has only been started. */
static int reach(int tries)
{
    struct sockaddr_in there = { .sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr = { htonl(INADDR_LOOPBACK) } };
    for (;;) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && !connect(fd, (struct sockaddr *)&there, sizeof there))
            return fd;
        if (fd < 0 || !tries--)
            worker_unfit("%s: no connection: %s", worker_text("server", servers[0]), strerror(errno));
        close(fd);
        usleep(20000);
    }
}

static void start_server(void)
{
    const char *scratch = worker_text("scratch", ".");
    char root[4200], file[4300];
    snprintf(root, sizeof root, "%s/root", scratch);
    snprintf(file, sizeof file, "%s/file", root);
    content = malloc(bytes ? bytes : 1);
    if (!content || mkdir(root, 0755))
        worker_unfit("%s: %s", root, strerror(errno));
    uint64_t seed = 88172645463325252u;
    for (uint64_t i = 0; i < bytes; i++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        content[i] = (char)seed;
    }
    if (!put(file, content, bytes))
        worker_unfit("%s: %s", file, strerror(errno));
    pid_t lab = getppid();
    server = fork();
    if (server < 0)
        worker_unfit("fork: %s", strerror(errno));
    if (!server) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin(0);
        /* Answers of the protocol are ours alone. */
        dup2(STDERR_FILENO, STDOUT_FILENO);
        if (worker_choice("server", servers) == NGINX)
            exec_nginx(scratch);
        else
            exec_thalweg(lab, root);
        _exit(127);
    }
    atexit(end_server);
    close(reach(500));
}

/* Nanoseconds of a processor that its threads have had, the kernel's work in their name among them. */
static uint64_t ran(void)
{
    char path[300];
    snprintf(path, sizeof path, "/proc/%d/task", server);
    DIR *tasks = opendir(path);
    uint64_t all = 0;
    for (struct dirent *task; tasks && (task = readdir(tasks));) {
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/schedstat", server, task->d_name);
        FILE *file = task->d_name[0] == '.' ? NULL : fopen(path, "r");
        unsigned long long own;
        if (file && fscanf(file, "%llu", &own) == 1)
            all += own;
        if (file)
            fclose(file);
    }
    if (tasks)
        closedir(tasks);
    return all;
}

/* ---- the client ---- */

static void ask(struct client *c)
{
    c->head = c->at = 0;
    c->body = 0;
    /* It is shorter than what an empty socket takes. */
    if (send(c->socket, request, sizeof request - 1, MSG_NOSIGNAL) != (ssize_t)sizeof request - 1)
        worker_unfit("a request: %s", strerror(errno));
}

/* Takes the head out of what is in the buffer; how much of it that was. */
static size_t take_head(struct client *c, size_t got)
{
    size_t had = c->head, more = LONGEST_HEAD - had < got ? LONGEST_HEAD - had : got;
    memcpy(c->text + had, buffer, more);
    c->text[had + more] = 0;
    char *end = strstr(c->text, "\r\n\r\n");
    if (!end) {
        if (had + more == LONGEST_HEAD)
            worker_unfit("a head without end");
        c->head += more;
        return got;
    }
    const char *length = strcasestr(c->text, "\r\nContent-Length:");
    if (strncmp(c->text, "HTTP/1.1 200 ", 13) || !length || strtoull(length + 17, NULL, 10) != bytes)
        worker_unfit("another answer: %.100s", c->text);
    c->body = 1;
    return (size_t)(end + 4 - c->text) - had;
}

/* Reads what has come; whether the answer is whole. `wrong`: the bytes are compared, and it says what is wrong. */
static int take(struct client *c, const char **wrong)
{
    ssize_t got = recv(c->socket, buffer, room, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got <= 0)
        worker_unfit("an answer: %s", got ? strerror(errno) : "the server has hung up");
    size_t skipped = c->body ? 0 : take_head(c, (size_t)got), rest = (size_t)got - skipped;
    if (!c->body)
        return 0;
    if (rest > bytes - c->at)
        worker_unfit("more than was asked for");
    if (wrong && memcmp(buffer + skipped, content + c->at, rest))
        *wrong = "the bytes of the file";
    c->at += rest;
    return c->at == bytes;
}

/* So many requests, as many at a time as there are connections. */
static const char *ask_all(uint64_t times, int compares)
{
    const char *wrong = NULL;
    uint64_t asked = 0, done = 0;
    for (; asked < times && asked < connections; asked++)
        ask(&clients[asked]);
    while (done < times) {
        struct epoll_event events[64];
        int count = epoll_wait(epoll, events, 64, -1);
        if (count < 0 && errno != EINTR)
            worker_unfit("epoll_wait: %s", strerror(errno));
        for (int i = 0; i < count; i++) {
            struct client *c = events[i].data.ptr;
            if (!take(c, compares ? &wrong : NULL))
                continue;
            done++;
            if (asked < times)
                asked++, ask(c);
        }
    }
    return wrong;
}

static void warm(void)
{
    own_network();
    start_server();
    pin(1);
    room = worker_number("reader", 64 << 10);
    connections = (unsigned)worker_number("connections", 1);
    buffer = malloc(room);
    clients = calloc(connections, sizeof *clients);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!room || !connections || !buffer || !clients || epoll < 0)
        worker_unfit("the client: %s", strerror(errno));
    memset(buffer, 1, room);
    for (unsigned i = 0; i < connections; i++) {
        struct epoll_event event = { .events = EPOLLIN, .data.ptr = &clients[i] };
        clients[i].socket = reach(0);
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, clients[i].socket, &event))
            worker_unfit("epoll_ctl: %s", strerror(errno));
    }
    ask_all(connections, 0);
}

static void run(uint32_t times, struct cost *cost)
{
    uint64_t before = ran();
    struct worker_mark mark = worker_begin();
    ask_all(times, 0);
    worker_end(&mark, cost);
    /* The kernel does nearly all of it. */
    cost->sys_us += (ran() - before) / 1000;
    cost->bytes += times * bytes;
}

static const char *check(void)
{
    return ask_all(connections, 1);
}

static uint64_t memory(void)
{
    return worker_pss(server);
}

int main(int argc, char **argv)
{
    worker_parameters(argc, argv, "server words program connections reader control bytes scratch ");
    bytes = worker_number("bytes", 1024);
    worker_choice("server", servers);
    return worker_main(&(struct worker){ .warm = warm, .run = run, .check = check, .memory = memory });
}

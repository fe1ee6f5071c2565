/* A client that requests one file over HTTP/1.1 a fixed number of times, over several connections that stay open. Exits with 1 if
 * a status is not 200 or a body has another length; with `sum`, also if the sum of all bytes differs.
 *   load PORT PATH BYTES CONNECTIONS REQUESTS [SUM] */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEAD = 4096, BUFFER = 1 << 18 };

struct connection {
    int fd;
    size_t head_length;
    long body_left;
    char head[HEAD + 1];
};

static char request[1024];
static long bytes, left_to_send, left_to_receive;
static uint64_t sum, expected_sum;
static int summing;
static char buffer[BUFFER];

static void fail(const char *why)
{
    fprintf(stderr, "load: %s\n", why);
    exit(1);
}

static void send_request(struct connection *c)
{
    size_t length = strlen(request);
    if (left_to_send-- > 0 && send(c->fd, request, length, MSG_NOSIGNAL) != (ssize_t)length)
        fail("a request was not sent whole");
    c->head_length = 0;
    c->body_left = -1;
}

static void take_body(struct connection *c, const char *data, long length)
{
    if (length > c->body_left)
        fail("more bytes than the file has");
    for (long n = 0; summing && n < length; n++)
        sum += (unsigned char)data[n];
    c->body_left -= length;
    if (c->body_left)
        return;
    if (summing && sum != expected_sum)
        fail("another sum");
    sum = 0;
    left_to_receive--;
    send_request(c);
}

/* Returns the number of bytes that belong to the head. */
static size_t take_head(struct connection *c, const char *data, size_t length)
{
    for (size_t n = 0; n < length; n++) {
        if (c->head_length == HEAD)
            fail("a long head");
        c->head[c->head_length++] = data[n];
        c->head[c->head_length] = 0;
        if (c->head_length < 4 || memcmp(c->head + c->head_length - 4, "\r\n\r\n", 4))
            continue;
        char *field = strcasestr(c->head, "\ncontent-length:");
        if (memcmp(c->head, "HTTP/1.1 200", 12) || !field || atol(field + 16) != bytes)
            fail(c->head);
        c->body_left = bytes;
        return n + 1;
    }
    return length;
}

static void receive(struct connection *c)
{
    ssize_t got = recv(c->fd, buffer, sizeof buffer, 0);
    if (got <= 0)
        fail("the server closed a connection");
    size_t begin = c->body_left < 0 ? take_head(c, buffer, (size_t)got) : 0;
    if ((size_t)got > begin)
        take_body(c, buffer + begin, got - (ssize_t)begin);
}

int main(int argc, char **argv)
{
    if (argc < 6)
        fail("PORT PATH BYTES CONNECTIONS REQUESTS [SUM]");
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1]))};
    const char *host = getenv("LOAD_HOST") ? getenv("LOAD_HOST") : "127.0.0.1";
    inet_pton(AF_INET, host, &to.sin_addr);
    snprintf(request, sizeof request, "GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n", argv[2]);
    bytes = atol(argv[3]);
    left_to_send = left_to_receive = atol(argv[5]);
    if ((summing = argc > 6))
        expected_sum = strtoull(argv[6], NULL, 10);
    long count = atol(argv[4]);
    struct connection *all = calloc((size_t)count, sizeof *all);
    int poll = epoll_create1(0);
    for (long n = 0; n < count; n++) {
        int one = 1;
        all[n].fd = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(all[n].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (connect(all[n].fd, (struct sockaddr *)&to, sizeof to))
            fail("cannot connect");
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &all[n]};
        epoll_ctl(poll, EPOLL_CTL_ADD, all[n].fd, &event);
        send_request(&all[n]);
    }
    while (left_to_receive > 0) {
        struct epoll_event events[64];
        int ready = epoll_wait(poll, events, 64, 60000);
        if (ready <= 0)
            fail("nothing for 60 s");
        for (int n = 0; n < ready; n++)
            receive(events[n].data.ptr);
    }
    return 0;
}

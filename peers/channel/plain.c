/* A pipe or a Unix stream socket as in ordinary programs: blocking calls, with the kernel's default buffer
 * sizes. */
#define _GNU_SOURCE
#include "two.h"

#include <sys/socket.h>

enum { PIPE, UNIX };
static const char *const ways[] = { "pipe", "unix", NULL };

static int there[2], back[2]; /* read end, write end; a socket is both */
static int from, to;

static void before(void)
{
    if (worker_choice("way", ways) == PIPE) {
        if (pipe2(there, O_CLOEXEC) || pipe2(back, O_CLOEXEC))
            worker_unfit("pipe: %s", strerror(errno));
        return;
    }
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        worker_unfit("socketpair: %s", strerror(errno));
    there[0] = back[1] = ends[1];
    there[1] = back[0] = ends[0];
}

static void meet(enum side side)
{
    from = side == SENDER ? back[0] : there[0];
    to = side == SENDER ? there[1] : back[1];
    /* Closes the ends of the other process. While these are open here, this process would not notice the
     * death of the other. */
    int theirs[2] = { side == SENDER ? there[0] : back[0], side == SENDER ? back[1] : there[1] };
    close(theirs[0]);
    if (theirs[1] != theirs[0])
        close(theirs[1]);
}

static void send_all(const char *bytes, uint64_t length)
{
    for (uint64_t at = 0; at < length;) {
        ssize_t sent = write(to, bytes + at, length - at);
        if (sent < 0 && errno != EINTR)
            worker_unfit("write after %" PRIu64 " of %" PRIu64 " bytes: %s", at, length, strerror(errno));
        at += sent > 0 ? (uint64_t)sent : 0;
    }
}

static void receive_all(char *into, uint64_t length)
{
    for (uint64_t at = 0; at < length;) {
        ssize_t got = read(from, into + at, length - at);
        if (!got || (got < 0 && errno != EINTR))
            worker_unfit("read after %" PRIu64 " of %" PRIu64 " bytes: %s", at, length,
                         got ? strerror(errno) : "the other end was closed");
        at += got > 0 ? (uint64_t)got : 0;
    }
}

int main(int argc, char **argv)
{
    struct way way = { .keys = "way ", .before = before, .meet = meet, .send = send_all, .receive = receive_all };
    return two_main(argc, argv, &way);
}

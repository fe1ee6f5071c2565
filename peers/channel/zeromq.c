/* ZeroMQ: a PAIR of sockets over ipc://, with zmq_send and zmq_recv, which copy in and out. */
#define _GNU_SOURCE
#include "two.h"

#include <zmq.h>

static void *context, *socket_;
static char endpoint[64];

static void failed(const char *call)
{
    worker_unfit("%s: %s", call, zmq_strerror(zmq_errno()));
}

/* An abstract address, so that no file is left behind. It contains A's process id. */
static void before(void)
{
    snprintf(endpoint, sizeof endpoint, "ipc://@thalweg-peer-%ld", (long)getpid());
}

static void meet(enum side side)
{
    /* ZeroMQ's threads do not survive a fork, so each process creates its own context. */
    if (!(context = zmq_ctx_new()) || !(socket_ = zmq_socket(context, ZMQ_PAIR)))
        failed("zmq_socket");
    /* Number of messages in flight. ZeroMQ's default is 1000, whatever their size. */
    int most = (int)two_depth();
    if (zmq_setsockopt(socket_, ZMQ_SNDHWM, &most, sizeof most) ||
        zmq_setsockopt(socket_, ZMQ_RCVHWM, &most, sizeof most))
        failed("zmq_setsockopt");
    if (side == SENDER ? zmq_bind(socket_, endpoint) : zmq_connect(socket_, endpoint))
        failed(side == SENDER ? "zmq_bind" : "zmq_connect");
}

static void send_one(const char *bytes, uint64_t length)
{
    if (zmq_send(socket_, bytes, length, 0) != (int)length)
        failed("zmq_send");
}

static void receive_one(char *into, uint64_t length)
{
    int got = zmq_recv(socket_, into, length, 0);
    if (got != (int)length)
        worker_unfit("zmq_recv: %d of %" PRIu64 " bytes: %s", got, length,
                     got < 0 ? zmq_strerror(zmq_errno()) : "another message");
}

static void leave(void)
{
    zmq_close(socket_);
    zmq_ctx_term(context);
}

int main(int argc, char **argv)
{
    struct way way = { .keys = "", .before = before, .meet = meet, .send = send_one,
                       .receive = receive_one, .leave = leave };
    return two_main(argc, argv, &way);
}

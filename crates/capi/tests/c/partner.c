/* One end of an exchange of messages, for tests in any language.
 *
 *   partner ROLE ADDRESS COUNT [OPTION...]
 *
 * ROLE     send     sends messages 0 to COUNT - 1, waits until all are released, closes the channel
 *          receive  receives until the peer closes or dies, and checks every byte; ignores COUNT
 *          echo     receives and checks over a first link, and sends the messages back over a second one,
 *                   until the peer closes; ignores COUNT
 * ADDRESS  where the peer listens, as for tw_link_connect
 * COUNT    0: send without end
 * OPTION   listen             listens at ADDRESS instead of connecting to it
 *          wait=spin, wait=block    method of waiting for the peer; default: hybrid
 *          capacity=BYTES     capacity of the ring, if it is the producer; default: 65536
 *          checksums          each message carries a checksum, if it is the producer
 *          untrusted          does not trust the peer
 *
 * Contents of message N, in unsigned 64-bit arithmetic:
 *   x = (N + 1) * 0x9e3779b97f4a7c15 | 1
 *   draw(): x ^= x >> 12; x ^= x << 25; x ^= x >> 27; the result is (x * 0x2545f4914f6cdd1d) >> 33
 * With k = draw() % 20, its length is {0, 1, 4095, 4097, 32, 33}[k] if k < 6, otherwise draw() % 2000.
 * Byte I is the low 8 bits of N * 31 ^ I * 7 ^ I >> 8.
 *
 * Lines on standard output: "ready" when it listens, "open" when the channel is open, and the last one:
 * ROLE END MESSAGES CRC PARTIAL
 *   END       done: all messages were sent; closed: the peer closed its end; died: the peer died. A peer
 *             that is gone before the channel is open is reported as closed or died, with 0 messages
 *   MESSAGES  number of messages received, or sent (after closed and died: released by the peer)
 *   CRC       CRC-32C of all bytes sent or received so far, in the order of the messages, 8 hex digits
 *   PARTIAL   tw_error.partial
 * After that, the program exits with 0. After a wrong byte or another error, it prints the reason on standard
 * error and exits with 1. A timer ends it if it hangs. */
#include <inttypes.h>

#include "check.h"

enum { LONGEST = 4097, FAR_TOO_LONG = 600 /* seconds */ };

struct side {
    const char *role, *address;
    uint64_t count;
    int listens;
    tw_channel_options options;
    tw_listener *listener;
    uint32_t crc;
};

static tw_error error;

static void must(tw_status status, const char *what)
{
    if (status == TW_OK)
        return;
    fprintf(stderr, "partner: %s: %d: %s\n", what, (int)status, error.message);
    exit(1);
}

static void say(const char *line)
{
    puts(line);
    fflush(stdout);
}

static uint64_t draw(uint64_t *x)
{
    *x ^= *x >> 12;
    *x ^= *x << 25;
    *x ^= *x >> 27;
    return *x * UINT64_C(0x2545f4914f6cdd1d) >> 33;
}

static size_t message(uint64_t n, unsigned char *bytes)
{
    static const size_t odd[] = { 0, 1, 4095, 4097, 32, 33 };
    uint64_t x = (n + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1, k = draw(&x) % 20;
    size_t length = k < 6 ? odd[k] : (size_t)(draw(&x) % 2000);
    for (uint64_t i = 0; i < length; i++)
        bytes[i] = (unsigned char)((n * 31) ^ (i * 7) ^ (i >> 8));
    return length;
}

static tw_link *meet(struct side *side)
{
    tw_link *link;
    if (side->listens)
        must(tw_listener_accept(side->listener, TW_FOREVER, &link, &error), "accept");
    else
        must(tw_link_connect(side->address, TW_SAME_USER, TW_FOREVER, &link, &error), "connect");
    return link;
}

/* Closes the listener after all expected links are connected. */
static void leave(struct side *side)
{
    tw_listener_close(side->listener);
    side->listener = NULL;
}

static int end(const struct side *side, tw_status status, uint64_t messages)
{
    if (status != TW_OK && status != TW_CLOSED && status != TW_PEER_DIED)
        must(status, side->role);
    const char *word = status == TW_OK ? "done" : status == TW_CLOSED ? "closed" : "died";
    printf("%s %s %" PRIu64 " %08" PRIx32 " %" PRIu64 "\n", side->role, word, messages, side->crc,
           status == TW_OK ? 0 : error.partial);
    return 0;
}

static int send_all(struct side *side)
{
    tw_link *link = meet(side);
    tw_producer *producer;
    unsigned char bytes[LONGEST];
    tw_status status = TW_OK;
    leave(side);
    if ((status = tw_producer_open(&link, &side->options, TW_FOREVER, &producer, &error)) != TW_OK)
        return end(side, status, 0);
    say("open");
    for (uint64_t n = 0; status == TW_OK && (n < side->count || !side->count); n++) {
        size_t length = message(n, bytes);
        void *room;
        if (n % 2) {
            status = tw_producer_send(producer, bytes, length, TW_FOREVER, &error);
        } else if ((status = tw_producer_loan(producer, length, TW_FOREVER, &room, &error)) == TW_OK) {
            memcpy(room, bytes, length);
            status = tw_producer_commit(producer, length, &error);
        }
        if (status == TW_OK)
            side->crc = tw_crc32c(bytes, length, side->crc);
    }
    if (status == TW_OK)
        status = tw_producer_drain(producer, TW_FOREVER, &error);
    uint64_t sent = tw_producer_sent(producer);
    int code = end(side, status, status == TW_OK ? sent : error.moved);
    tw_producer_close(producer);
    return code;
}

/* Receives until the peer closes or dies. If `echoes` is set, sends each message back over a second link. */
static int receive_all(struct side *side, int echoes)
{
    tw_link *link = meet(side), *back = echoes ? meet(side) : NULL;
    tw_consumer *consumer;
    tw_producer *producer = NULL;
    unsigned char expected[LONGEST];
    const void *bytes;
    size_t length;
    tw_status status;
    uint64_t n = 0;
    leave(side);
    if ((status = tw_consumer_open(&link, &side->options, TW_FOREVER, &consumer, &error)) != TW_OK)
        return end(side, status, 0);
    if (echoes)
        must(tw_producer_open(&back, &side->options, TW_FOREVER, &producer, &error), "open the way back");
    say("open");
    for (; (status = tw_consumer_receive(consumer, TW_FOREVER, &bytes, &length, &error)) == TW_OK; n++) {
        if (length != message(n, expected) || memcmp(bytes, expected, length)) {
            fprintf(stderr, "partner: message %" PRIu64 " is wrong\n", n);
            return 1;
        }
        side->crc = tw_crc32c(bytes, length, side->crc);
        if (echoes)
            must(tw_producer_send(producer, bytes, length, TW_FOREVER, &error), "send back");
        must(tw_consumer_release(consumer, &error), "release");
    }
    if ((status == TW_CLOSED || status == TW_PEER_DIED) && error.moved != n) {
        fprintf(stderr, "partner: %" PRIu64 " messages came, %" PRIu64 " are told\n", n, error.moved);
        return 1;
    }
    int code = end(side, status, n);
    tw_producer_close(producer);
    tw_consumer_close(consumer);
    return code;
}

static int option(struct side *side, const char *text)
{
    if (!strcmp(text, "listen"))
        side->listens = 1;
    else if (!strcmp(text, "wait=spin"))
        side->options.wait = TW_WAIT_SPIN;
    else if (!strcmp(text, "wait=block"))
        side->options.wait = TW_WAIT_BLOCK;
    else if (!strncmp(text, "capacity=", 9))
        side->options.capacity = strtoull(text + 9, NULL, 10);
    else if (!strcmp(text, "checksums"))
        side->options.flags |= TW_CHECKSUMS;
    else if (!strcmp(text, "untrusted"))
        side->options.flags |= TW_UNTRUSTED;
    else
        return 0;
    return 1;
}

int main(int argc, char **argv)
{
    struct side side = { .options = TW_CHANNEL_OPTIONS_INIT };
    side.options.capacity = 65536;
    int fine = argc >= 4;
    for (int n = 4; n < argc; n++)
        fine = fine && option(&side, argv[n]);
    if (!fine) {
        fprintf(stderr, "partner send|receive|echo ADDRESS COUNT [OPTION...]: see the top of partner.c\n");
        return 1;
    }
    side.role = argv[1];
    side.address = argv[2];
    side.count = strtoull(argv[3], NULL, 10);
    alarm(FAR_TOO_LONG);
    if (side.listens) {
        must(tw_listener_bind(side.address, TW_SAME_USER, &side.listener, &error), "bind");
        say("ready");
    }
    int code = 1;
    if (!strcmp(side.role, "send"))
        code = send_all(&side);
    else if (!strcmp(side.role, "receive") || !strcmp(side.role, "echo"))
        code = receive_all(&side, *side.role == 'e');
    else
        fprintf(stderr, "partner: %s is none of send, receive, echo\n", side.role);
    leave(&side);
    return code;
}

/* A call with a timeout that has already passed must not wait. */
#include "process.h"

enum { CAPACITY = 8192, LARGEST = CAPACITY - 32 };
static tw_error error;
/* A child process reports its progress through this pipe. */
static int so_far[2];

static tw_channel_options small(uint32_t wait, uint32_t flags)
{
    tw_channel_options options = TW_CHANNEL_OPTIONS_INIT;
    options.capacity = CAPACITY;
    options.wait = wait;
    options.flags = flags;
    return options;
}

static tw_producer *produce(tw_link *link, const tw_channel_options *options)
{
    tw_producer *producer;
    OK(tw_producer_open(&link, options, GUARD, &producer, &error));
    CHECK(!link && tw_producer_largest(producer) == LARGEST);
    return producer;
}

static tw_consumer *consume(tw_link *link, const tw_channel_options *options)
{
    tw_consumer *consumer;
    OK(tw_consumer_open(&link, options, GUARD, &consumer, &error));
    CHECK(!link);
    return consumer;
}

static void send_three_and_stay(tw_link *link, const void *script)
{
    tw_producer *producer = produce(link, script);
    void *room;
    for (size_t n = 0; n < 3; n++)
        OK(tw_producer_send(producer, &n, sizeof n, TW_FOREVER, &error));
    OK(tw_producer_loan(producer, 100, TW_FOREVER, &room, &error));
    CHECK(write(so_far[1], "!", 1) == 1);
    for (;;)
        pause();
}

static void receive_two_and_stay(tw_link *link, const void *script)
{
    tw_consumer *consumer = consume(link, script);
    size_t got, length;
    for (size_t n = 0; n < 2; n++)
        OK(tw_consumer_receive_into(consumer, &got, sizeof got, GUARD, &length, &error));
    for (;;)
        pause();
}

/* A late caller that computes `deadline - now` passes a negative number. */
static void late_callers_do_not_wait(const char *folder)
{
    const int64_t late[] = { -1, -2, -1000, -GUARD, INT64_MIN + 1, INT64_MIN };
    tw_channel_options options = small(TW_WAIT_HYBRID, 0);
    tw_link *link;
    const void *message;
    void *room;
    size_t n = 0, length;
    char path[4096], byte;
    pid_t child = other(folder, receive_two_and_stay, &options, &link);
    tw_producer *producer = produce(link, &options);
    while (tw_producer_sent(producer) < 2)
        OK(tw_producer_send(producer, &n, sizeof n, GUARD, &error));
    OK(tw_producer_drain(producer, GUARD, &error));
    while (tw_producer_send(producer, &n, sizeof n, TW_NOW, &error) == TW_OK)
        continue;
    snprintf(path, sizeof path, "%s/late", folder);
    for (size_t at = 0; at < sizeof late / sizeof *late; at++) {
        tw_link *near, *far;
        tw_producer *none;
        tw_consumer *consumer;
        tw_listener *listener;
        tw_broadcast *broadcast;
        tw_mpsc *mpsc;
        uint64_t number;
        CHECK(tw_producer_send(producer, &n, sizeof n, late[at], &error) == TW_TIMEOUT);
        CHECK(tw_producer_loan(producer, sizeof n, late[at], &room, &error) == TW_TIMEOUT);
        CHECK(tw_producer_drain(producer, late[at], &error) == TW_TIMEOUT);
        OK(tw_link_pair(&near, &far, &error));
        CHECK(tw_link_receive(far, &byte, 1, &length, NULL, NULL, late[at], &error) == TW_TIMEOUT);
        while (tw_link_send(near, "x", 1, NULL, 0, late[at], &error) == TW_OK)
            continue;
        CHECK(error.status == TW_TIMEOUT);
        tw_link_close(near);
        tw_link_close(far);
        OK(tw_link_pair(&near, &far, &error));
        CHECK(tw_producer_open(&near, &options, late[at], &none, &error) == TW_TIMEOUT);
        tw_link_close(far);
        OK(tw_link_pair(&near, &far, &error));
        CHECK(tw_consumer_open(&near, &options, late[at], &consumer, &error) == TW_TIMEOUT);
        tw_link_close(far);
        OK(tw_listener_bind(path, TW_SAME_USER, &listener, &error));
        CHECK(tw_listener_accept(listener, late[at], &near, &error) == TW_TIMEOUT);
        CHECK(tw_producer_accept(&listener, &options, late[at], &none, &error) == TW_TIMEOUT);
        tw_listener_close(listener);
        OK(tw_link_pair(&near, &far, &error));
        OK(tw_broadcast_new(0, &broadcast, &error));
        CHECK(tw_broadcast_add(broadcast, &near, &options, late[at], &number, &error) == TW_TIMEOUT);
        tw_broadcast_close(broadcast);
        tw_link_close(far);
        OK(tw_link_pair(&near, &far, &error));
        OK(tw_mpsc_new(NULL, &mpsc, &error));
        CHECK(tw_mpsc_add(mpsc, &near, late[at], &number, &error) == TW_TIMEOUT);
        tw_mpsc_close(mpsc);
        tw_link_close(far);
    }
    tw_producer_close(producer);
    kill_9(child);
    child = other(folder, send_three_and_stay, &options, &link);
    tw_consumer *consumer = consume(link, &options);
    for (n = 0; n < 3; n++)
        OK(tw_consumer_receive_into(consumer, &room, sizeof room, GUARD, &length, &error));
    CHECK(read(so_far[0], &byte, 1) == 1);
    for (size_t at = 0; at < sizeof late / sizeof *late; at++) {
        tw_held *held;
        CHECK(tw_consumer_receive(consumer, late[at], &message, &length, &error) == TW_TIMEOUT);
        CHECK(tw_consumer_receive_into(consumer, &room, sizeof room, late[at], &length, &error) == TW_TIMEOUT);
        CHECK(tw_consumer_hold(consumer, late[at], &held, &message, &length, &error) == TW_TIMEOUT);
    }
    kill_9(child);
    tw_consumer_close(consumer);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2 && pipe(so_far) == 0);
    late_callers_do_not_wait(argv[1]);
    return 0;
}

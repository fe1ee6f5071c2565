/* Tests a consumer that holds messages while it receives others. */
#include <pthread.h>

#include "process.h"

enum { CAPACITY = 8192, LONG = 2000, LONGS = 10 };
static tw_error error;

/* Sends more than the ring has room for, so that the producer waits for the room of held messages. */
static void send_long_ones(tw_link *link, const void *script)
{
    tw_producer *producer;
    unsigned char message[LONG];
    OK(tw_producer_open(&link, script, GUARD, &producer, &error));
    for (size_t n = 0; n < LONGS; n++) {
        fill(message, LONG, n);
        OK(tw_producer_send(producer, message, LONG, TW_FOREVER, &error));
    }
    tw_producer_close(producer);
}

static void receive_long(tw_consumer *consumer, size_t n)
{
    const void *message;
    size_t length;
    OK(tw_consumer_receive(consumer, TW_FOREVER, &message, &length, &error));
    CHECK(length == LONG && holds(message, length, n));
    OK(tw_consumer_release(consumer, &error));
}

static void *give_back(void *held)
{
    tw_held_release(held);
    return NULL;
}

static void messages_are_held_and_given_back_in_any_order(const char *folder)
{
    for (uint32_t flags = 0; flags < 4; flags++) {
        tw_channel_options options = TW_CHANNEL_OPTIONS_INIT;
        options.capacity = CAPACITY;
        options.flags = flags;
        tw_link *link;
        tw_held *held[3], *none = (tw_held *)folder;
        const void *message[3], *other_message;
        size_t length;
        pthread_t thread;
        pid_t child = other(folder, send_long_ones, &options, &link);
        tw_consumer *consumer;
        OK(tw_consumer_open(&link, &options, GUARD, &consumer, &error));
        for (size_t n = 0; n < 3; n++)
            OK(tw_consumer_hold(consumer, TW_FOREVER, &held[n], &message[n], &length, &error));
        receive_long(consumer, 3);
        /* The fifth message needs the room of the first. The first is released after the second, and on another
         * thread. */
        tw_held_release(held[1]);
        CHECK(tw_consumer_hold(consumer, TW_NOW, &none, &other_message, &length, &error) == TW_TIMEOUT);
        CHECK(!none && !other_message && !length && holds(message[0], LONG, 0) && holds(message[2], LONG, 2));
        int is_waited_for = 0;
        for (int waits = 0; !is_waited_for; waits++) {
            CHECK(waits < 3000);
            CHECK(tw_consumer_hold(consumer, 20000000, &none, &other_message, &length, &error) == TW_TIMEOUT);
            size_t messages;
            OK(tw_consumer_held(consumer, &messages, &is_waited_for, &error));
            CHECK(messages == 2);
        }
        CHECK(pthread_create(&thread, NULL, give_back, held[0]) == 0);
        receive_long(consumer, 4);
        CHECK(pthread_join(thread, NULL) == 0 && holds(message[2], LONG, 2));
        tw_held_release(held[2]);
        for (size_t n = 5; n < LONGS - 1; n++)
            receive_long(consumer, n);
        OK(tw_consumer_hold(consumer, GUARD, &held[0], &message[0], &length, &error));
        CHECK(length == LONG);
        CHECK(tw_consumer_hold(consumer, GUARD, &none, &other_message, &length, &error) == TW_CLOSED);
        CHECK(error.moved == LONGS && !none);
        CHECK(tw_consumer_hold(consumer, GUARD, NULL, &other_message, &length, &error) == TW_USAGE);
        CHECK(tw_consumer_hold(NULL, GUARD, &none, &other_message, &length, &error) == TW_USAGE);
        tw_consumer_close(consumer);
        ended_well(child);
        CHECK(holds(message[0], LONG, LONGS - 1));
        tw_held_release(held[0]);
        tw_held_release(NULL);
    }
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    messages_are_held_and_given_back_in_any_order(argv[1]);
    return 0;
}

/* Broadcast and mpsc between processes: order, dropped messages, closing and deaths. Also outputs after invalid calls. */
#include "process.h"

enum { EACH = 300 };
static tw_error error;

static tw_channel_options small(void)
{
    tw_channel_options options = TW_CHANNEL_OPTIONS_INIT;
    options.capacity = 4096;
    return options;
}

static void follow(tw_link *link, const void *script)
{
    tw_channel_options options = small();
    tw_subscription *subscription;
    const void *message;
    size_t length;
    uint64_t number, missed, next = 0;
    tw_status status;
    OK(tw_subscription_open(&link, &options, &subscription, &error));
    CHECK(tw_subscription_release(subscription, &error) == TW_USAGE);
    while ((status = tw_subscription_receive(subscription, GUARD, &message, &length, &number, &missed, &error)) == TW_OK) {
        CHECK(number == next++ && missed == 0 && length == number % 64 && holds(message, length, number));
        CHECK(tw_subscription_receive(subscription, TW_NOW, &message, &length, NULL, NULL, &error) == TW_USAGE);
        number = missed = length = 7;
        CHECK(tw_subscription_receive(subscription, TW_NOW, NULL, &length, &number, &missed, &error) == TW_USAGE);
        CHECK(length == 0 && number == 0 && missed == 0);
        number = missed = 7;
        CHECK(tw_subscription_receive(subscription, TW_NOW, &message, &length, &number, &missed, &error) == TW_USAGE);
        CHECK(message == NULL && length == 0 && number == 0 && missed == 0);
        OK(tw_subscription_release(subscription, &error));
    }
    CHECK(status == TW_CLOSED && next == EACH);
    tw_subscription_close(subscription);
    (void)script;
}

static void stay_away(tw_link *link, const void *script)
{
    tw_channel_options options = small();
    tw_subscription *subscription;
    OK(tw_subscription_open(&link, &options, &subscription, &error));
    (void)script;
    for (;;)
        pause();
}

static void everybody_gets_every_message(const char *folder)
{
    tw_channel_options options = small();
    tw_broadcast *broadcast;
    tw_link *link;
    pid_t children[2];
    unsigned char message[64];
    uint64_t who, dropped;
    OK(tw_broadcast_new(0, &broadcast, &error));
    for (uint64_t n = 0; n < 2; n++) {
        children[n] = other(folder, follow, NULL, &link);
        OK(tw_broadcast_add(broadcast, &link, &options, GUARD, &who, &error));
        CHECK(who == n && !link);
    }
    CHECK(tw_broadcast_subscribers(broadcast) == 2 && !tw_broadcast_subscribers(NULL));
    for (size_t n = 0; n < EACH; n++) {
        fill(message, n % 64, n);
        OK(tw_broadcast_publish(broadcast, message, n % 64, GUARD, &error));
    }
    CHECK(tw_broadcast_departed(broadcast, &who, &dropped, &error) == TW_OK && who == TW_NOBODY);
    CHECK(tw_broadcast_publish(broadcast, NULL, 1, GUARD, &error) == TW_USAGE);
    CHECK(tw_broadcast_add(broadcast, &link, &options, GUARD, &who, &error) == TW_USAGE);
    tw_broadcast_close(broadcast);
    for (int n = 0; n < 2; n++)
        ended_well(children[n]);
}

static void a_dead_subscriber_departs_and_drops_are_counted(const char *folder)
{
    tw_channel_options options = small();
    tw_broadcast *broadcast;
    tw_link *link;
    uint64_t who, dropped;
    size_t left;
    unsigned char message[64] = { 0 };
    OK(tw_broadcast_new(3, &broadcast, &error));
    pid_t child = other(folder, stay_away, NULL, &link);
    OK(tw_broadcast_add(broadcast, &link, &options, GUARD, &who, &error));
    for (size_t n = 0; n < EACH; n++)
        OK(tw_broadcast_publish(broadcast, message, sizeof message, GUARD, &error));
    OK(tw_broadcast_push(broadcast, &left, &error));
    CHECK(left == 3);
    kill_9(child);
    OK(tw_broadcast_publish(broadcast, message, sizeof message, GUARD, &error));
    CHECK(tw_broadcast_departed(broadcast, &who, &dropped, &error) == TW_PEER_DIED);
    CHECK(who == 0 && dropped > 100 && dropped < EACH && tw_broadcast_subscribers(broadcast) == 0);
    CHECK(tw_broadcast_departed(broadcast, &who, &dropped, &error) == TW_OK);
    tw_broadcast_close(broadcast);
    tw_broadcast_close(NULL);
}

static void send_all(tw_link *link, const void *script)
{
    tw_channel_options options = small();
    tw_producer *producer;
    unsigned char message[64];
    OK(tw_producer_open(&link, &options, GUARD, &producer, &error));
    for (size_t n = 0; n < EACH; n++) {
        fill(message, n % 64, n);
        OK(tw_producer_send(producer, message, n % 64, GUARD, &error));
    }
    /* Leave the channel open. The parent kills this process. */
    if (script)
        for (;;)
            pause();
    tw_producer_close(producer);
}

static void many_send_to_one(const char *folder)
{
    tw_channel_options options = small();
    tw_mpsc *mpsc;
    tw_link *link;
    pid_t children[3];
    uint64_t from, came[3] = { 0, 0, 0 };
    const void *message;
    size_t length;
    int closed = 0, died = 0, is_killed = 0;
    OK(tw_mpsc_new(&options, &mpsc, &error));
    CHECK(tw_mpsc_receive(mpsc, GUARD, &from, &message, &length, &error) == TW_CLOSED && from == TW_NOBODY);
    for (uint64_t n = 0; n < 3; n++) {
        children[n] = other(folder, send_all, n == 2 ? "stay" : NULL, &link);
        OK(tw_mpsc_add(mpsc, &link, GUARD, &from, &error));
        CHECK(from == n);
    }
    CHECK(tw_mpsc_release(mpsc, &error) == TW_USAGE);
    while (closed + died < 3) {
        tw_status status = tw_mpsc_receive(mpsc, GUARD, &from, &message, &length, &error);
        CHECK(from < 3);
        if (status == TW_OK) {
            CHECK(length == came[from] % 64 && holds(message, length, came[from]));
            came[from]++;
            CHECK(tw_mpsc_receive(mpsc, TW_NOW, &from, &message, &length, &error) == TW_USAGE);
            OK(tw_mpsc_release(mpsc, &error));
            if (came[2] == EACH && !is_killed) {
                kill_9(children[2]);
                is_killed = 1;
            }
            continue;
        }
        CHECK(error.moved == EACH && came[from] == EACH);
        if (from == 2)
            CHECK(status == TW_PEER_DIED && ++died);
        else
            CHECK(status == TW_CLOSED && ++closed);
    }
    CHECK(closed == 2 && died == 1);
    CHECK(tw_mpsc_receive(mpsc, GUARD, &from, &message, &length, &error) == TW_CLOSED && from == TW_NOBODY);
    CHECK(error.moved == 3 * EACH);
    tw_mpsc_close(mpsc);
    tw_mpsc_close(NULL);
    for (int n = 0; n < 2; n++)
        ended_well(children[n]);
}

static void outputs_after_a_null_pointer_are_set(void)
{
    char byte;
    tw_link *near, *far = (tw_link *)&byte;
    size_t length = 7, count = 1;
    uint64_t dropped = 7;
    int fd, is_waited_for = 7;
    CHECK(tw_link_pair(NULL, &far, &error) == TW_USAGE && !far);
    OK(tw_link_pair(&near, &far, &error));
    CHECK(tw_link_receive(far, NULL, 1, &length, &fd, &count, TW_NOW, &error) == TW_USAGE && !length && !count);
    count = 1;
    CHECK(tw_link_receive(far, &byte, 1, NULL, &fd, &count, TW_NOW, &error) == TW_USAGE && !count);
    tw_link_close(near);
    tw_link_close(far);
    CHECK(tw_broadcast_departed(NULL, NULL, &dropped, &error) == TW_USAGE && !dropped);
    CHECK(tw_consumer_held(NULL, NULL, &is_waited_for, &error) == TW_USAGE && !is_waited_for);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    everybody_gets_every_message(argv[1]);
    a_dead_subscriber_departs_and_drops_are_counted(argv[1]);
    many_send_to_one(argv[1]);
    outputs_after_a_null_pointer_are_set();
    return 0;
}

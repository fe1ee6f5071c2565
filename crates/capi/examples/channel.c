/* Passes the lines of standard input to another process through shared memory, where it prints them:
 *   cc channel.c $(pkg-config --cflags --libs thalweg) -o channel
 *   ./channel receive lines &
 *   sleep 1; ./channel send lines <text      (the sender fails if no receiver listens)
 * If you kill one of the two, the other reports this and the number of delivered messages. */
#include <stdio.h>
#include <string.h>
#include <thalweg.h>

static int failed(const tw_error *error)
{
    fprintf(stderr, "%s (%llu messages were delivered)\n", error->message, (unsigned long long)error->moved);
    return error->status;
}

/* Reads each line of the input directly into the shared memory, from which the other process reads it. */
static int send_lines(const char *name)
{
    enum { LONGEST = 4096 };
    tw_link *link;
    tw_producer *producer;
    tw_error error;
    void *room;

    if (tw_link_connect(name, TW_SAME_USER, TW_FOREVER, &link, &error) != TW_OK ||
        tw_producer_open(&link, NULL, TW_FOREVER, &producer, &error) != TW_OK)
        return failed(&error);
    tw_status status;
    while ((status = tw_producer_loan(producer, LONGEST, TW_FOREVER, &room, &error)) == TW_OK) {
        if (!fgets(room, LONGEST, stdin))
            break;
        if ((status = tw_producer_commit(producer, strlen(room), &error)) != TW_OK)
            break;
    }
    /* Closes the channel. The consumer still receives all committed messages. */
    tw_producer_close(producer);
    return status == TW_OK ? 0 : failed(&error);
}

static int receive_lines(const char *name)
{
    tw_listener *listener;
    tw_link *link;
    tw_consumer *consumer;
    tw_error error;
    const void *line;
    size_t length;

    if (tw_listener_bind(name, TW_SAME_USER, &listener, &error) != TW_OK)
        return failed(&error);
    tw_status status = tw_listener_accept(listener, TW_FOREVER, &link, &error);
    tw_listener_close(listener);
    if (status != TW_OK || tw_consumer_open(&link, NULL, TW_FOREVER, &consumer, &error) != TW_OK)
        return failed(&error);
    while ((status = tw_consumer_receive(consumer, TW_FOREVER, &line, &length, &error)) == TW_OK) {
        fwrite(line, 1, length, stdout);
        tw_consumer_release(consumer, NULL);
    }
    tw_consumer_close(consumer);
    return status == TW_CLOSED ? 0 : failed(&error);
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "send"))
        return send_lines(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "receive"))
        return receive_lines(argv[2]);
    fprintf(stderr, "usage: %s send|receive NAME\n", argv[0]);
    return TW_USAGE;
}

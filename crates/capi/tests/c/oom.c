/* Makes allocations fail. The call that needs the memory must report an error, or print a message and call abort(3).
 *   oom SCENARIO N STAYS FOLDER
 * The N-th allocation from the start of the scenario fails; with STAYS 1, all later ones fail too. The program prints the number of
 * allocations. It exits with 1 if a successful call did not have its documented effect. */
#include <pthread.h>
#include <sys/resource.h>

#include "process.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
int __real_posix_memalign(void **to, size_t alignment, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
int __wrap_posix_memalign(void **to, size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

static long failing, allocations;
static int stays;

static int fails(void)
{
    long number = __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    return failing > 0 && (number == failing || (stays && number > failing));
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails() ? NULL : __real_realloc(old, size);
}

int __wrap_posix_memalign(void **to, size_t alignment, size_t size)
{
    return fails() ? ENOMEM : __real_posix_memalign(to, alignment, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : __real_aligned_alloc(alignment, size);
}

#define MESSAGES 20
#define LENGTH ((size_t)300000)
/* Maximum wait of a call, because a peer that has failed may never answer. */
#define PATIENCE (INT64_C(20) * 1000000000)

static char data[LENGTH];
static tw_link *links[2];

static void *produce(void *unused)
{
    tw_error error;
    tw_producer *producer = NULL;
    if (tw_producer_open(&links[0], NULL, PATIENCE, &producer, &error) != TW_OK) {
        tw_link_close(links[0]);
        return unused;
    }
    for (size_t n = 0; n < MESSAGES; n++)
        if (tw_producer_send(producer, data + n, n + 1, PATIENCE, &error) != TW_OK)
            break;
    tw_producer_close(producer);
    return unused;
}

static void consume(void)
{
    tw_error error;
    tw_consumer *consumer = NULL;
    const void *message;
    size_t length;
    if (tw_consumer_open(&links[1], NULL, PATIENCE, &consumer, &error) != TW_OK) {
        tw_link_close(links[1]);
        return;
    }
    for (size_t n = 0; n < MESSAGES; n++) {
        if (tw_consumer_receive(consumer, PATIENCE, &message, &length, &error) != TW_OK)
            break;
        CHECK(length == n + 1 && memcmp(message, data + n, length) == 0);
        if (tw_consumer_release(consumer, &error) != TW_OK)
            break;
    }
    tw_consumer_close(consumer);
}

static void *send_buffers(void *unused)
{
    tw_error error;
    tw_sender *sender = NULL;
    tw_buffer *loan = NULL;
    if (tw_sender_open(&links[0], NULL, &sender, &error) != TW_OK) {
        tw_link_close(links[0]);
        return unused;
    }
    if (tw_sender_send(sender, data, LENGTH, &error) == TW_OK && tw_sender_loan(sender, LENGTH, &loan, &error) == TW_OK) {
        memcpy(tw_buffer_data(loan), data, LENGTH);
        tw_sender_send_loan(sender, &loan, &error);
        tw_buffer_free(loan);
    }
    tw_sender_close(sender);
    return unused;
}

static void receive_buffers(void)
{
    tw_error error;
    tw_receiver *receiver = NULL;
    tw_buffer *buffer = NULL;
    static char into[LENGTH];
    size_t length;
    if (tw_receiver_open(&links[1], NULL, &receiver, &error) != TW_OK) {
        tw_link_close(links[1]);
        return;
    }
    if (tw_receiver_receive_into(receiver, into, LENGTH, &length, &error) == TW_OK) {
        CHECK(length == LENGTH && memcmp(into, data, LENGTH) == 0);
        if (tw_receiver_receive_new(receiver, &buffer, &error) == TW_OK) {
            CHECK(tw_buffer_length(buffer) == LENGTH && memcmp(tw_buffer_data(buffer), data, LENGTH) == 0);
            tw_buffer_free(buffer);
        }
    }
    tw_receiver_close(receiver);
}

static void both(void *(*one)(void *), void (*other)(void))
{
    tw_error error;
    pthread_t thread;
    if (tw_link_pair(&links[0], &links[1], &error) != TW_OK)
        return;
    CHECK(pthread_create(&thread, NULL, one, NULL) == 0);
    other();
    CHECK(pthread_join(thread, NULL) == 0);
}

static void fill_source(const char *folder)
{
    char source[500];
    snprintf(source, sizeof source, "%s/source", folder);
    int fd = open(source, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && write(fd, data, LENGTH) == (ssize_t)LENGTH);
    close(fd);
}

static void copy(const char *folder)
{
    tw_error error;
    tw_report report;
    char source[500], destination[500], *json = NULL;
    static char read_back[LENGTH];
    tw_profile *profile = NULL;
    snprintf(source, sizeof source, "%s/source", folder);
    snprintf(destination, sizeof destination, "%s/destination", folder);
    if (tw_copy(source, destination, NULL, &report, &error) == TW_OK) {
        int fd = open(destination, O_RDONLY);
        CHECK(fd >= 0 && report.bytes == LENGTH);
        CHECK(read(fd, read_back, LENGTH) == (ssize_t)LENGTH && memcmp(read_back, data, LENGTH) == 0);
        close(fd);
    } else {
        CHECK(access(destination, F_OK) != 0);
    }
    unlink(destination);
    if (tw_profile_load("/nonexistent", &profile, &error) == TW_OK)
        tw_profile_free(profile);
    if (tw_mechanisms_json(&json, &error) == TW_OK) {
        CHECK(json && strchr(json, '}'));
        tw_string_free(json);
    }
}

static void regions(void)
{
    tw_error error;
    tw_region *region = NULL;
    if (tw_region_create(TW_MEMFD, 4096, &region, &error) == TW_OK) {
        CHECK(tw_region_unmap(region, &error) == TW_OK);
        tw_region_close(region);
    }
}

int main(int argc, char **argv)
{
    CHECK(argc == 5);
    /* Write no core files, because hundreds of runs end by abort(3). */
    CHECK(setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 }) == 0);
    alarm(60);
    for (size_t n = 0; n < LENGTH; n++)
        data[n] = (char)(n * 31 ^ n >> 8);
    fill_source(argv[4]);
    long first = strtol(argv[2], NULL, 10);
    stays = argv[3][0] == '1';
    allocations = 0;
    failing = first;
    if (!strcmp(argv[1], "channel"))
        both(produce, consume);
    else if (!strcmp(argv[1], "bulk"))
        both(send_buffers, receive_buffers);
    else if (!strcmp(argv[1], "copy"))
        copy(argv[4]);
    else
        regions();
    failing = 0;
    printf("%ld\n", allocations);
    return 0;
}

/* Reads message rings from dumps, according to docs/reference/formats.md alone, like tests/vectors/reader.py:
 *   vectors ring PRODUCER.hex CONSUMER.hex    prints the messages that are committed and not released, as JSON
 *   vectors handshake FILE.hex                prints the messages of a handshake, as JSON
 * If a dump violates the format, prints an error on standard error and exits with 1. */
#include <inttypes.h>

#include "check.h"

struct memory {
    unsigned char *bytes;
    size_t length;
};

struct page {
    uint64_t version, header_len, capacity, align, flags, epoch, cursor, closed;
};

#define EXPECT(what)                                   \
    do {                                               \
        if (!(what)) {                                 \
            fprintf(stderr, "corrupt: %s\n", #what);   \
            exit(1);                                   \
        }                                              \
    } while (0)

/* Reads a dump with lines of the form "offset  bytes". Lines of zeros are omitted. The last line contains only the
 * length. */
static struct memory load(const char *path)
{
    struct memory memory = { NULL, 0 };
    char line[4096];
    FILE *file = fopen(path, "r");
    CHECK(file);
    while (fgets(line, sizeof line, file)) {
        char *at = line, *next;
        memory.length = strtoull(at, &next, 16);
        size_t offset = memory.length;
        memory.bytes = realloc(memory.bytes, offset + sizeof line);
        CHECK(memory.bytes);
        for (at = next; strtoull(at, &next, 16), next != at; at = next)
            offset++;
        memory.length = offset;
    }
    rewind(file);
    memset(memory.bytes, 0, memory.length);
    while (fgets(line, sizeof line, file)) {
        char *at, *next;
        size_t offset = strtoull(line, &at, 16);
        for (;; at = next) {
            unsigned long long byte = strtoull(at, &next, 16);
            if (next == at)
                break;
            CHECK(offset < memory.length);
            memory.bytes[offset++] = (unsigned char)byte;
        }
    }
    fclose(file);
    return memory;
}

static uint64_t number(const unsigned char *at, size_t bytes)
{
    uint64_t value = 0;
    while (bytes--)
        value = value << 8 | at[bytes];
    return value;
}

static struct page page_of(struct memory memory, const char *magic)
{
    const unsigned char *at = memory.bytes;
    EXPECT(memory.length >= 4096);
    EXPECT(!memcmp(at, magic, 8));
    struct page page = { number(at + 8, 4), number(at + 12, 4), number(at + 16, 8), number(at + 24, 4),
                         number(at + 28, 4), number(at + 32, 8), number(at + 128, 8), number(at + 528, 4) };
    EXPECT(page.version == 1 && page.align == 64 && page.flags <= 1);
    EXPECT(page.header_len >= 4096 && !(page.header_len & (page.header_len - 1)));
    EXPECT(page.capacity >= 4096 && page.capacity <= 1u << 30 && !(page.capacity & (page.capacity - 1)));
    return page;
}

/* Copies `length` bytes from a position of the ring. A range that reaches the end of the data continues at its
 * start. */
static void data(struct memory memory, struct page page, uint64_t position, size_t length, unsigned char *into)
{
    for (size_t n = 0; n < length; n++)
        into[n] = memory.bytes[page.header_len + (position + n) % page.capacity];
}

static void ring(struct memory producer, struct memory consumer)
{
    struct page head = page_of(producer, "THALWEGR"), tail = page_of(consumer, "THALWEGC");
    EXPECT(head.header_len == tail.header_len && head.capacity == tail.capacity);
    EXPECT(head.flags == tail.flags && head.epoch == tail.epoch);
    EXPECT(producer.length == head.header_len + head.capacity && consumer.length == head.header_len);
    uint64_t end = head.cursor, at = tail.cursor, seq = 0;
    EXPECT(at <= end && end <= at + head.capacity && at % 64 == 0 && end % 64 == 0);
    printf("{\"epoch\": %" PRIu64 ", \"capacity\": %" PRIu64 ", \"checksums\": %s, \"head\": %" PRIu64
           ", \"tail\": %" PRIu64 ", \"closed\": [%" PRIu64 ", %" PRIu64 "], \"messages\": [",
           head.epoch, head.capacity, head.flags ? "true" : "false", end, at, head.closed, tail.closed);
    unsigned char *payload = malloc(head.capacity);
    CHECK(payload);
    for (int first = 1; at < end; first = 0) {
        unsigned char frame[32];
        data(producer, head, at, sizeof frame, frame);
        uint64_t length = number(frame, 4), kind = number(frame + 4, 2), flags = number(frame + 6, 2);
        uint64_t size = (32 + length + 63) / 64 * 64;
        EXPECT(kind == 1 && flags == head.flags);
        EXPECT(at + size <= end);
        EXPECT(first || number(frame + 8, 8) == seq + 1);
        seq = number(frame + 8, 8);
        data(producer, head, at + 32, length, payload);
        EXPECT(!flags || number(frame + 16, 4) == tw_crc32c(payload, length, tw_crc32c(frame, 16, 0)));
        printf("%s{\"seq\": %" PRIu64 ", \"payload\": \"", first ? "" : ", ", seq);
        for (size_t n = 0; n < length; n++)
            printf("%02x", payload[n]);
        printf("\"}");
        at += size;
    }
    printf("]}\n");
    free(payload);
}

static void handshake(struct memory messages)
{
    static const unsigned char zeros[64];
    EXPECT(messages.length % 64 == 0);
    printf("[");
    for (size_t at = 0; at < messages.length; at += 64) {
        const unsigned char *message = messages.bytes + at;
        EXPECT(!memcmp(message, "THALWEGH", 8) && number(message + 8, 4) == 1);
        EXPECT(number(message + 12, 4) >= 1 && number(message + 12, 4) <= 5);
        EXPECT(!memcmp(message + 28, zeros, 36));
        printf("%s{\"kind\": %" PRIu64 ", \"epoch\": %" PRIu64 ", \"reason\": %" PRIu64 "}", at ? ", " : "",
               number(message + 12, 4), number(message + 16, 8), number(message + 24, 4));
    }
    printf("]\n");
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "ring")) {
        struct memory producer = load(argv[2]), consumer = load(argv[3]);
        ring(producer, consumer);
        free(producer.bytes);
        free(consumer.bytes);
        return 0;
    }
    if (argc == 3 && !strcmp(argv[1], "handshake")) {
        struct memory messages = load(argv[2]);
        handshake(messages);
        free(messages.bytes);
        return 0;
    }
    fprintf(stderr, "vectors ring PRODUCER CONSUMER, or vectors handshake FILE\n");
    return 1;
}

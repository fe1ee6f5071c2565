/* Compares every kernel with plain loops, for many sizes and offsets. Compares the checksums with known values. */
#include "check.h"

enum { MOST = 9000, ROOM = MOST + 256 };
static unsigned char source[ROOM], sink[ROOM], expected[ROOM];

static void copies(size_t index, size_t length, size_t from, size_t to)
{
    memset(sink, 0xaa, sizeof sink);
    memset(expected, 0xaa, sizeof expected);
    for (size_t n = 0; n < length; n++)
        expected[to + n] = source[from + n];
    CHECK(tw_memcpy_by(index, sink + to, source + from, length) == TW_OK);
    CHECK(!memcmp(sink, expected, sizeof sink));
}

static void moves(size_t length, size_t from, size_t to)
{
    memcpy(sink, source, sizeof sink);
    memcpy(expected, source, sizeof expected);
    for (size_t n = 0; n < length; n++)
        expected[to + n] = source[from + n];
    CHECK(tw_memmove(sink + to, sink + from, length) == sink + to);
    CHECK(!memcmp(sink, expected, sizeof sink));
}

int main(void)
{
    static const size_t lengths[] = { 0, 1, 15, 16, 31, 63, 64, 65, 127, 256, 1000, 4095, 4097, 8999 };
    size_t available = 0;
    for (size_t n = 0; n < sizeof source; n++)
        source[n] = (unsigned char)(n * 131 + (n >> 8));
    for (size_t index = 0; index < tw_kernel_count(); index++) {
        CHECK(tw_kernel_name(index) && tw_kernel_summary(index));
        if (!tw_kernel_is_available(index)) {
            CHECK(tw_memcpy_by(index, sink, source, 1) == TW_UNSUPPORTED);
            /* The processor that valgrind emulates has no AVX-512. */
            printf("%s\tthis processor, or the one that valgrind makes of it, does not run it\n", tw_kernel_name(index));
            continue;
        }
        available++;
        for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
            for (size_t offset = 0; offset < 64; offset += 21)
                copies(index, lengths[n], offset, 63 - offset);
    }
    CHECK(available >= 2);
    CHECK(!tw_kernel_name(tw_kernel_count()) && !tw_kernel_is_available(tw_kernel_count()));
    CHECK(tw_memcpy_by(tw_kernel_count(), sink, source, 1) == TW_USAGE);
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++) {
        moves(lengths[n], 3, 70);
        moves(lengths[n], 70, 3);
        memset(expected, 0x77, sizeof expected);
        memset(sink, 0x77, sizeof sink);
        memset(expected + 5, 0x101 & 0xff, lengths[n]);
        CHECK(tw_memset(sink + 5, 0x101, lengths[n]) == sink + 5);
        CHECK(!memcmp(sink, expected, sizeof sink));
    }
    CHECK(tw_memcpy(sink, source, 100) == sink && !memcmp(sink, source, 100));
    CHECK((tw_memcpy)(sink, source + 1, 100) == sink && !memcmp(sink, source + 1, 100));
    CHECK(tw_memcpy_now);
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++) {
        memset(sink, 0xaa, sizeof sink);
        CHECK(tw_memcpy(sink + 5, source + 2, lengths[n]) == sink + 5);
        CHECK(!memcmp(sink + 5, source + 2, lengths[n]));
        CHECK(sink[4] == 0xaa && sink[5 + lengths[n]] == 0xaa);
    }
    /* RFC 3720 B.4: 32 bytes of zeros. */
    memset(expected, 0, 32);
    CHECK(tw_crc32c(expected, 32, 0) == 0x8a9136aau);
    CHECK(tw_memcpy_crc32c(sink, source, MOST, 0) == tw_crc32c(source, MOST, 0));
    CHECK(!memcmp(sink, source, MOST));
    /* The hash of 0 bytes, from xxHash's own sanity tests. It does not depend on the address. */
    CHECK(tw_xxh3(expected, 0) == UINT64_C(0x2d06800538d394c2));
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++) {
        memset(sink, 0xaa, sizeof sink);
        uint64_t hash = tw_memcpy_xxh3(sink + 9, source + 2, lengths[n]);
        CHECK(!memcmp(sink + 9, source + 2, lengths[n]));
        CHECK(sink[8] == 0xaa && sink[9 + lengths[n]] == 0xaa);
        CHECK(hash == tw_xxh3(source + 2, lengths[n]) && hash == tw_xxh3(sink + 9, lengths[n]));
        CHECK(!n || hash != tw_xxh3(source + 3, lengths[n]));
    }
    return 0;
}

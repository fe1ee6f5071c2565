/* Tests that tw_memcpy is the C library's memcpy until a profile selects another kernel, however the program is linked:
 *   follows PROFILE    PROFILE must prefer another kernel for short copies */
#define _GNU_SOURCE
#include "check.h"

#include <dlfcn.h>

static void copies(void)
{
    unsigned char source[300], sink[300];
    for (size_t n = 0; n < sizeof source; n++)
        source[n] = (unsigned char)(n * 7);
    for (size_t length = 0; length < sizeof sink; length++) {
        memset(sink, 0xaa, sizeof sink);
        CHECK(tw_memcpy(sink, source, length) == sink);
        CHECK(!memcmp(sink, source, length) && sink[length] == 0xaa);
        CHECK((tw_memcpy)(sink, source, length) == sink && tw_memcpy_now(sink, source, length) == sink);
        CHECK(tw_memcpy_first.run(sink, source, length) == sink);
    }
}

int main(int argc, char **argv)
{
    tw_profile *profile;
    CHECK(argc == 2);
    CHECK(tw_memcpy_first.upto == SIZE_MAX && tw_memcpy_first.run == tw_memcpy_now);
    void *(*before)(void *, const void *, size_t) = tw_memcpy_now;
    /* tw_memcpy_now costs as much as a call of memcpy through a pointer, because it points to memcpy itself. */
    CHECK((uintptr_t)before == (uintptr_t)dlsym(RTLD_DEFAULT, "memcpy"));
    copies();
    CHECK(tw_profile_load(argv[1], &profile, NULL) == TW_OK && profile);
    CHECK(tw_memcpy_now != before && tw_memcpy_first.run != before && tw_memcpy_first.upto < SIZE_MAX);
    copies();
    tw_profile_free(profile);
    return 0;
}

/* The walk of maze.c as a usual AFL++ target in C: the compiler inserts the coverage counters, and AFL++'s own
 * loop runs the test cases. Built by afl-clang-fast (`run`). */
#include <stdint.h>
#include <unistd.h>

__AFL_FUZZ_INIT();

static volatile uint32_t seen;

static void walk(const uint8_t *bytes, uint32_t length)
{
    uint32_t sum = 0, low = 0, middle = 0, high = 0, sevenths = 0;
    for (uint32_t at = 0; at < length; at++) {
        sum = sum * 31 + bytes[at];
        if (bytes[at] < 64)
            low++;
        else if (bytes[at] < 128)
            middle++;
        else
            high++;
        if (sum % 7 == 0)
            sevenths++;
    }
    seen = low ^ middle << 8 ^ high << 16 ^ sevenths << 24 ^ (length > 65536);
}

int main(void)
{
    __AFL_INIT();
    const uint8_t *input = __AFL_FUZZ_TESTCASE_BUF;
    while (__AFL_LOOP(1u << 30))
        walk(input, (uint32_t)__AFL_FUZZ_TESTCASE_LEN);
    return 0;
}

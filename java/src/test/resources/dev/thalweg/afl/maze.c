/* The walk of Maze.java with equal places, as a persistent fork-server target of AFL++ in C. Both
 * coverage maps must be byte-identical. The protocol is that of AFL++ up to 4.21. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONTROL 198
#define STATUS 199

static uint8_t *map;
static uint32_t mask, previous;

static void hit(uint32_t place)
{
    map[(place ^ previous) & mask]++;
    previous = place >> 1;
}

static void walk(const uint8_t *bytes, uint32_t length)
{
    hit(0x1b873593);
    uint32_t sum = 0;
    for (uint32_t at = 0; at < length; at++) {
        sum = sum * 31 + bytes[at];
        if (bytes[at] < 64)
            hit(0x2545f491);
        else if (bytes[at] < 128)
            hit(0x3c6ef372);
        else
            hit(0x52dce729);
        if (sum % 7 == 0)
            hit(0x6ed9eba1);
    }
    hit(length > 65536 ? 0x71374491 : 0x7b5bdb1f);
}

/* Maps memory of the fuzzer: a System V segment, or a POSIX object if AFL++ was built with USEMMAP. */
static void *mapped(const char *name)
{
    struct stat facts;
    if (*name != '/')
        return shmat(atoi(name), NULL, 0);
    int fd = shm_open(name, O_RDWR, 0);
    if (fd < 0 || fstat(fd, &facts))
        return (void *)-1;
    return mmap(NULL, (size_t)facts.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

int main(void)
{
    const char *id = getenv("__AFL_SHM_ID"), *cases = getenv("__AFL_SHM_FUZZ_ID");
    const char *size = getenv("AFL_MAP_SIZE");
    mask = (size ? (uint32_t)atoi(size) : 65536u) - 1;
    if (!id || !cases)
        return 3;
    map = mapped(id);
    const uint8_t *input = mapped(cases);
    if (map == (void *)-1 || input == (void *)-1)
        return 4;
    uint32_t word = 0x80000001u | 0x40000000u | mask << 1 | 0x01000000u, length;
    if (write(STATUS, &word, 4) != 4 || read(CONTROL, &word, 4) != 4)
        return 5;
    while (read(CONTROL, &word, 4) == 4) {
        word = (uint32_t)getpid();
        if (write(STATUS, &word, 4) != 4)
            break;
        memcpy(&length, input, 4);
        previous = 0;
        walk(input + 4, length);
        word = 0;
        if (write(STATUS, &word, 4) != 4)
            break;
    }
    return 0;
}

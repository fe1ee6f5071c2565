/* Lists the copy kernels, and copies with a checksum in one pass:
 *   cc kernels.c $(pkg-config --cflags --libs thalweg) -o kernels && ./kernels */
#include <stdio.h>
#include <thalweg.h>

int main(void)
{
    static const char text[] = "read once, written once, summed on the way";
    char copy[sizeof text];

    for (size_t n = 0; n < tw_kernel_count(); n++)
        printf("%-14s %s%s\n", tw_kernel_name(n), tw_kernel_summary(n),
               tw_kernel_is_available(n) ? "" : " (not on this processor)");
    unsigned sum = tw_memcpy_crc32c(copy, text, sizeof text, 0);
    printf("%s: crc32c %08x\n", copy, sum);
    printf("%s: xxh3 %016llx\n", copy, (unsigned long long)tw_memcpy_xxh3(copy, text, sizeof text));
    return 0;
}

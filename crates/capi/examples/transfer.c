/* Copies standard input to standard output by the mechanism that is fastest according to this machine's profile. Prints its name:
 *   cc transfer.c $(pkg-config --cflags --libs thalweg) -o transfer && ./transfer <big >copy */
#include <stdio.h>
#include <thalweg.h>

int main(void)
{
    tw_transfer_options options = TW_TRANSFER_OPTIONS_INIT;
    tw_profile *profile = NULL;
    tw_report report;
    tw_error error;

    /* Without a profile, the library uses the first mechanism with the required guarantees. */
    if (tw_profile_load(NULL, &profile, &error) != TW_OK)
        fprintf(stderr, "%s\n", error.message);
    options.profile = profile;

    tw_status status = tw_transfer(0, 1, TW_ALL, &options, &report, &error);
    tw_profile_free(profile);
    if (status != TW_OK) {
        fprintf(stderr, "%s (%llu bytes are there)\n", error.message, (unsigned long long)error.moved);
        return status;
    }
    fprintf(stderr, "%llu bytes by %s\n", (unsigned long long)report.bytes, report.mechanism);
    return 0;
}

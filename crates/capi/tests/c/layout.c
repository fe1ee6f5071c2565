/* Prints sizes and offsets as the C compiler sees them. A test in Rust compares them with those
 * of the library. */
#include "check.h"

#define FIELD(type, field) printf(#type "." #field " %zu\n", offsetof(type, field))

int main(void)
{
    printf("tw_error %zu\n", sizeof(tw_error));
    FIELD(tw_error, moved);
    FIELD(tw_error, message);
    FIELD(tw_error, partial);
    printf("tw_transfer_options %zu\n", sizeof(tw_transfer_options));
    FIELD(tw_transfer_options, method);
    FIELD(tw_transfer_options, limit);
    FIELD(tw_transfer_options, user);
    printf("tw_report %zu\n", sizeof(tw_report));
    FIELD(tw_report, mechanism);
    printf("tw_peer %zu\n", sizeof(tw_peer));
    FIELD(tw_peer, is_alive);
    printf("tw_channel_options %zu\n", sizeof(tw_channel_options));
    FIELD(tw_channel_options, capacity);
    FIELD(tw_channel_options, wait);
    FIELD(tw_channel_options, flags);
    printf("tw_bulk_options %zu\n", sizeof(tw_bulk_options));
    FIELD(tw_bulk_options, knobs);
    FIELD(tw_bulk_options, length);
    FIELD(tw_bulk_options, wait);
    FIELD(tw_bulk_options, flags);
    FIELD(tw_bulk_options, profile);
    return 0;
}

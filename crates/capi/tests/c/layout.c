/* Prints sizes and offsets as the C compiler sees them; the test compares them with Rust's. */
#include "check.h"

#define FIELD(type, field) printf(#type "." #field " %zu\n", offsetof(type, field))

int main(void)
{
    printf("tw_error %zu\n", sizeof(tw_error));
    FIELD(tw_error, moved);
    FIELD(tw_error, message);
    printf("tw_transfer_options %zu\n", sizeof(tw_transfer_options));
    FIELD(tw_transfer_options, method);
    FIELD(tw_transfer_options, limit);
    FIELD(tw_transfer_options, user);
    printf("tw_report %zu\n", sizeof(tw_report));
    FIELD(tw_report, mechanism);
    return 0;
}

#include <stdio.h>
int call_copied_early(void);
int main(void) {
    puts(call_copied_early() ? "right" : "wrong");
    return 0;
}

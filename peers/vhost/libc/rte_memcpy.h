/* Replaces DPDK's header of this name. Defines rte_memcpy as memcpy of the C library. */
#ifndef _RTE_MEMCPY_H_
#define _RTE_MEMCPY_H_

#include <string.h>

#define rte_memcpy(to, from, length) memcpy((to), (from), (length))

#endif

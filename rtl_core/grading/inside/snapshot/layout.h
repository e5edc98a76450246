/* What a snapshot file begins with, see take.c. All addresses are those of the process that was snapshot. */
#pragma once
#include <stdint.h>

#define MAGIC 0x31504e534c5452ull
#define PAGE 4096ull
#define MAX_REGIONS 2000
#define MAX_PATH 232
#define SIGNALS 64

enum { FROM_SNAPSHOT = 0, FROM_FILE = 1, NOTHING = 2, OF_KERNEL = 3 };

struct region {
    uint64_t start, end;
    uint64_t offset; /* in the snapshot, or in the file `path` */
    int32_t prot, kind;
    char path[MAX_PATH]; /* the name of the mapping where it is OF_KERNEL */
};

/* What a function has to leave as it was, its stack and where it returns to. */
struct registers {
    uint64_t rbx, rbp, r12, r13, r14, r15, rsp, rip;
};

struct kernel_sigaction {
    uint64_t handler, flags, restorer, mask;
};

/* As in linux/prctl.h. */
struct mm_map {
    uint64_t start_code, end_code, start_data, end_data, start_brk, brk, start_stack;
    uint64_t arg_start, arg_end, env_start, env_end, auxv;
    uint32_t auxv_size, exe_fd;
};

struct header {
    uint64_t magic, regions, data;
    struct registers registers;
    struct kernel_sigaction actions[SIGNALS];
    uint64_t mask, thread, robust, robust_size, rseq, rseq_size;
    struct mm_map memory;
};

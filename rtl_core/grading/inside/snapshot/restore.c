/* Becomes the process whose memory take.c has written to a file: restore SNAPSHOT.
 *
 * A program without a C library, linked where no other is (see snapshot.py), so that it can map all that memory at its
 * old place, vDSO included, and jump into it. It gains nothing by that: user, capabilities, namespaces and system call
 * filter are those of the container that it was started in. Exit code 111 to 119 when it cannot be done.
 */
#include "layout.h"

enum { READ, WRITE, OPEN, CLOSE, MMAP = 9, MUNMAP = 11, SIGACTION = 13, SIGPROCMASK, MREMAP = 25, EXIT = 60,
    PRCTL = 157, ARCH_PRCTL, SET_ROBUST_LIST = 273, RSEQ = 334 };
#define FAILED(result) ((uint64_t)(result) > -4096ull)
#define STACK (8ull << 20)
#define ASIDE 0x180000000000ull

static struct header header;
static struct region regions[MAX_REGIONS];
static char text[1 << 16];
extern char __executable_start, _end;

static long call(long n, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#define SYS(n, a, b, c, d, e, f) call(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

static void need(int holds, int code) {
    if (!holds) SYS(EXIT, code, 0, 0, 0, 0, 0);
}

static int same(const char *a, const char *b) {
    while (*a && *a == *b) a++, b++;
    return *a == *b;
}

static void fill(int fd, void *to, uint64_t size) {
    for (uint64_t had = 0; had < size;) {
        long got = SYS(READ, fd, (char *)to + had, size - had, 0, 0, 0);
        need(got > 0, 112);
        had += got;
    }
}

static char *number(char *at, uint64_t *to) {
    for (*to = 0; *at && *at != '-' && *at != ' '; at++) *to = *to << 4 | (*at <= '9' ? *at - '0' : *at - 'a' + 10);
    return at + 1;
}

static struct region *of_kernel(const char *name) {
    for (uint64_t i = 0; i < header.regions; i++)
        if (regions[i].kind == OF_KERNEL && same(regions[i].path, name)) return &regions[i];
    return 0;
}

/* Unmaps all that this program was started with but itself. What the kernel gave (vDSO) is put aside, then in its old place. */
static void clear(void) {
    long fd = SYS(OPEN, "/proc/self/maps", 0, 0, 0, 0, 0), got, size = 0;
    need(!FAILED(fd), 113);
    while ((got = SYS(READ, fd, text + size, sizeof text - 1 - size, 0, 0, 0)) > 0) size += got;
    SYS(CLOSE, fd, 0, 0, 0, 0, 0);
    uint64_t aside = ASIDE, found = 0;
    struct region *moved[16];
    for (char *line = text, *next; *line; line = next) {
        uint64_t start, end;
        for (next = line; *next != '\n'; next++) {}
        *next++ = 0;
        char *name = number(number(line, &start), &end), *last = name;
        for (char *at = name; *at; at++)
            if (*at == ' ') last = at + 1;
        struct region *old = of_kernel(last);
        if (old) {
            need(old->end - old->start == end - start && found < 16, 114);
            need(!FAILED(SYS(MREMAP, start, end - start, end - start, 3, aside, 0)), 114);
            moved[found++] = old;
            aside += end - start;
        } else if (!(start >= (uint64_t)&__executable_start && start < (uint64_t)&_end) && start < 1ull << 47)
            need(!FAILED(SYS(MUNMAP, start, end - start, 0, 0, 0, 0)), 115);
    }
    aside = ASIDE;
    for (uint64_t i = 0; i < found; i++) {
        uint64_t bytes = moved[i]->end - moved[i]->start;
        need(!FAILED(SYS(MREMAP, aside, bytes, bytes, 3, moved[i]->start, 0)), 114);
        aside += bytes;
    }
}

static void map(int snapshot, const struct region *r) {
    uint64_t size = r->end - r->start;
    long flags = 0x10 | 0x02, fd = snapshot, at; /* MAP_FIXED | MAP_PRIVATE */
    if (r->kind == NOTHING) flags |= 0x20, fd = -1; /* MAP_ANONYMOUS */
    if (r->kind == FROM_FILE) need(!FAILED(fd = SYS(OPEN, r->path, 0, 0, 0, 0, 0)), 116);
    at = SYS(MMAP, r->start, size, r->prot, flags, fd, r->kind == NOTHING ? 0 : r->offset);
    need(at == (long)r->start, 117);
    if (r->kind == FROM_FILE) SYS(CLOSE, fd, 0, 0, 0, 0, 0);
    if (same(r->path, "[stack]")) {
        /* It grows by itself no more, so it gets all its room at once, but for a page that stays unmapped below it. */
        uint64_t low = r->end - STACK;
        at = SYS(MMAP, low, r->start - low, r->prot, 0x4032, -1, 0); /* and MAP_NORESERVE */
        need(at == (long)low, 117);
    }
}

__attribute__((noreturn, used)) static void become(const char *path) {
    long fd = SYS(OPEN, path, 0, 0, 0, 0, 0);
    need(!FAILED(fd), 111);
    fill(fd, &header, sizeof header);
    fill(fd, regions, sizeof regions);
    need(header.magic == MAGIC && header.regions <= MAX_REGIONS, 112);
    clear();
    for (uint64_t i = 0; i < header.regions; i++)
        if (regions[i].kind != OF_KERNEL) map(fd, &regions[i]);
    SYS(CLOSE, fd, 0, 0, 0, 0, 0);
    /* Where the heap ends and the arguments are. */
    need(!FAILED(SYS(PRCTL, 35 /* PR_SET_MM */, 14 /* PR_SET_MM_MAP */, &header.memory, sizeof header.memory, 0, 0)), 118);
    for (int n = 1; n <= SIGNALS; n++) SYS(SIGACTION, n, &header.actions[n - 1], 0, 8, 0, 0);
    SYS(SIGPROCMASK, 2, &header.mask, 0, 8, 0, 0);
    need(!FAILED(SYS(ARCH_PRCTL, 0x1002, header.thread, 0, 0, 0, 0)), 118);
    if (header.robust) SYS(SET_ROBUST_LIST, header.robust, header.robust_size, 0, 0, 0, 0);
    if (header.rseq) {
        /* The kernel registers only one that says of itself that it is not yet. */
        *(volatile uint32_t *)(header.rseq + 4) = 0xffffffffu;
        need(!FAILED(SYS(RSEQ, header.rseq, header.rseq_size, 0, 0x53053053, 0, 0)), 119);
    }
    __asm__ volatile(
        "mov 0(%0), %%rbx\nmov 8(%0), %%rbp\nmov 16(%0), %%r12\nmov 24(%0), %%r13\nmov 32(%0), %%r14\n"
        "mov 40(%0), %%r15\nmov 48(%0), %%rsp\nmov $1, %%eax\njmp *56(%0)\n" : : "D"(&header.registers));
    __builtin_unreachable();
}

static char own_stack[1 << 16] __attribute__((aligned(16), used));

/* On entry the kernel's stack holds argc, argv[0], argv[1]. */
__asm__(
    ".text\n.globl _start\n_start:\n"
    "mov 16(%rsp), %rdi\nmovabs $own_stack+65536, %rsp\nxor %ebp, %ebp\ncall become\n");

/* Writes the memory of the calling process to a file, from which restore.c makes the same process again elsewhere.
 *
 *     int take(const char *path)   0 in the process that calls it, 1 in each that is restored, -1 when it cannot be done
 *
 * It is fork() across containers: what was imported before is there, at the price of mapping a file. x86-64 only. The
 * process has one thread and no open files but 0, 1 and 2. Not kept: timers, children, shared writable memory
 * (a process that has any is refused).
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "layout.h"

/* Like setjmp: 0 now, and 1 when restore.c jumps here. */
int mark(struct registers *to);
__asm__(
    ".text\n.globl mark\nmark:\n"
    "mov %rbx, 0(%rdi)\nmov %rbp, 8(%rdi)\nmov %r12, 16(%rdi)\nmov %r13, 24(%rdi)\n"
    "mov %r14, 32(%rdi)\nmov %r15, 40(%rdi)\nlea 8(%rsp), %rax\nmov %rax, 48(%rdi)\n"
    "mov (%rsp), %rax\nmov %rax, 56(%rdi)\nxor %eax, %eax\nret\n");

static struct header header;
static struct region regions[MAX_REGIONS];
static char text[1 << 20];

static int slurp(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got, size = 0;
    if (fd < 0) return -1;
    while (size < (ssize_t)sizeof text - 1 && (got = read(fd, text + size, sizeof text - 1 - size)) > 0) size += got;
    close(fd);
    text[size] = 0;
    return size < (ssize_t)sizeof text - 1 ? 0 : -1;
}

static int note_memory(void) {
    struct mm_map *m = &header.memory;
    uint64_t f[60] = {0};
    if (slurp("/proc/self/stat")) return -1;
    char *word = strrchr(text, ')') + 3; /* behind the name and the state, which is field 3 */
    for (int number = 4; number < 53; number++) f[number] = strtoull(word, &word, 10);
    *m = (struct mm_map){.start_code = f[26], .end_code = f[27], .start_stack = f[28], .start_data = f[45],
        .end_data = f[46], .start_brk = f[47], .brk = (uint64_t)sbrk(0), .arg_start = f[48], .arg_end = f[49],
        .env_start = f[50], .env_end = f[51], .exe_fd = (uint32_t)-1};
    return m->start_brk && m->arg_start ? 0 : -1;
}

static int note_kernel(void) {
    for (int number = 1; number <= SIGNALS; number++)
        syscall(SYS_rt_sigaction, number, NULL, &header.actions[number - 1], 8);
    syscall(SYS_rt_sigprocmask, 0, NULL, &header.mask, 8);
    syscall(SYS_arch_prctl, 0x1003 /* ARCH_GET_FS */, &header.thread);
    syscall(SYS_get_robust_list, 0, &header.robust, &header.robust_size);
    header.rseq = __rseq_size ? header.thread + __rseq_offset : 0;
    header.rseq_size = __rseq_size < 32 ? 32 : __rseq_size;
    return header.thread ? 0 : -1;
}

static int note_regions(void) {
    header.regions = 0;
    if (slurp("/proc/self/maps")) return -1;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        struct region *r = &regions[header.regions];
        char flags[5] = "", path[512] = "";
        if (header.regions == MAX_REGIONS) return -1;
        if (sscanf(line, "%lx-%lx %4s %lx %*s %*s %511s", &r->start, &r->end, flags, &r->offset, path) < 4) return -1;
        if (!strcmp(path, "[vsyscall]")) continue;
        if (strlen(path) >= MAX_PATH) return -1;
        strcpy(r->path, path);
        r->prot = (flags[0] == 'r') * PROT_READ | (flags[1] == 'w') * PROT_WRITE | (flags[2] == 'x') * PROT_EXEC;
        r->kind = !strncmp(path, "[vv", 3) || !strcmp(path, "[vdso]") ? OF_KERNEL
            : !r->prot                                                ? NOTHING
            : path[0] == '/' && (flags[2] == 'x' || flags[3] == 's')  ? FROM_FILE
                                                                      : FROM_SNAPSHOT;
        if (flags[3] == 's' && (r->prot & PROT_WRITE || r->kind != FROM_FILE)) return -1;
        header.regions++;
    }
    return 0;
}

/* Pages of zeros are left out: the file has holes there. */
static int write_pages(int fd, const struct region *r) {
    static const char zeros[PAGE];
    for (uint64_t at = r->start; at < r->end; at += PAGE)
        if (memcmp((void *)at, zeros, PAGE) && pwrite(fd, (void *)at, PAGE, r->offset + at - r->start) != PAGE) return -1;
    return 0;
}

int take(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (fd < 0 || mark(&header.registers)) return fd < 0 ? -1 : 1;
    if (note_memory() || note_kernel() || note_regions()) return -1;
    uint64_t at = (sizeof header + sizeof regions + PAGE - 1) & ~(PAGE - 1);
    header.magic = MAGIC;
    for (uint64_t i = 0; i < header.regions; i++)
        if (regions[i].kind == FROM_SNAPSHOT) {
            regions[i].offset = at;
            at += regions[i].end - regions[i].start;
        }
    if (ftruncate(fd, at)) return -1;
    for (uint64_t i = 0; i < header.regions; i++)
        if (regions[i].kind == FROM_SNAPSHOT && write_pages(fd, &regions[i])) return -1;
    if (pwrite(fd, &header, sizeof header, 0) != sizeof header) return -1;
    if (pwrite(fd, regions, sizeof regions, sizeof header) != sizeof regions) return -1;
    return close(fd);
}

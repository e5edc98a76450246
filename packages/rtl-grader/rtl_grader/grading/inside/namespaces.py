"""Namespaces, mounts and limits by direct system calls. Standard library only: this runs inside the sandbox."""

import ctypes
import errno
import os
import resource
import struct

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = [*[ctypes.c_char_p] * 3, ctypes.c_ulong, ctypes.c_char_p]

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
_READ_ONLY = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV
_CLONE3 = 435
_NEW_NAMESPACES = 0x7E020000
"""All CLONE_NEW* flags but CLONE_NEWTIME, which shares its bit with a signal number."""
MACHINES = {
    "x86_64": (0xC000003E, 56, 272, 165, 166),
    "aarch64": (0xC00000B7, 220, 97, 40, 39),
    "riscv64": (0xC00000F3, 220, 97, 40, 39),
}
"""Machine -> audit number, then the numbers of `clone`, `unshare`, `mount` and `umount2`."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


def _check(result, what):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def prctl(option, value):
    _check(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl {option}")


def mount(source, target, kind, flags, data=None):
    texts = (source, target, kind, data)
    source, path, kind, data = (None if text is None else os.fsencode(text) for text in texts)
    _check(_libc.mount(source, path, kind, flags, data), f"mount {target}")


def isolate(in_user_namespace):
    """Enter new namespaces for mounts, IPC and, for future children, processes. Without root also a new
    user namespace."""
    flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC
    if in_user_namespace:
        uid = os.getuid()
        gid = os.getgid()
        # Only a dumpable process can write the maps.
        prctl(PR_SET_DUMPABLE, 1)
        _check(_libc.unshare(flags | CLONE_NEWUSER), "unshare")
        maps = {"setgroups": "deny"}
        maps["uid_map"] = f"{uid} {uid} 1"
        maps["gid_map"] = f"{gid} {gid} 1"
        for name, text in maps.items():
            with open("/proc/self/" + name, "w") as file:
                file.write(text)
        prctl(PR_SET_DUMPABLE, 0)
    else:
        _check(_libc.unshare(flags), "unshare")
    mount(None, "/", None, MS_REC | MS_PRIVATE)


def tmpfs(target, megabytes, mode="755", keep=()):
    """Mount an empty file system at `target`. Directories of `keep` below it are mounted again, read-only."""
    paths = [path for path in keep if path.startswith(target + "/")]
    handles = [os.open(path, os.O_PATH | os.O_DIRECTORY) for path in paths]
    options = f"size={megabytes}m,nr_inodes=20k,mode={mode}"
    mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, options)
    for path, handle in zip(paths, handles, strict=True):
        parent = target
        for part in path[len(target) + 1 :].split("/"):
            parent += "/" + part
            if not os.path.isdir(parent):
                os.mkdir(parent)
                os.chmod(parent, 0o755)
        bind(f"/proc/self/fd/{handle}", path, True)
        os.close(handle)


def bind(source, target, read_only):
    mount(source, target, None, MS_BIND)
    if read_only:
        mount(None, target, None, _READ_ONLY)


def protect_processes():
    """Make /proc read-only, so that no process can be written to through it, for example by `mem`."""
    mount(None, "/proc", None, _READ_ONLY | MS_NOEXEC)


def become(uid):
    """Drop all capabilities and ways to gain them, and become the user `uid` unless None."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this thread
    _check(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")
    refuse_namespaces()


def refuse_namespaces():
    """Forbid new namespaces, in which a process would be root and could reach rarely used kernel code:
    `unshare`, `mount`, `umount2`, and `clone` with such flags fail with EPERM; `clone3`, whose flags a
    filter cannot see, fails with ENOSYS."""
    architecture, clone, *forbidden = MACHINES[os.uname().machine]
    load = 0x20
    equal = 0x15
    at_least = 0x35
    any_of = 0x45
    give = 0x06  # of a classic BPF program
    program = (
        (load, 0, 0, 4),
        (equal, 0, 9, architecture),
        (load, 0, 0, 0),
        (at_least, 7, 0, 0x40000000),  # the x32 calls of x86_64
        *((equal, 6 - place, 0, number) for place, number in enumerate(forbidden)),
        (equal, 4, 0, _CLONE3),
        (equal, 0, 4, clone),
        (load, 0, 0, 16),
        (any_of, 0, 2, _NEW_NAMESPACES),
        (give, 0, 0, 0x00050000 | errno.EPERM),
        (give, 0, 0, 0x00050000 | errno.ENOSYS),
        (give, 0, 0, 0x7FFF0000),
    )
    lines = (struct.pack("=HBBI", *line) for line in program)
    code = ctypes.create_string_buffer(b"".join(lines))
    filters = _Program(len(program), ctypes.addressof(code))
    _check(_libc.prctl(PR_SET_SECCOMP, 2, ctypes.byref(filters), 0, 0), "seccomp")


def limit(limits):
    """Set per-process limits from the job's limits (rtl_grader.grading.limits). The limit of CPU time is
    above the job's, so that the check of `steps.py` over all processes comes first and reports the
    cause."""
    mega = 1 << 20
    for what, value in (
        (resource.RLIMIT_CPU, int(1.5 * limits["cpu_s"]) + 2),
        (resource.RLIMIT_AS, limits["memory_mb"] * mega),
        (resource.RLIMIT_FSIZE, limits["file_mb"] * mega),
        (resource.RLIMIT_NPROC, limits["processes"]),
        (resource.RLIMIT_NOFILE, 1024),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        if hard == resource.RLIM_INFINITY:
            # One second between SIGXCPU, which tells the cause, and SIGKILL.
            hard = value
            if what == resource.RLIMIT_CPU:
                hard = value + 1
        resource.setrlimit(what, (min(value, hard), hard))

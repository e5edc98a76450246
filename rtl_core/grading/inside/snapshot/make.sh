#!/bin/sh
# In a container of the image: makes the two programs in /snapshot, then becomes the process that is to be snapshot.
# usage: make.sh COMMAND [ARGUMENT ...]
set -e
exec >/snapshot/log 2>&1
here="$(dirname "$0")"
gcc -O2 -Wall -shared -fPIC -o /snapshot/take.so "$here/take.c"
# Far from where the kernel puts programs, heaps and libraries.
gcc -O2 -Wall -static -nostdlib -ffreestanding -fno-pie -no-pie -mcmodel=large -fno-stack-protector \
    -fno-tree-loop-distribute-patterns -Wl,-Ttext-segment=0x100000000000 -o /snapshot/restore "$here/restore.c"
export RTL_SNAPSHOT=/snapshot
exec "$@"

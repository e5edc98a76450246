# Sourced by the scripts that work in a Debian root of their own.
# debian_root ROOT PACKAGES: make ROOT anew from Debian 13 with these packages (comma-separated). As root. DEBIAN_MIRROR sets another mirror.
debian_root() {
    [ "$(id -u)" -eq 0 ] || { echo "error: debootstrap needs root" >&2; exit 2; }
    rm -rf --one-file-system "$1"
    mkdir -p "$1"
    debootstrap --variant=minbase --include="ca-certificates,$2" trixie "$1" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >"$1.log"
    umount "$1/proc" 2>/dev/null || true  # debootstrap leaves it mounted
}

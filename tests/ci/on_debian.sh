#!/usr/bin/env bash
# Builds and runs this checkout's last commit on a bare Debian: on_debian.sh SUITE [COMMAND]
#
# SUITE is bookworm (12), trixie (13) or a later one. COMMAND is for a shell in the checkout, as root; without one it is the
# README's two commands. The system is made by debootstrap in a temporary folder, has git and nothing else that Syncopate
# needs, and is removed at the end. Its mounts are in a namespace of their own, so that none is left behind. Packages are
# kept in a cache for the next time.
#
# Needs root, debootstrap, unshare, git, and the network or a full cache. Exit status: that of COMMAND; 1 where the system
# cannot be made; 2 for wrong usage.
#
# Environment:
#   DEBIAN_MIRROR    where packages come from (default: this machine's mirror, if it has Debian's, else deb.debian.org)
#   DEBIAN_CACHE     folder for packages (default: syncopate-debian in XDG_CACHE_HOME or ~/.cache)
#   DEBIAN_CCACHE    a folder for the compiler's cache, kept from run to run (default: none, all is compiled)
#   TMPDIR           where the temporary folder is made: it takes about 6 GB
set -euo pipefail

say() { printf 'on_debian: %s\n' "$*" >&2; }

(($# == 1 || $# == 2)) || { say "use: on_debian.sh SUITE [COMMAND], such as: on_debian.sh trixie './dev test'"; exit 2; }
suite=$1
command=${2:-./dev run experiments/quickstart.toml && ./dev test}
[[ $suite =~ ^[a-z]+$ ]] || { say "$suite: not the name of a suite; must be one such as bookworm or trixie"; exit 2; }
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)

# Each thing that is missing is named.
missing=()
((EUID == 0)) || missing+=("root (this is user $EUID)")
for tool in debootstrap unshare git mount; do
  PATH=$PATH:/usr/sbin:/sbin command -v "$tool" >/dev/null || missing+=("$tool (apt-get install $(
    case $tool in unshare | mount) echo util-linux ;; *) echo "$tool" ;; esac))")
done
git -C "$root" rev-parse --quiet --verify HEAD >/dev/null 2>&1 || missing+=("a git checkout with a commit at $root")
if ((${#missing[@]})); then
  say "a bare Debian cannot be made here; what is missing:"
  printf '  %s\n' "${missing[@]}" >&2
  exit 1
fi

# In a mount namespace of this script's own, which ends with it.
if [[ ${ON_DEBIAN_NAMESPACE:-} != yes ]]; then
  system=$(mktemp -d "${TMPDIR:-/tmp}/syncopate-$suite-XXXXXX")
  chmod 755 "$system"  # it becomes the root of all its users
  status=0
  inside=
  # unshare ignores all signals but KILL, which also ends what it has begun; the shell hears of one while it waits alone.
  trap '{ kill -KILL "$inside"; wait "$inside"; } 2>/dev/null || true; rm -rf --one-file-system "$system"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  ON_DEBIAN_NAMESPACE=yes ON_DEBIAN_SYSTEM=$system unshare --mount --pid --fork --kill-child \
    "${BASH_SOURCE[0]}" "$@" &
  inside=$!
  wait "$inside" || status=$?
  exit "$status"
fi
system=$ON_DEBIAN_SYSTEM
export PATH=$PATH:/usr/sbin:/sbin
cache=${DEBIAN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/syncopate-debian}
mkdir -p "$cache/$suite/base" "$cache/$suite/archives/partial"
mirror=${DEBIAN_MIRROR:-$(grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null |
  sed -n '1s/ *$//p' || true)}
mirror=${mirror:-http://deb.debian.org/debian}

say "making a bare $suite in $system (packages: $cache/$suite)"
if ! debootstrap --variant=minbase --include=ca-certificates,git --cache-dir="$cache/$suite/base" "$suite" "$system" \
    "$mirror" >"$cache/$suite/debootstrap.log" 2>&1; then
  tail -n 20 "$cache/$suite/debootstrap.log" >&2
  say "debootstrap failed (above; all of it: $cache/$suite/debootstrap.log)"
  exit 1
fi

# How this machine reaches its mirror: proxies and the like.
apt-config dump Acquire >"$system/etc/apt/apt.conf.d/90of-the-host"
echo 'Binary::apt::APT::Keep-Downloaded-Packages "true"; APT::Keep-Downloaded-Packages "true";' \
  >"$system/etc/apt/apt.conf.d/91keep-packages"
{
  echo "deb $mirror $suite main"
  echo "deb $mirror $suite-updates main"
  echo "deb ${mirror%/debian*}/debian-security $suite-security main"
} >"$system/etc/apt/sources.list"
cp -L /etc/resolv.conf "$system/etc/resolv.conf" 2>/dev/null || true

mount --make-rprivate /
mount --bind "$system" "$system"  # a mount like any root, or nobody in it could have mounts of one's own
mount -t proc proc "$system/proc"
mount --rbind /sys "$system/sys"
mount --rbind /dev "$system/dev"
mount --bind "$cache/$suite/archives" "$system/var/cache/apt/archives"
environment=(HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  TERM="${TERM:-dumb}" CI="${CI:-}")
if [[ ${DEBIAN_CCACHE:-} ]]; then
  mkdir -p "$DEBIAN_CCACHE" "$system/var/cache/ccache"
  mount --bind "$DEBIAN_CCACHE" "$system/var/cache/ccache"
  environment+=(CCACHE_DIR=/var/cache/ccache)
fi
for variable in SYNCOPATE_WERROR JOBS; do
  if [[ ${!variable:-} ]]; then environment+=("$variable=${!variable}"); fi
done

git clone --quiet --no-hardlinks "$root" "$system/srv/syncopate"
say "in it, at commit $(git -C "$root" rev-parse --short HEAD): $command"
status=0
chroot "$system" /usr/bin/env -i "${environment[@]}" bash -c "cd /srv/syncopate && { $command
}" </dev/null || status=$?
say "$suite: $( ((status == 0)) && echo passed || echo "failed with status $status")"
exit "$status"

#!/bin/sh
# Build a server from its source, in the release that is named: packaging/server.sh redis-7.4.1|valkey-8.0.1 DIRECTORY
# The program is in the directory afterwards, under its usual name. Needs git, make and a C compiler.
set -eu
name=${1%%-*}
release=${1#*-}
case $name in
  redis) repository=redis/redis ;;
  valkey) repository=valkey-io/valkey ;;
  *) echo "$0: not a server and its release, such as redis-7.4.1: $1" >&2; exit 2 ;;
esac
source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
git -c advice.detachedHead=false clone --quiet --depth 1 --branch "$release" "${SOURCES:-https://github.com}/$repository" "$source"
make -C "$source" -j "$(getconf _NPROCESSORS_ONLN)" MALLOC=libc > "$source/log" 2>&1 || { tail -20 "$source/log" >&2; exit 1; }
mkdir -p "$2"
cp "$source/src/$name-server" "$2/"

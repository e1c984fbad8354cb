#!/usr/bin/env bash
# What a newcomer does, from a clean clone to the first explained kernel, with the seconds of each step.
#
#     bash tools/newcomer.sh              # everything, in under five minutes
#     bash tools/newcomer.sh PYTHON       # with the Python of an environment that has NumPy and Numba
#
# The clone holds what is committed here. Compiled kernels are kept in the clone, so none is found.
set -euo pipefail

MOST_SECONDS=300
python=${1:+$(cd "$(dirname "$1")" && pwd)/$(basename "$1")}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
began=$SECONDS

step() { # step NAME COMMAND...: run it in silence; on failure print what it said
    local name=$1 start=$SECONDS; shift
    "$@" > "$folder/said" 2>&1 < /dev/null || { cat "$folder/said"; echo "failed: $name"; exit 1; }
    printf '%4d s  %s\n' $((SECONDS - start)) "$name"
}

explains() { # the report names the kernel's threads, and shows its text
    "$python" -m minisitch explain tutorials/00_hello.py:softmax --arg 'x=f32[64,1000]' --target step > "$folder/report"
    grep -q 'blocks x' "$folder/report" && grep -q 'cuda.syncthreads()' "$folder/report"
}

step "clone" git clone --quiet --depth 1 "file://$PWD" "$folder/clone"
cd "$folder/clone"
export MINISITCH_CACHE="$folder/cache" PYTHONPATH="$PWD"
if [ -z "$python" ]; then
    step "make an environment and install" make VENV=.venv .venv/installed
    python="$PWD/.venv/bin/python"
else
    echo "   -    make an environment and install: skipped, $python is there"
fi
step "python -m minisitch doctor" "$python" -m minisitch doctor
step "python tutorials/00_hello.py" "$python" tutorials/00_hello.py
step "python -m minisitch explain: the first explained kernel" explains
printf '%4d s  from a clone to the first explained kernel, of at most %d\n' $((SECONDS - began)) $MOST_SECONDS
[ $((SECONDS - began)) -lt $MOST_SECONDS ]

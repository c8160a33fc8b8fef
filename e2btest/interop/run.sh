#!/usr/bin/env bash
# Runs the official JavaScript SDKs against cmd/e2b-local, then stops the
# emulator and sees that it ends well and leaves no process behind.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)

# A developer without node may skip this; CI may not.
unable() {
  if [[ ${CI:-} == true ]]; then
    echo "interop: $1" >&2
    exit 1
  fi
  echo "interop skipped: $1"
  exit 0
}
[[ $(uname -s) == Linux ]] || unable "the emulator serves /data in sandboxes with namespaces only, which needs Linux"
command -v node >/dev/null || unable "node is not installed"
command -v npm >/dev/null || unable "npm is not installed"
node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 18) ? 0 : 1)' ||
  unable "the SDK needs node 20.18 or newer, this is $(node --version)"

# What a shell may have set for the real service must not reach the SDK.
unset E2B_API_KEY E2B_ACCESS_TOKEN E2B_API_URL E2B_SANDBOX_URL E2B_DOMAIN E2B_DEBUG E2B_VALIDATE_API_KEY

tmp=$(mktemp -d)
emulator=
cleanup() {
  if [[ -n $emulator ]] && kill -KILL "$emulator" 2>/dev/null; then
    wait "$emulator" 2>/dev/null || true
  fi
  rm -rf "$tmp"
}
trap cleanup EXIT

(cd "$root" && go build -o "$tmp/e2b-local" ./cmd/e2b-local)

# Outside the repository, since the go command would walk into node_modules.
cp "$here/package.json" "$here"/*.mjs "$tmp/"
for try in 1 2 3; do
  (cd "$tmp" && npm install --no-package-lock --no-audit --no-fund --ignore-scripts --loglevel=error) && break
  [[ $try -lt 3 ]] || unable "npm could not install the SDK"
  sleep 5
done
for name in e2b-pinned code-pinned e2b @e2b/code-interpreter; do
  echo "$name is version $(node -p "require('$tmp/node_modules/$name/package.json').version")"
done

"$tmp/e2b-local" >"$tmp/env" 2>"$tmp/log" &
emulator=$!

fail() {
  echo "FAIL  $1"
  echo "--- log of e2b-local, last lines"
  tail -n 50 "$tmp/log"
  exit 1
}

for ((i = 0; ; i++)); do
  [[ $(grep -c '^export ' "$tmp/env") -ge 3 ]] && break
  kill -0 "$emulator" 2>/dev/null || fail "e2b-local ended before it served"
  [[ $i -lt 300 ]] || fail "e2b-local printed no three export lines in 30 s"
  sleep 0.1
done
[[ $(grep -cvE '^export (E2B_API_URL|E2B_SANDBOX_URL|E2B_API_KEY)=' "$tmp/env") -eq 0 ]] ||
  fail "e2b-local printed more than its three export lines: $(cat "$tmp/env")"
eval "$(cat "$tmp/env")"

# The word in the command lines of processes that the script leaves running.
mark=interop-left-$$-$RANDOM
(
  cd "$tmp"
  export E2B_INTEROP_MARK=$mark E2B_INTEROP_README=$root/README.md NO_PROXY=127.0.0.1,localhost,::1
  node interop.mjs
) ||
  fail "the JavaScript SDK found differences"

# left prints the processes that belong to the emulator's sandboxes: those
# with the word, and those that run its binary, as the first process of a
# sandbox does. The emulator itself is $1.
left() {
  local dir words
  for dir in /proc/[0-9]*; do
    [[ ${dir#/proc/} != "$1" ]] || continue
    # A process may end at any moment. Built-in commands only: one process for
    # each line would make this slow, and show up in it.
    { mapfile -d '' -t words <"$dir/cmdline"; } 2>/dev/null || continue
    if [[ ${words[*]-} == *"$mark"* || $dir/exe -ef $tmp/e2b-local ]]; then
      echo "${dir#/proc/}: ${words[*]-}"
    fi
  done
}

rest=$(left "$emulator")
[[ $(grep -c "$mark" <<<"$rest") -ge 2 ]] || fail "the processes that were left running are not there: $rest"

kill -TERM "$emulator"
for ((i = 0; i < 300; i++)); do
  kill -0 "$emulator" 2>/dev/null || break
  sleep 0.1
done
kill -0 "$emulator" 2>/dev/null && fail "e2b-local runs on 30 s after SIGTERM"
status=0
wait "$emulator" || status=$?
emulator=
[[ $status -eq 0 ]] || fail "e2b-local ended with status $status after SIGTERM"
echo "ok    e2b-local ends with status 0 on SIGTERM"

# The kernel may need a moment to reap what was killed.
for ((i = 0; i < 50; i++)); do
  rest=$(left 0)
  [[ -n $rest ]] || break
  sleep 0.1
done
[[ -z $rest ]] || fail "processes are left: $rest"
echo "ok    no process is left"

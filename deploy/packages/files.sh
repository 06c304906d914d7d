#!/bin/sh
# Writes the man pages and the completions for packages into build/release.
set -e
out=build/release
rm -rf "$out"
mkdir -p "$out/man" "$out/completions"
go build -o "$out/gateway" ./cmd/gateway
"$out/gateway" man "$out/man"
"$out/gateway" completion bash >"$out/completions/gateway.bash"
"$out/gateway" completion zsh >"$out/completions/_gateway"
"$out/gateway" completion fish >"$out/completions/gateway.fish"
rm "$out/gateway"

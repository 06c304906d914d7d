# make check is what a change must pass; .ci/run runs the same on a clean checkout.

.PHONY: check test bench chaos soak fuzz build podman wine

build:
	go build -o bin/gateway ./cmd/gateway

check:
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
	go vet ./...
	go tool staticcheck ./...
	@unused=$$(go run golang.org/x/tools/cmd/deadcode@v0.52.0 -test ./...); [ -z "$$unused" ] || { echo "$$unused"; exit 1; }
	go test -race ./...

test:
	go test ./...

# Containers that ignore their end, with a real engine. It needs podman, runc and busybox (Debian:
# podman runc busybox-static) and leave to run containers.
podman:
	go test -tags podman ./integration -run TestPodman -v

# The gateway for Windows, under Wine (Debian: wine64).
wine:
	go test -count=1 -tags wine ./integration/windows -v

# Ratios against a relay that only copies bytes, in the same run.
bench:
	go run ./integration/bench

# What the gateway promises, held against everything that goes wrong (docs/reliability.md).
chaos:
	go run ./integration/chaos

# An hour of moderate load, and whether anything grows.
soak:
	go run ./integration/chaos -soak -for 1h -json soak.json

# Five minutes for each reader of outside bytes that the clients reach, and of the state files.
fuzz:
	go test ./internal/wire -run '^$$' -fuzz '^FuzzParse$$' -fuzztime 5m
	go test ./internal/transport -run '^$$' -fuzz '^FuzzLines$$' -fuzztime 5m
	go test ./internal/transport/http1 -run '^$$' -fuzz '^FuzzResponse$$' -fuzztime 5m
	go test ./internal/httpserver -run '^$$' -fuzz '^FuzzPost$$' -fuzztime 5m
	go test ./backends/internal/catalogcache -run '^$$' -fuzz '^FuzzCatalogCache$$' -fuzztime 5m

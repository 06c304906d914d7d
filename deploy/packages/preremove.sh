#!/bin/sh
# deb calls it with "remove" or "upgrade", rpm with the number of versions that remain.
case "$1" in
upgrade | 1) ;;
*) if [ -d /run/systemd/system ]; then systemctl disable --now mcp-gateway || true; fi ;;
esac

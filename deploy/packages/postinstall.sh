#!/bin/sh
# The service is not enabled: systemctl enable --now mcp-gateway
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi

package gateway

import "mcpgateway/internal/quota"

// perPrincipalLimit returns how much of limit one principal may use: half, so that one principal
// leaves room for the others; everything without authentication, where all clients are the one
// principal "".
func perPrincipalLimit(principal string, limit int) int {
	if principal == "" {
		return limit
	}
	return quota.Half(limit)
}

// acquireShare counts one more item of a principal, unless limit or its perPrincipalLimit is
// reached.
func acquireShare(c *quota.Counter[string], principal string, limit int) bool {
	return c.Acquire(principal, limit, perPrincipalLimit(principal, limit)) == quota.None
}

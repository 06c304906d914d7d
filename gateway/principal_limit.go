package gateway

import "mcpgateway/internal/quota"

// perPrincipalLimit returns the share of limit that one principal may use: half of it, so that one
// principal leaves room for the others. Without authentication, all clients have the principal "",
// and the share is the whole limit.
func perPrincipalLimit(principal string, limit int) int {
	if principal == "" {
		return limit
	}
	return quota.Half(limit)
}

// acquireShare counts one more item of a principal. It returns false if all principals together
// have reached limit, or the principal has reached its perPrincipalLimit.
func acquireShare(c *quota.Counter[string], principal string, limit int) bool {
	return c.Acquire(principal, limit, perPrincipalLimit(principal, limit)) == quota.None
}

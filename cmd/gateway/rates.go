package main

import (
	"crypto/sha256"

	"mcpgateway/internal/config"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/ratelimit"
)

// setBackendRates sets the rate limits of the profiles and backends of a configuration.
func setBackendRates(l *ratelimit.RateLimiter, c *config.Config) {
	profiles, backends := make(map[string]config.Rate), make(map[string]config.Rate)
	for name, p := range c.Profiles {
		profiles[name] = p.Rate
	}
	for _, b := range c.Backends {
		if b.Enabled && b.Misconfigured == "" { // the rate of any other backend may be invalid
			backends[b.Name] = b.Rate
		}
	}
	l.SetProfiles(profiles)
	l.SetBackends(backends)
}

// setTokenRates sets the rate limits of the tokens that the HTTP server accepts.
func setTokenRates(l *ratelimit.RateLimiter, tokens []config.Token) {
	rates := make(map[string]config.Rate)
	for _, t := range tokens {
		client := principal.FromToken(principal.TokenIdentity{Name: t.Name,
			Sum: sha256.Sum256([]byte(t.Text))})
		rates[client.Key()] = t.Rate
	}
	l.SetTokens(rates)
}

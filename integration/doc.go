// Package integration tests the built gateway from outside: the binary of cmd/gateway, run against MCP servers and
// clients that other people wrote. It knows the gateway only by its promised face (command line, YAML, stdio, HTTP,
// audit file). Two kinds of tests have it in their own process instead (inside_test.go), where the race detector sees it and
// what it leaves behind can be counted.
//
// The real peers come from npm, pinned in package.json; the tests install them themselves, once. What nobody ships -
// a backend that never answers, one that dies, a model for Claude Code to talk to - is played by the test binary.
//
//	npm_test.go, gateway_test.go      what has to be there: node_modules, a Node new enough, the built binary
//	setup_test.go, proc_test.go       one gateway with its config, audit file and child processes
//	raw_test.go, rawhttp_test.go      clients that keep every byte they were sent
//	servers_test.go, actors_test.go   backends: the real ones, and parts the test binary plays
//	claude_test.go, fakemodel_test.go Claude Code and the model it thinks it talks to
//	inside_test.go, visitor_test.go   the gateway in this process; a raw client that hears all of its streams
//	tasks_test.go                     a server of 2026-07-28 with tasks, and what the suite says of it
//	talker_test.go, owners_test.go    whose everything is, if a backend is shared
//	leak_test.go                      what a great many sessions leave behind
//	rawstateless_test.go              clients of 2026-07-28 that keep every byte, over HTTP and at a pipe
//	twin_test.go                      a server that says the same odd bytes in either era
//	conformance_test.go               the official conformance suites, and what they say
//	conformance_peers_test.go         what they are let loose on: a server, the gateway's door, a client
//	conformance_cross_test.go         the checks that cannot pass between the eras, each with its reason
//	matrix_*_test.go                  clients and servers of four SDKs, of both eras, each with each
//	*_gateway_test.go                 the tests of the gateway; the others prove the harness without it
package integration

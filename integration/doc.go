// Package integration tests the built gateway from outside: the binary of cmd/gateway, run with
// MCP servers and clients of third parties. It uses only the gateway's public interface (command
// line, YAML, stdio, HTTP, audit file). Two kinds of tests run the gateway in their own process
// instead (inprocess_test.go), where the race detector covers it and leaks can be counted.
//
// The real servers and clients come from npm, with versions pinned in package.json; the tests
// install them once. Processes that nobody publishes, such as a backend that never responds or one
// that dies, are roles of the test binary. A fake model API serves Claude Code.
//
//	npm_test.go, gateway_test.go      prerequisites: node_modules, a recent Node, the built binary
//	setup_test.go                     one gateway with its configuration, audit file and processes
//	process_marker_test.go            finds the processes of a test
//	raw_stdio_test.go                 a stdio client that keeps every byte it receives
//	raw_http_test.go                  the same over HTTP
//	raw_modern_test.go                the same for 2026-07-28, over HTTP and stdio
//	secret_search_test.go             searches what the gateway writes for secrets of the tests
//	process_sampler_test.go           the command lines of all processes, for the same search
//	stream_client_test.go             an HTTP client that reads all of its streams at once
//	servers_test.go                   backends: servers from npm
//	helper_processes_test.go          backends: roles of the test binary
//	claude_test.go, fakemodel_test.go Claude Code and its fake model API
//	inprocess_test.go, leak_test.go   the gateway in this process; leaks of many sessions
//	tasks_test.go                     a server of 2026-07-28 with tasks, and its conformance
//	attribution_server_test.go        a server that sends many messages during each call
//	fidelity_server_test.go           a server that sends the same odd bytes in either generation
//	conformance_test.go               the official conformance suites and their results
//	conformance_peers_test.go         peers of the suites: a server, the gateway, a client
//	conformance_exceptions_test.go    checks that cannot pass across the generations, with reasons
//	matrix_*_test.go                  clients and servers of four SDKs, each with each
//	*_gateway_test.go                 tests of the gateway; the other files also test the harness
package integration

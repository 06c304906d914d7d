// Package faults implements a faulty MCP server for tests: on stdio as the program faults/stub, and
// over HTTP as [HTTPStub]. Each fault is described by a [Fault]: in the [Script] of the server, for
// messages of a method; in the arguments of the tool "do", for one call; or in a call of
// [HTTPStub.FailNext]. The test therefore controls when a fault occurs, and a run can be repeated
// from a seed.
//
//	stub -script '{"name":"s1","on":{"tools/list":[{"fault":"die","at":"middle"}]}}'
//	tools/call do {"fault":"noise","where":"between","nonce":"returned as by echo"}
//
// Its tools are
//
//	echo  returns {"stub", "pid", "got"}: the server's name and process, and the exact arguments
//	slow  is echo after {"ms": 100}, with {"steps": 3} progress notifications if the request
//	      has a token; it can be cancelled
//	do    is echo with a fault {"fault": …}, or several {"deeds": [{"fault": …}, …]}
//
// All three return the same result if the fault permits. The package composes its messages without
// an MCP library, so that they can be invalid. It is for tests only.
package faults

// Package faults is a server that does what a server should not: on stdio, as the
// program in faults/stub, and over HTTP, as [NewHTTPStub]. What it does wrong is said in
// one language, [Fault], in two places: in its [Script], for a method whenever that
// comes, and in the arguments of its tool "do", for that call alone. So a client
// decides which fault comes when, and a seed replays a run.
//
//	stub -script '{"name":"s1","on":{"tools/list":[{"fault":"die","at":"middle"}]}}'
//	tools/call do {"fault":"noise","where":"between","nonce":"what echo returns, too"}
//
// Its tools are
//
//	echo  returns {"stub", "pid", "got"}: who answers, and the bytes of its arguments, verbatim
//	slow  is echo after {"ms": 100}, with {"steps": 3} notifications of progress if a token came; it can be cancelled
//	do    is echo with a Fault done: {"fault": …}, or several, {"deeds": [{"fault": …}, …]}
//
// All three answer with the same result if the fault lets them. Every byte is written by
// hand. It refuses to be anything but a peer for tests.
package faults

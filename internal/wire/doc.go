// Package wire is the bytes of JSON-RPC 2.0 as MCP uses it: it finds the parts
// of a message, replaces some of them, and leaves every other byte as it came.
//
// [Parse] walks a message once. That walk validates the JSON, classifies the
// message and notes where the parts lie that a gateway has to look at: the id,
// the method, a tool's name, a progress token. Nothing is decoded and nothing is
// copied. [Message.Splice] makes the message that goes on, with an id or a name
// exchanged; unknown members, key order, number text and escapes stay as they
// were sent.
//
// The package refuses what two readers could read in two ways: a member it looks
// at that stands twice, or in another case ("Method"), and invalid UTF-8. It
// refuses what is too much: values nested deeper than 1000, batches of more than
// 4096 messages, ids and progress tokens of more than 4 KiB, texts of more than
// 1 GiB. It does no I/O and knows no MCP beyond the names of the members it looks
// for.
package wire

// Package wire reads and edits the bytes of JSON-RPC 2.0 messages as MCP uses them. It finds the
// parts of a message, replaces some of them, and leaves all other bytes unchanged.
//
// [Parse] scans a message once: it validates the JSON, classifies the message and records the
// offsets of the parts that a gateway needs, such as the id, the method, a tool's name and a
// progress token. It decodes and copies nothing. [Message.Splice] returns a message with some
// parts replaced, for example the id or the name; unknown members, key order, number text and
// escapes stay as they were sent.
//
// The package rejects ambiguous messages: a known member that occurs twice or in another case
// ("Method"), and invalid UTF-8. It rejects messages beyond these bounds: nesting deeper than
// 1000, batches of more than 4096 messages, ids and progress tokens of more than 4 KiB, texts of
// more than 1 GiB. It does no I/O. The names of the members and methods that it looks for are all
// it knows of MCP.
package wire

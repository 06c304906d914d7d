// Package wire reads and edits the bytes of JSON-RPC 2.0 messages as MCP uses them. It finds the
// parts of a message, replaces some of them, and leaves all other bytes unchanged.
//
// [Parse] scans a message once: it validates the JSON, classifies the message and records the
// offsets of the parts that a gateway needs, such as the id, the method, a tool's name and a
// progress token. Parse does not copy the text, unless it repairs a message; see [Parse].
// [Message.Splice] returns a message with some parts replaced, for example the id or the name;
// unknown members, key order, number text and escapes stay as they were sent.
//
// Parse rejects invalid UTF-8 and ambiguous messages, in which a member that it reads occurs twice
// or in another case ("Method"). Results are an exception: their members may be ambiguous. Parse
// also rejects messages that exceed a bound: nesting deeper than 1000, batches of more than 4096
// messages, ids and progress tokens of more than 4 KiB, texts of more than 1 GiB. The package does
// no I/O. Its only knowledge of MCP is the names of members and methods.
package wire

// Package auditlog reads audit files: it finds the records of a Query in a file and in the files
// that were rotated before it, compressed or not, and follows a file that grows. It also reads
// audit records from logs in the formats json and text.
//
//	Open ─ Files ─ Last (the position of the last n records) ─ Each ─ Follow
//	               └ blocks of whole lines ─ matcher ─ RecordLine
//
// A line that the Query excludes is not decoded: the matcher searches a block of lines for text
// that each matching line contains. Times skip whole files, and a binary search skips the beginning
// and the end of a file, because records are written nearly in the order of their times; see
// disorder. Memory is bounded whatever the files contain; see maxLine.
//
// The files of a Files are opened once, so that their rotation and removal do not disturb it. It is
// not safe for concurrent use.
package auditlog

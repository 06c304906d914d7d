// Package procgroup starts child processes, and prevents their descendants from outliving this
// process: each child runs in a process group of its own; on Windows, in a job object.
//
// On Unix a watchdog kills the group when this process dies. On Linux the package also finds
// descendants that have left their group (orphans), by a marker in their environment, and kills
// them when the child has ended; see [BecomeSubreaper]. The decisions are described in
// docs/decisions/003-process-group-watchdog.md and docs/decisions/021-orphaned-processes.md.
//
// The package does not depend on MCP, and does not handle pipes or restarts.
package procgroup

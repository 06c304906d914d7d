// Package procgroup starts programs in process groups of their own and ends whole groups: on Unix with
// a watchdog process that kills the group when this process dies, on Linux also the processes that left
// their group, on Windows with job objects.
package procgroup

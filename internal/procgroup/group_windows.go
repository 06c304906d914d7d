package procgroup

import (
	"context"
	"os/exec"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// A Group is the job object of a child. Windows kills the processes in the job when the last handle
// of the job is closed, which also happens when this process dies.
type Group struct {
	mu  sync.Mutex
	job windows.Handle // 0 after Wait
}

// Start starts cmd in a new Group. Batch files are run by cmd.exe.
func Start(cmd *exec.Cmd) (*Group, error) {
	if isBatch(cmd.Path) {
		if err := runWithCmdExe(cmd); err != nil {
			return nil, err
		}
	}
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, err
	}
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{}
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		windows.CloseHandle(job)
		return nil, err
	}
	g := &Group{job: job}
	if err := g.assign(cmd.Process.Pid); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		windows.CloseHandle(job)
		return nil, err
	}
	return g, nil
}

// Run starts cmd in a Group and waits for its end, at most until ctx is done. It then kills the
// rest of the job. The error is that of the start; the exit status is in cmd.ProcessState.
func Run(ctx context.Context, cmd *exec.Cmd) error {
	g, err := Start(cmd)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, g.Kill)
	defer stop()
	g.Wait(cmd)
	return nil
}

// runWithCmdExe changes cmd so that cmd.exe runs its batch file.
func runWithCmdExe(cmd *exec.Cmd) error {
	system, err := windows.GetSystemDirectory()
	if err != nil {
		return err
	}
	shell := system + `\cmd.exe`
	line, err := batchLine(shell, cmd.Path, cmd.Args[1:])
	if err != nil {
		return err
	}
	cmd.Path, cmd.SysProcAttr = shell, &syscall.SysProcAttr{CmdLine: line}
	return nil
}

// assign assigns a process to the job.
func (g *Group) assign(pid int) error {
	process, err := windows.OpenProcess(
		windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(pid))
	if err != nil {
		return err
	}
	defer windows.CloseHandle(process)
	return windows.AssignProcessToJobObject(g.job, process)
}

// Wait waits for the child and kills the rest of its job.
func (g *Group) Wait(cmd *exec.Cmd) {
	_ = cmd.Wait()
	g.Kill()
	g.mu.Lock()
	defer g.mu.Unlock()
	windows.CloseHandle(g.job)
	g.job = 0
}

// Terminate kills the job: console programs have no other signal.
func (g *Group) Terminate() { g.Kill() }

// Kill kills the processes in the job.
func (g *Group) Kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.job != 0 {
		_ = windows.TerminateJobObject(g.job, 1)
	}
}

// HasOrphans returns false, because processes cannot leave a job.
func (g *Group) HasOrphans() bool { return false }

// KillOrphans does nothing.
func (g *Group) KillOrphans(time.Duration) {}

package transport

import (
	"os/exec"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// A group is the job object that a child runs in. Windows kills what is in it
// when the last handle is closed, so also when this process dies.
type group struct {
	mu  sync.Mutex
	job windows.Handle // 0 once it is released
}

func startGroup(cmd *exec.Cmd) (*group, error) {
	if isBatch(cmd.Path) {
		if err := byShell(cmd); err != nil {
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
	g := &group{job: job}
	if err := g.adopt(cmd.Process.Pid); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		windows.CloseHandle(job)
		return nil, err
	}
	return g, nil
}

// byShell has cmd.exe run a batch file.
func byShell(cmd *exec.Cmd) error {
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

func (g *group) adopt(pid int) error {
	process, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(pid))
	if err != nil {
		return err
	}
	defer windows.CloseHandle(process)
	return windows.AssignProcessToJobObject(g.job, process)
}

// wait reaps the child and sees to it that nothing of its job stays behind.
func (g *group) wait(cmd *exec.Cmd) {
	_ = cmd.Wait()
	g.kill()
	g.mu.Lock()
	defer g.mu.Unlock()
	windows.CloseHandle(g.job)
	g.job = 0
}

// terminate does what kill does: a console program has no other signal.
func (g *group) terminate() { g.kill() }

func (g *group) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.job != 0 {
		_ = windows.TerminateJobObject(g.job, 1)
	}
}

// left and sweep find nothing: nobody leaves a job.
func (g *group) left() bool          { return false }
func (g *group) sweep(time.Duration) {}

package transport

import (
	"os/exec"
	"unsafe"

	"golang.org/x/sys/windows"
)

// A group is the job object that a child runs in. Windows kills what is in it
// when the last handle is closed, so also when this process dies.
type group struct {
	job windows.Handle
	cmd *exec.Cmd
}

func startGroup(cmd *exec.Cmd) (group, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return group{}, err
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
		return group{}, err
	}
	g := group{job: job, cmd: cmd}
	if err := g.adopt(cmd.Process.Pid); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		windows.CloseHandle(job)
		return group{}, err
	}
	return g, nil
}

func (g group) adopt(pid int) error {
	process, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(pid))
	if err != nil {
		return err
	}
	defer windows.CloseHandle(process)
	return windows.AssignProcessToJobObject(g.job, process)
}

// terminate does what kill does: a console program has no other signal.
func (g group) terminate() { _ = windows.TerminateJobObject(g.job, 1) }

func (g group) kill() { _ = windows.TerminateJobObject(g.job, 1) }

// release gives the job back once its processes are gone.
func (g group) release() { windows.CloseHandle(g.job) }

//go:build unix

package integration

import (
	"bytes"
	"context"
	"hash/maphash"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// A processSampler reads the command lines of all processes again and again, as ps shows them to
// other users, and the environments of the processes of the tests. It keeps them in files, because
// some tests measure the memory of this process. Only Linux has /proc.
type processSampler struct {
	end                    context.CancelFunc
	done                   sync.WaitGroup
	commands, environments *os.File
	marker                 []byte // in the environment of each process of the tests

	mu   sync.Mutex
	seed maphash.Seed
	seen map[uint64]bool // hashes of the texts in the files; guarded by mu
}

const (
	sampleInterval = 25 * time.Millisecond
	// A new process is read in each of the first samples, because it executes another program soon,
	// and then rarely, because a program can change its command line.
	firstSamples, laterSamples = 5, 100
)

// startProcessSampler starts a sampler that runs until stop. Its files are in dir. Environments
// that contain marker are kept.
func startProcessSampler(dir, marker string) (*processSampler, error) {
	p := &processSampler{marker: []byte(marker), seed: maphash.MakeSeed(),
		seen: make(map[uint64]bool)}
	var err error
	if p.commands, err = os.CreateTemp(dir, "commands"); err != nil {
		return nil, err
	}
	if p.environments, err = os.CreateTemp(dir, "environments"); err != nil {
		return nil, err
	}
	var ctx context.Context
	ctx, p.end = context.WithCancel(context.Background())
	p.done.Go(func() { p.run(ctx) })
	return p, nil
}

// stop ends the sampler, and returns when it has ended.
func (p *processSampler) stop() {
	p.end()
	p.done.Wait()
}

// texts returns the different command lines and environments until now, one after the other, and
// their number.
func (p *processSampler) texts() (commands, environments []byte, n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if commands, err = os.ReadFile(p.commands.Name()); err == nil {
		environments, err = os.ReadFile(p.environments.Name())
	}
	return commands, environments, len(p.seen), err
}

func (p *processSampler) run(ctx context.Context) {
	samples := make(map[int]int) // by process id
	tick := time.NewTicker(sampleInterval)
	defer tick.Stop()
	for {
		dir, err := os.Open("/proc")
		if err != nil {
			return
		}
		names, _ := dir.Readdirnames(-1)
		dir.Close()
		running := make(map[int]int, len(samples))
		for _, name := range names {
			pid, err := strconv.Atoi(name)
			if err != nil {
				continue
			}
			running[pid] = samples[pid] + 1
			if n := samples[pid]; n < firstSamples || n%laterSamples == 0 {
				p.read(filepath.Join("/proc", name))
			}
		}
		samples = running
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// read reads the files of a process, which may have ended.
func (p *processSampler) read(dir string) {
	command, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
	p.add(p.commands, command)
	environment, _ := os.ReadFile(filepath.Join(dir, "environ"))
	if bytes.Contains(environment, p.marker) {
		p.add(p.environments, environment)
	}
}

func (p *processSampler) add(to *os.File, text []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if hash := maphash.Bytes(p.seed, text); !p.seen[hash] {
		p.seen[hash] = true
		_, _ = to.Write(append(text, '\n')) // texts has the error of a full disk
	}
}

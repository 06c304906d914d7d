//go:build !unix

package faults

import "os/exec"

func ownSession(*exec.Cmd) {}

// Command stub is the program of the faulty server on stdio; see package faults.
package main

import (
	"os"

	"mcpgateway/internal/mcptest/faults"
)

func main() { os.Exit(faults.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

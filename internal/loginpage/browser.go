package loginpage

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// Open opens an http or https URL: with the program in the variable BROWSER, or else with
// the one that the operating system uses for such URLs. It does not wait for the browser. No shell
// sees the URL.
func Open(url string) error {
	for _, command := range browserCommands() {
		path, err := exec.LookPath(command[0])
		if err != nil {
			continue
		}
		cmd := exec.Command(path, append(command[1:], url)...)
		if err := cmd.Start(); err != nil {
			return err
		}
		go cmd.Wait()
		return nil
	}
	return errors.New("no program for it was found")
}

// browserCommands returns the commands to try, without the URL.
func browserCommands() [][]string {
	if own := strings.Fields(os.Getenv("BROWSER")); len(own) > 0 {
		return [][]string{own}
	}
	switch runtime.GOOS {
	case "windows":
		return [][]string{{"rundll32", "url.dll,FileProtocolHandler"}}
	case "darwin":
		return [][]string{{"open"}}
	}
	return [][]string{{"xdg-open"}, {"wslview"}, {"x-www-browser"}, {"www-browser"}}
}

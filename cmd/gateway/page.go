package main

import (
	"fmt"
	"html"
	"net/url"
	"path/filepath"

	"github.com/spf13/cobra"

	"mcpgateway/internal/adminapi"
	"mcpgateway/internal/atomicfile"
	"mcpgateway/internal/loginpage"
)

// pageFile is the name of the file, in the state directory, that logs a browser in.
const pageFile = "open-page.html"

// pageForm sends a code to the gateway. The code is in a file that only this user can read, and
// not in a URL, which the history of the browser and the list of processes would show. Its values
// are the URL of the page and the code, both escaped.
const pageForm = `<!DOCTYPE html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<title>MCP gateway</title>
<form method="post" action="%slogin">
<input type="hidden" name="code" value="%s">
<button>Open the page of the gateway</button>
</form>
<script>document.forms[0].submit()</script>
`

func pageCommand(c *cli) *cobra.Command {
	choice := gatewayChoice{source: &c.source}
	var printOnly bool
	cmd := &cobra.Command{
		Use:   "page",
		Short: "Open the web page of a running gateway, logged in",
		Long: `page opens the web page of a running gateway in a browser, which is then logged in. The
gateway serves the page if its configuration has an address for it:

    admin: {listen: "127.0.0.1:7421"}

--print prints the address instead; there the page asks for the admin token.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			chosen, err := choice.choose(cmd.Context())
			if err != nil {
				return err
			}
			page, err := chosen[0].PageCode(cmd.Context())
			if err != nil {
				return apiError(err)
			}
			if printOnly {
				_, err = fmt.Fprintln(c.out, page.URL)
				return err
			}
			return c.openPage(page, &chosen[0])
		},
	}
	cmd.Flags().StringVar(&choice.one, "gateway", "",
		"the gateway `ID`: its id, its process id, or its configuration file")
	cmd.Flags().BoolVar(&printOnly, "print", false, "print the address, and open nothing")
	return cmd
}

// openPage opens a file that logs the browser in. If there is no browser, it prints the address.
func (c *cli) openPage(page *adminapi.PageCode, g *chosenGateway) error {
	form := fmt.Sprintf(pageForm, html.EscapeString(page.URL), html.EscapeString(page.Code))
	dir := g.StateDir()
	path := filepath.Join(dir, pageFile)
	if err := atomicfile.Write(path, []byte(form), atomicfile.Options{}); err != nil {
		return err
	}
	address := url.URL{Scheme: "file", Path: filepath.ToSlash(path)}
	if err := loginpage.Open(address.String()); err != nil {
		fmt.Fprintf(c.err, "gateway: no browser was opened: %v\n"+
			"open %s in a browser; the page asks for the token in the file %s\n",
			err, page.URL, filepath.Join(dir, adminTokenFile))
		return nil
	}
	_, err := fmt.Fprintf(c.out, "opened %s in a browser\n", page.URL)
	return err
}

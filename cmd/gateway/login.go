package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/oauthclient"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/reload"
)

func loginCommand(c *cli) *cobra.Command {
	noBrowser, principalName := false, ""
	timeout := startTimeout(defaultTimeout)
	cmd := &cobra.Command{
		Use:   "login NAME",
		Short: "Log in to a server that requires OAuth",
		Long: `login opens the browser at the login page of the server NAME, waits until you have
logged in, stores the login, and prints what the server offers. A running gateway uses the
login at once.

With --no-browser, login prints the link of the page, for a browser on another machine. After the
login that browser shows an error, because it cannot reach this machine. Copy the address
of that page (http://127.0.0.1:...) and paste it here.

With oauth.per: principal, each client of the gateway has a login of its own. --principal names
the client: the name of its token in auth.tokens, or oauth:SUBJECT for a user of auth.oauth.

The login is stored in the keyring of the operating system, or, if there is none, in a file in
the state directory that only you can read. gateway logout NAME deletes it.`,
		Args: oneArg("the backend"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return login(cmd.Context(), c, args[0], principalName, noBrowser, timeout)
		},
	}
	timeout.addFlag(cmd)
	cmd.Flags().BoolVar(&noBrowser, "no-browser", false,
		"print the link instead of opening a browser, and read the redirect from stdin")
	addPrincipalFlag(cmd, &c.source, &principalName)
	cmd.ValidArgsFunction = firstArgument(c.source.serverNames)
	return cmd
}

func addPrincipalFlag(cmd *cobra.Command, s *configSource, name *string) {
	cmd.Flags().Func("principal",
		"the client `NAME` whose login it is, with oauth.per: principal",
		func(text string) error {
			if *name = text; text == "" {
				return errors.New("it names no client")
			}
			return nil
		})
	completeFlag(cmd, "principal", s.principalNames)
}

func logoutCommand(c *cli) *cobra.Command {
	principalName := ""
	cmd := &cobra.Command{
		Use:   "logout NAME",
		Short: "Revoke and delete the login at a server",
		Long: `logout revokes the login at the server NAME, if its authorization server supports
that, and deletes the stored login.`,
		Args: oneArg("the backend"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return logout(cmd.Context(), c, args[0], principalName)
		},
	}
	addPrincipalFlag(cmd, &c.source, &principalName)
	cmd.ValidArgsFunction = firstArgument(c.source.serverNames)
	return cmd
}

// onlyBackend returns a configOverride that leaves out all other backends, and a check that the
// backend exists.
func onlyBackend(name string) (override configOverride, check func() error) {
	var names []string
	override = func(c *config.Config) {
		for _, b := range c.Backends {
			names = append(names, b.Name)
		}
		c.Backends = slices.DeleteFunc(slices.Clone(c.Backends),
			func(b config.Backend) bool { return b.Name != name })
	}
	return override, func() error {
		if slices.Contains(names, name) {
			return nil
		}
		hint := "gateway check shows the names"
		if near, ok := config.Nearest(name, names); ok {
			hint = "did you mean " + near + "?"
		}
		return usageError{fmt.Errorf("there is no backend %q", name), hint}
	}
}

// openForLogin opens an app with only one backend, and returns the OAuth client of that backend.
func openForLogin(
	ctx context.Context, c *cli, name, principalName string,
) (*app, *oauthclient.Authorization, error) {
	override, check := onlyBackend(name)
	a, err := c.open(ctx, runMode{ignoreCache: true, loginAs: principalName}, c.source.quietLog,
		stdioOnly, override)
	if err != nil {
		return nil, nil, err
	}
	auth := a.backends.Login(name)
	err = check()
	if err == nil && auth == nil {
		err = whyNoLogin(a, name)
	}
	if err == nil && principalName != "" && auth.Principal == "" {
		err = usageError{fmt.Errorf("backend %s has one login for all clients", name),
			"leave --principal out, or set oauth.per: principal"}
	}
	if err != nil {
		a.close()
		return nil, nil, err
	}
	return a, auth, nil
}

// hasLoginsOfClients reports whether each client has a login of its own at a backend.
func hasLoginsOfClients(b config.Backend) bool { return b.OAuth.Per == config.PerPrincipal }

// whoseLogin returns how a text names the login of a principal at a backend; "" = all clients use
// the login.
func whoseLogin(b config.Backend, principalName string) string {
	switch {
	case principalName != "":
		return principalName
	case hasLoginsOfClients(b):
		return "the gateway itself"
	}
	return ""
}

// forWhom returns " for " and the owner of a login; "" = all clients use the login.
func forWhom(owner string) string {
	if owner == "" {
		return ""
	}
	return " for " + owner
}

// adviseOthers returns advice about the logins of clients, if the gateway itself has logged in or
// out at a backend at which each client has a login of its own; "" = none.
func adviseOthers(b config.Backend, principalName, command string) string {
	if principalName != "" || !hasLoginsOfClients(b) {
		return ""
	}
	return fmt.Sprintf("each client has a login of its own: gateway %s %s --principal NAME",
		command, b.Name)
}

// findPrincipal returns the principal with this name: the name of a token, or oauth: or
// oauth-client: and the id of a subject. It returns nil for the name "". The number that a token
// without a name has in logs is no name, because a reload changes the numbers.
func findPrincipal(cfg *config.Config, name string) (*principal.Principal, error) {
	if name == "" {
		return nil, nil
	}
	kind, id, _ := strings.Cut(name, ":")
	if issuer := cfg.Auth.OAuth.Issuer; issuer != "" && (kind == "oauth" || kind == "oauth-client") {
		p := principal.FromSubject(principal.Subject{Issuer: issuer, ID: id,
			IsClient: kind == "oauth-client"})
		if id == "" || p.ExactName() == "" {
			return nil, usageError{fmt.Errorf("the name %q does not identify a client", name),
				"let the client call a tool, and log in at the page that it is asked to open"}
		}
		return p, nil
	}
	var names []string
	unnamed := false
	for _, t := range cfg.Auth.Tokens {
		if t.Name == name {
			return principal.FromToken(principal.TokenIdentity{Name: name}), nil
		}
		if unnamed = unnamed || t.Name == ""; t.Name != "" {
			names = append(names, t.Name)
		}
	}
	hint := "auth.tokens has no tokens"
	switch {
	case len(names) > 0:
		hint = "the names are: " + reload.NameList(names)
	case unnamed:
		hint = "give the token a name: auth.tokens: [{name: NAME, token: ...}]"
	case cfg.Auth.OAuth.Issuer != "":
		hint = "a user of auth.oauth is named oauth:SUBJECT"
	}
	return nil, usageError{fmt.Errorf("no client is named %q", name), hint}
}

// whyNoLogin returns the error for a backend without an OAuth client.
func whyNoLogin(a *app, name string) error {
	for _, s := range a.backends.Status() {
		if s.Name == name && s.State == backends.Misconfigured {
			return fmt.Errorf("backend %s is misconfigured: %w", name, s.Err)
		}
		if s.Name == name && s.State == backends.Disabled {
			return hintedError{fmt.Errorf("backend %s is disabled", name), "set enabled: true"}
		}
	}
	return hintedError{fmt.Errorf("backend %s needs no login", name),
		"only a backend with a url, and without a header Authorization, can use OAuth"}
}

// login logs in to a backend, and prints what it offers.
func login(
	ctx context.Context, c *cli, name, principalName string, noBrowser bool, timeout startTimeout,
) error {
	a, auth, err := openForLogin(ctx, c, name, principalName)
	if err != nil {
		return err
	}
	o := &oneShot{app: a, stdio: c.stdio, timeout: timeout}
	if auth.ClientCredentials {
		a.close()
		return hintedError{fmt.Errorf("backend %s needs no login", name),
			"with oauth.grant: client_credentials nobody needs to log in"}
	}
	if !a.logins.IsPersistent() {
		a.close()
		return hintedError{errors.New("a login cannot be stored without a state directory"),
			"remove state: none from the configuration"}
	}
	return a.run(ctx, func(ctx context.Context) error {
		if err := o.startBackends(ctx); err != nil {
			return err
		}
		w := &loginWait{oneShot: o, name: name, auth: auth,
			owner:   whoseLogin(a.Config.Backends[0], principalName),
			command: auth.Command + c.source.flag()}
		status := o.backends.Status()[0]
		if isHealthy(status) && !auth.WantsLogin() {
			fmt.Fprintf(o.out, "%s: already logged in%s; %s ends the login\n", name,
				forWhom(w.owner), strings.Replace(auth.Command, "login", "logout", 1))
			printOffer(o, status)
		} else if err := w.logIn(ctx, noBrowser); err != nil {
			return err
		} else if err := w.printResult(ctx); err != nil {
			return err
		}
		if advice := adviseOthers(a.Config.Backends[0], principalName, "login"); advice != "" {
			fmt.Fprintf(o.err, "gateway: %s\n", advice)
		}
		return nil
	})
}

// printOffer prints what a backend offers.
func printOffer(o *oneShot, s backends.Status) {
	fmt.Fprintf(o.out, "%s offers %d tools, %d prompts, %d resources (%s)\n", s.Name,
		s.Counts[catalog.Tools], s.Counts[catalog.Prompts],
		s.Counts[catalog.Resources]+s.Counts[catalog.Templates],
		orDash(maskedLine(o.mask, s.Server)))
}

// logout revokes and deletes the login at a backend.
func logout(ctx context.Context, c *cli, name, principalName string) error {
	a, auth, err := openForLogin(ctx, c, name, principalName)
	if err != nil {
		return err
	}
	defer a.close()
	b := a.Config.Backends[0]
	whose, advice := forWhom(whoseLogin(b, principalName)), adviseOthers(b, principalName, "logout")
	revoked, revokeErr, err := auth.Logout(ctx)
	switch {
	case errors.Is(err, oauthclient.ErrNoLogin):
		return hintedError{fmt.Errorf("backend %s: %w%s", name, err, whose), advice}
	case err != nil:
		return err
	case revokeErr != nil:
		return hintedError{
			fmt.Errorf("the login at %s%s is deleted here, but was not revoked: %w", name, whose,
				revokeErr),
			"revoke it in your account at the server"}
	case revoked:
		fmt.Fprintf(c.out, "%s: login%s revoked and deleted\n", name, whose)
	default:
		fmt.Fprintf(c.out, "%s: login%s deleted; its authorization server cannot revoke it\n", name,
			whose)
	}
	if advice != "" {
		fmt.Fprintf(c.err, "gateway: %s\n", advice)
	}
	return nil
}

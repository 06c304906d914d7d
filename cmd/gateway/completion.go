package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/logging"
)

// Completion in shells: the functions below return words for arguments and flags of commands. They
// read the configuration and the state directory only. They start no backend and no command, read
// no secret, never ask for an approval, and return no words if something fails.

// firstArgument returns a completion of the first argument by words.
func firstArgument(words func() []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) (
		[]cobra.Completion, cobra.ShellCompDirective,
	) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return completionWords(words()), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFlag sets the completion of a flag of cmd by words.
func completeFlag(cmd *cobra.Command, name string, words func() []string) {
	err := cmd.RegisterFlagCompletionFunc(name, func(*cobra.Command, []string, string) (
		[]cobra.Completion, cobra.ShellCompDirective,
	) {
		return completionWords(words()), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // there is no such flag
	}
}

// completePath sets the completion of a flag of cmd by files with these extensions, or folders.
func completePath(
	cmd *cobra.Command, name string, what cobra.ShellCompDirective, extensions ...string,
) {
	err := cmd.RegisterFlagCompletionFunc(name, func(*cobra.Command, []string, string) (
		[]cobra.Completion, cobra.ShellCompDirective,
	) {
		return extensions, what
	})
	if err != nil {
		panic(err) // there is no such flag
	}
}

// completeNoFiles makes shells propose no files for the commands at and below cmd whose arguments
// are not files. Without a completion, shells propose files.
func completeNoFiles(cmd *cobra.Command) {
	_, arguments, _ := strings.Cut(cmd.Use, " ")
	isPath := strings.Contains(arguments, "FILE") || strings.Contains(arguments, "DIR")
	if cmd.ValidArgsFunction == nil && !isPath {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, sub := range cmd.Commands() {
		completeNoFiles(sub)
	}
}

// completeCommand completes the arguments of the command help.
func completeCommand(cmd *cobra.Command, args []string, _ string) (
	names []cobra.Completion, _ cobra.ShellCompDirective,
) {
	if about, rest, err := cmd.Root().Find(args); err == nil && len(rest) == 0 {
		for _, sub := range about.Commands() {
			if sub.IsAvailableCommand() {
				names = append(names, sub.Name())
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// values returns these words, for the values of a flag.
func values(words ...string) func() []string { return func() []string { return words } }

// completionWords returns the words that no shell interprets. Names of tools are text of the
// backends.
func completionWords(words []string) []cobra.Completion {
	const unusual = "\t\n\r \"'`$\\;&|<>(){}[]*?!#~^"
	return slices.DeleteFunc(slices.Clone(words), func(word string) bool {
		return word == "" || strings.ContainsAny(word, unusual) ||
			strings.ContainsFunc(word, func(r rune) bool { return r < ' ' || r > '~' })
	})
}

// backendNames returns the names of the enabled backends.
func (s *configSource) backendNames() (names []string) {
	for _, b := range s.quietLoad().Backends {
		if b.Enabled {
			names = append(names, b.Name)
		}
	}
	return names
}

// serverNames returns the names of the enabled backends at URLs, which may require a login.
func (s *configSource) serverNames() (names []string) {
	for _, b := range s.quietLoad().Backends {
		if b.Enabled && b.URL != "" {
			names = append(names, b.Name)
		}
	}
	return names
}

func (s *configSource) profileNames() []string {
	return slices.Sorted(maps.Keys(s.quietLoad().Profiles))
}

// principalNames returns the names of the tokens of clients.
func (s *configSource) principalNames() (names []string) {
	for _, t := range s.quietLoad().Auth.Tokens {
		names = append(names, t.Name)
	}
	return names
}

// quietLoad loads the configuration. It returns an empty configuration after an error.
func (s *configSource) quietLoad() *config.Config {
	l := s.completionConfig()
	if l == nil {
		return new(config.Config)
	}
	return l.Config
}

// completionConfig loads the configuration without the values of keyring, commands and files, and
// without asking for an approval; nil = error.
func (s *configSource) completionConfig() *config.Loaded {
	o := s.options(context.Background(), s.path, false, false)
	o.Sources, o.VariableNames, o.RequiredKeys = nil, nil, []string{"profiles"}
	l, err := config.Load(o)
	if err != nil {
		return nil
	}
	l.Config.StateDir = absolutePath(l.Config.StateDir)
	return l
}

// toolNames returns the names of the tools that are known from earlier runs.
func (s *configSource) toolNames() []string {
	l := s.completionConfig()
	if l == nil {
		return nil
	}
	var names []string
	listed := make(map[string]bool) // backends with tools in the view
	for _, e := range s.knownView(l).Entries(catalog.Tools) {
		names = append(names, e.Exposed)
		listed[e.Backend] = true
	}
	if s.profile == "" {
		// The stored lists of a backend are not found if its command depends on a secret.
		last, _ := readNameRecord(nameRecordPath(l.Config.StateDir, l.Source))
		for name, a := range last[catalog.Tools] {
			isEnabled := func(b config.Backend) bool { return b.Enabled && b.Name == a.Backend }
			if !listed[a.Backend] && slices.ContainsFunc(l.Config.Backends, isEnabled) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// knownView returns the view of the catalog that is stored in the state directory.
func (s *configSource) knownView(l *config.Loaded) *catalog.View {
	log := slog.New(slog.DiscardHandler)
	client, err := clientWithProfile(l.Config, s.profile)
	if err != nil {
		return &catalog.View{Snapshot: new(catalog.Snapshot)}
	}
	set := backends.New(backends.Options{
		Backends:   withoutPins(l.Config.Backends),
		Catalog:    catalogOptions(l.Config),
		Profiles:   l.Config.Profiles,
		MaxMessage: int(l.Config.Limits.Message),
		StateDir:   l.Config.StateDir,
		NameOwners: loadNameRecord(l.Config.StateDir, l.Source, log),
		Mask:       logging.NewMask().String,
		Log:        log,
	})
	ended, end := context.WithCancel(context.Background())
	end()
	_ = set.Run(ended, nil) // reads the stored lists, and starts nothing
	return set.ViewFor(client)
}

// completeCall completes the tool of the command call, and the keys and the values that its schema
// names.
func completeCall(s *configSource) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, typed string) (
		[]cobra.Completion, cobra.ShellCompDirective,
	) {
		if len(args) == 0 {
			return completionWords(s.toolNames()), cobra.ShellCompDirectiveNoFileComp
		}
		l := s.completionConfig()
		if l == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		words, isKey := argumentWords(s.knownView(l).Schema(args[0]), args[1:], typed)
		directive := cobra.ShellCompDirectiveNoFileComp
		if isKey {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		return completionWords(words), directive
	}
}

// argumentWords returns the words KEY= for the properties of a schema that are not given yet or,
// after KEY=, the words KEY=VALUE for its enum and for booleans.
func argumentWords(schema []byte, given []string, typed string) (words []string, isKey bool) {
	var s struct {
		Properties map[string]struct {
			Type json.RawMessage   `json:"type"`
			Enum []json.RawMessage `json:"enum"`
		} `json:"properties"`
	}
	if json.Unmarshal(schema, &s) != nil {
		return nil, false
	}
	key, _, hasValue := strings.Cut(typed, "=")
	if !hasValue {
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			isGiven := func(arg string) bool { return strings.HasPrefix(arg, name+"=") }
			if !slices.ContainsFunc(given, isGiven) {
				words = append(words, name+"=")
			}
		}
		return words, true
	}
	p := s.Properties[key]
	if string(p.Type) == `"boolean"` {
		return []string{key + "=true", key + "=false"}, false
	}
	for _, value := range p.Enum {
		var text string
		if json.Unmarshal(value, &text) != nil {
			text = string(value)
		}
		words = append(words, key+"="+text)
	}
	return words, false
}

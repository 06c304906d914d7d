package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"mcpgateway/internal/secrets"
)

// A KeyValue is a key of a configuration and its value, as text.
type KeyValue struct{ Key, Value string }

// Values returns the values of a configuration that are not empty, sorted by key, without the
// backends. Values that are secrets, or may be, are not shown: tokens, headers, variables, and
// passwords and queries of URLs. The caller must mask the rest.
func Values(c *Config) []KeyValue { return valuesOf(reflect.ValueOf(*c)) }

// Values returns the values of a backend, as the function Values does.
func (b Backend) Values() []KeyValue { return valuesOf(reflect.ValueOf(b)) }

func valuesOf(v reflect.Value) (all []KeyValue) {
	eachValue(v, "", func(key string, value any) {
		all = append(all, KeyValue{key, shownValue(key, value)})
	})
	slices.SortFunc(all, func(a, b KeyValue) int { return cmp.Compare(a.Key, b.Key) })
	return all
}

// shownValue returns a value as text.
func shownValue(key string, value any) string {
	text, isText := value.(string)
	last := key[strings.LastIndexByte(key, '.')+1:]
	switch {
	case key == "auth.tokens":
		var names []string
		for i, t := range value.([]Token) {
			names = append(names, cmp.Or(t.Name, fmt.Sprintf("token %d", i+1)))
		}
		return strings.Join(names, ", ")
	case strings.HasPrefix(key, "env."), strings.HasPrefix(key, "headers."),
		strings.HasPrefix(key, "otel.headers."), last == "client_secret":
		return secrets.Redacted
	case isText && strings.Contains(text, "://"):
		return shownURL(text)
	case isText:
		return text
	}
	if s, is := value.(fmt.Stringer); is {
		return s.String()
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(encoded)
}

package config

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"reflect"
	"strings"
)

// A Digest is a summary of a Config that can be stored and used to find later changes. It contains
// a salted hash instead of each value. A value that is easy to guess can be found by comparing the
// hashes of guesses, so only the owner of the configuration may read a Digest.
type Digest struct {
	Salt     string            `json:"salt"`
	Keys     map[string]string `json:"keys"` // hashes by key; keys without a value are omitted
	Backends []BackendDigest   `json:"backends"`
}

// A BackendDigest is the digest of one backend.
type BackendDigest struct {
	Name    string            `json:"name"`
	Enabled bool              `json:"enabled"`
	Keys    map[string]string `json:"keys"`
}

// NewDigest returns the digest of a configuration.
func NewDigest(c *Config, salt string) Digest {
	d := Digest{Salt: salt, Keys: keySums(salt, reflect.ValueOf(*c))}
	for _, b := range c.Backends {
		keys := keySums(salt, reflect.ValueOf(b))
		delete(keys, "name")
		delete(keys, "enabled")
		if b.Misconfigured != "" { // the values of its other keys are unknown
			maps.Copy(keys, keySums(salt, reflect.ValueOf(struct {
				Misconfigured string `koanf:"misconfigured"`
			}{b.Misconfigured})))
		}
		d.Backends = append(d.Backends, BackendDigest{b.Name, b.Enabled, keys})
	}
	return d
}

// keySums returns the salted hash of each value in the struct v that is not empty, by key. It
// leaves out the backends.
func keySums(salt string, v reflect.Value) map[string]string {
	all := make(map[string]string)
	h := hmac.New(sha256.New, []byte(salt))
	add := func(key string, value any) {
		text, _ := json.Marshal(value) // never fails for strings, numbers and lists of these
		h.Reset()
		h.Write([]byte(key + "\x00"))
		h.Write(text)
		all[key] = base64.RawStdEncoding.EncodeToString(h.Sum(nil)[:12])
	}
	eachValue(v, "", add)
	return all
}

// eachValue calls do for each value in the struct v that is not empty, with its key. It leaves out
// the backends.
func eachValue(v reflect.Value, path string, do func(key string, value any)) {
	for f, value := range v.Fields() {
		tag := f.Tag.Get("koanf")
		key := joinPath(path, tag)
		switch {
		case tag == "-" || f.Type == reflect.TypeFor[[]Backend]():
		case value.Kind() == reflect.Struct:
			eachValue(value, key, do)
		case value.Kind() == reflect.Map: // env, headers, profiles: empty is also a value
			for name, one := range value.Seq2() {
				path := joinPath(key, name.String())
				if one.Kind() == reflect.Struct {
					do(path, "")
					eachValue(one, path, do)
				} else {
					do(path, one.String())
				}
			}
		case value.IsZero() || value.Kind() == reflect.Slice && value.Len() == 0:
		default:
			do(key, value.Interface())
		}
	}
}

// fieldByKey returns the field of the struct v for a key like log.level. For a key in a map it
// returns the whole map.
func fieldByKey(v reflect.Value, key string) reflect.Value {
	first, rest, nested := strings.Cut(key, ".")
	for f, value := range v.Fields() {
		if f.Tag.Get("koanf") == first {
			if nested && value.Kind() != reflect.Map {
				return fieldByKey(value, rest)
			}
			return value
		}
	}
	return reflect.Value{}
}

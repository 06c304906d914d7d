package config

import (
	"reflect"
	"strings"
	"sync"
	"time"
)

// settings is the type of the file: Config and the defaults of backends. Its koanf tags are the
// only list of keys, which the file, environment variables and flags use.
type settings struct {
	Config   `koanf:",squash"`
	Defaults defaults `koanf:"defaults"`
}

// defaults are the fields of a Backend that the section defaults can set for all backends.
type defaults struct {
	StartTimeout time.Duration `koanf:"start_timeout"`
	CallTimeout  time.Duration `koanf:"call_timeout"`
	Lazy         bool          `koanf:"lazy"`
	IdleStop     time.Duration `koanf:"idle_stop"`
	MaxInFlight  int           `koanf:"max_in_flight"`
	QueueWait    time.Duration `koanf:"queue_wait"`
}

// builtinDefaults returns the defaults that apply if the file does not set them.
func builtinDefaults() defaults {
	return defaults{StartTimeout: time.Minute, MaxInFlight: 20_000, QueueWait: 30 * time.Second}
}

var (
	settingsType = reflect.TypeFor[settings]()
	backendType  = reflect.TypeFor[Backend]()
	tokenType    = reflect.TypeFor[Token]()
	rateType     = reflect.TypeFor[Rate]()
	keepType     = reflect.TypeFor[AuditKeep]()
	durationType = reflect.TypeFor[time.Duration]()
	timeType     = reflect.TypeFor[time.Time]()
	sizeType     = reflect.TypeFor[int64]() // every int64 is a size in bytes, in contrast to int
)

// shortForms contains the types of mappings in whose place the file may have a single value, each
// with the key that this value stands for.
var shortForms = map[reflect.Type]string{
	tokenType: "token", rateType: "limit", keepType: "files",
}

// field is a key of a mapping and the type of its value.
type field struct {
	key string
	typ reflect.Type
}

// fieldCache caches the results of fields by type, because iterating over a struct takes longer
// than reading a value.
var fieldCache sync.Map

// fields returns the keys of the struct t. The result must not be modified.
func fields(t reflect.Type) []field {
	if all, ok := fieldCache.Load(t); ok {
		return all.([]field)
	}
	var all []field
	for f := range t.Fields() {
		switch key := f.Tag.Get("koanf"); key {
		case "-":
		case ",squash":
			all = append(all, fields(f.Type)...)
		default:
			all = append(all, field{key, f.Type})
		}
	}
	fieldCache.Store(t, all)
	return all
}

func fieldOf(t reflect.Type, key string) (field, bool) {
	for _, f := range fields(t) {
		if f.key == key {
			return f, true
		}
	}
	return field{}, false
}

// scalarKeys returns the keys that variables and flags can set: all keys with a single value, with
// their full path, such as "log.level".
func scalarKeys(t reflect.Type) []field {
	var all []field
	for _, f := range fields(t) {
		switch f.typ.Kind() {
		case reflect.Slice, reflect.Map:
		case reflect.Struct:
			for _, inner := range scalarKeys(f.typ) {
				all = append(all, field{f.key + "." + inner.key, inner.typ})
			}
		default:
			all = append(all, f)
		}
	}
	return all
}

// didYouMean returns a suffix that names the key of t most similar to key, or a key that key
// abbreviates, or the only key of this name one level below, such as oauth.per; "" = none.
func didYouMean(key string, t reflect.Type) string {
	key = strings.ToLower(key)
	best, nearest := "", 1+max(1, len(key)/3)
	for _, f := range fields(t) {
		if d := editDistance(key, f.key); d < nearest {
			best, nearest = f.key, d
		} else if best == "" && isAbbreviation(key, f.key) {
			best = f.key
		}
	}
	if best == "" {
		best = innerKey(key, t)
	}
	if best == "" {
		return ""
	}
	return ` (did you mean "` + best + `"?)`
}

// innerKey returns the path of the key of this name in a struct in t, such as oauth.per; "" if
// there is none, or if several structs have one.
func innerKey(key string, t reflect.Type) (path string) {
	for _, f := range fields(t) {
		if f.typ.Kind() != reflect.Struct {
			continue
		}
		if _, has := fieldOf(f.typ, key); has && path != "" {
			return ""
		} else if has {
			path = f.key + "." + key
		}
	}
	return path
}

// Nearest returns the name most similar to word, but not equal to it; ok is false if no name is
// similar enough.
func Nearest(word string, names []string) (near string, ok bool) {
	const longest = 200 // bytes of the longest compared word
	least := 1 + max(1, len(word)/4)
	if len(word) > longest {
		return "", false
	}
	for _, name := range names {
		if len(name) > longest || name == word {
			continue
		}
		if d := editDistance(strings.ToLower(word), strings.ToLower(name)); d < least &&
			d < len(word) {
			near, least, ok = name, d, true
		}
	}
	return near, ok
}

// editDistance returns the number of edits that turn a into b: an inserted, deleted or replaced
// character, or two swapped neighbours (optimal string alignment).
func editDistance(a, b string) int {
	before, above := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			row[j+1] = min(above[j+1], row[j]) + 1
			switch {
			case a[i] == b[j]:
				row[j+1] = min(row[j+1], above[j])
			case i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j]:
				row[j+1] = min(row[j+1], before[j-1]+1)
			default:
				row[j+1] = min(row[j+1], above[j]+1)
			}
		}
		before, above = above, row
	}
	return above[len(b)]
}

// isAbbreviation reports whether the word short, of at least three letters, has the first letter of
// the word long and results from omitting other letters of it: cmd, lvl.
func isAbbreviation(short, long string) bool {
	if len(short) < 3 || short[0] != long[0] {
		return false
	}
	for i := range len(long) {
		if short != "" && long[i] == short[0] {
			short = short[1:]
		}
	}
	return short == ""
}

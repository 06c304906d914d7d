package protocol

import (
	"strings"
	"testing"
)

// Subschemas beyond the bound stay unchanged.
func TestNestedSchemasAreBounded(t *testing.T) {
	seen := 0
	deep := strings.Repeat(`{"not":`, 2*maxSchemaDepth) + "{}" +
		strings.Repeat("}", 2*maxSchemaDepth)
	same := mapSchemas([]byte(deep), func(schema []byte) ([]byte, bool) {
		seen++
		return schema, true
	})
	if seen != maxSchemaDepth || string(same) != deep {
		t.Errorf("%d schemas were visited, result %s", seen, same)
	}
}

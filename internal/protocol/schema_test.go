package protocol

import (
	"strings"
	"testing"
)

// Schemas in schemas are looked for so deep; what lies deeper is left as it is.
func TestNestedSchemasAreBounded(t *testing.T) {
	seen := 0
	deep := strings.Repeat(`{"not":`, 2*maxSchemaDepth) + "{}" + strings.Repeat("}", 2*maxSchemaDepth)
	same := mapSchemas([]byte(deep), func(schema []byte) ([]byte, bool) {
		seen++
		return schema, true
	})
	if seen != maxSchemaDepth || string(same) != deep {
		t.Errorf("%d were looked at, to %s", seen, same)
	}
}

package backends

import (
	"bytes"

	"mcpgateway/catalog"
	"mcpgateway/internal/protocol"
)

var headerAnnotation = []byte(protocol.HeaderAnnotation)

// fixHeaderAnnotations handles tools with invalid annotations for headers. The specification
// ("tools") requires leaving out such a tool of a modern server over HTTP. For any other server the
// annotations have no meaning. They are removed, so that no client leaves out a working tool.
func (lr *listReader) fixHeaderAnnotations(page *catalog.Page, s serverInfo) {
	kept := page.Items[:0]
	for _, item := range page.Items {
		schema := item.Schema()
		problem := ""
		if bytes.Contains(schema, headerAnnotation) {
			problem = protocol.CheckHeaderSchema(schema)
		}
		switch {
		case problem == "":
		case s.modern && lr.b.cfg.URL != "":
			page.Issues = append(page.Issues, catalog.Issue{Item: item.Original, Problem: problem})
			continue
		default:
			page.Issues = append(page.Issues, catalog.Issue{Item: item.Original, Problem: problem,
				Repaired: true})
			item = item.WithSchema(protocol.StripHeaderAnnotations(schema))
		}
		kept = append(kept, item)
	}
	page.Items = kept
}

// headerSchemas returns the schemas of the tools with arguments that are sent in headers, by name.
func headerSchemas(tools []catalog.Item) map[string][]byte {
	var all map[string][]byte
	for _, t := range tools {
		if !bytes.Contains(t.Raw(), headerAnnotation) {
			continue
		}
		if all == nil {
			all = make(map[string][]byte)
		}
		all[t.Original] = t.Schema()
	}
	return all
}

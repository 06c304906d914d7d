package catalog

import (
	"fmt"

	"github.com/yosida95/uritemplate/v3"
)

// A pattern tells which URIs a template stands for.
type pattern struct {
	template *uritemplate.Template
}

// withPattern reads the item's template. One that cannot be read stays in the
// list, for the backend may yet know what it means.
func (i Item) withPattern() (Item, Flaw) {
	t, err := uritemplate.New(i.Own)
	if err != nil {
		return i, Flaw{What: fmt.Sprintf("its uriTemplate finds no resource: %v", err), Mended: true}
	}
	i.template = &pattern{t}
	return i, Flaw{}
}

func (p *pattern) match(uri string) bool {
	return p.template.Match(uri) != nil
}

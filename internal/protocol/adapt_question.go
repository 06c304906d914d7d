package protocol

import (
	"errors"
	"fmt"

	"mcpgateway/internal/wire"
)

// AdaptServerRequest returns the params of what a server asks a client of the session era, as
// a client of the revision to with such capabilities can read them; the same slice if
// nothing has to change. An error tells why it cannot be asked that. What a client has
// declared it can do, be its revision one that has it not: there are SDKs that declare,
// and do, the same in all of them.
func AdaptServerRequest(method string, params []byte, to Features, caps []byte) ([]byte, error) {
	switch method {
	case "elicitation/create":
		return adaptElicitation(params, to, caps)
	case "sampling/createMessage":
		return adaptSampling(params, to, caps)
	case "roots/list":
		return params, needs(caps, "roots")
	}
	return nil, fmt.Errorf("%q is nothing that clients are asked", wire.Excerpt(method))
}

// needs returns the error that a client has when it did not declare a capability.
func needs(caps []byte, path ...string) error {
	if value, _ := wire.Lookup(caps, path...); wire.IsObject(value) {
		return nil
	}
	return fmt.Errorf("the client has no capability %s", path[len(path)-1])
}

func adaptElicitation(params []byte, to Features, caps []byte) ([]byte, error) {
	if err := needs(caps, "elicitation"); err != nil {
		return nil, err
	}
	switch mode, _ := wire.Lookup(params, "mode"); {
	case mode == nil || wire.Unquote(mode) == "form":
		return adaptForm(params, to, caps)
	case wire.Unquote(mode) != "url":
		return nil, fmt.Errorf("there is no elicitation of mode %s", wire.Excerpt(mode))
	}
	return params, needs(caps, "elicitation", "url")
}

// adaptForm puts a form into the words of the revision. A client that declares a mode
// and not this one takes none ("an empty object is equivalent to declaring support for
// form mode only").
func adaptForm(params []byte, to Features, caps []byte) (adapted []byte, err error) {
	if needs(caps, "elicitation", "url") == nil && needs(caps, "elicitation", "form") != nil {
		return nil, errors.New("the client has no capability form")
	}
	if to.TitledEnums {
		return params, nil
	}
	adapted = mapMember(params, "requestedSchema", func(schema []byte) []byte {
		return mapMember(schema, "properties", func(properties []byte) []byte {
			return mapMembers(properties, func(name string, field []byte) []byte {
				old, problem := oldField(field)
				if problem != nil {
					err = fmt.Errorf("the form's field %q: %w", wire.Excerpt(name), problem)
				}
				return old
			})
		})
	})
	return adapted, err
}

// oldField returns a field of a form as revisions know it that have no other enums than
// enum with enumNames.
func oldField(field []byte) (old []byte, err error) {
	if member(field, "type") == "array" {
		return field, errors.New("the client's revision has none of which one picks several")
	}
	choices, _ := wire.Lookup(field, "oneOf")
	if choices == nil {
		return field, nil
	}
	var values, titles [][]byte
	for _, choice := range wire.Elements(choices) {
		value, _ := wire.Lookup(choice, "const")
		title, _ := wire.Lookup(choice, "title")
		if value == nil {
			return field, errors.New("oneOf has a choice that is no const")
		}
		if title == nil {
			title = value
		}
		values, titles = append(values, value), append(titles, title)
	}
	if values == nil {
		return field, errors.New("oneOf has no choices")
	}
	return wire.EditObject(field, func(key string) bool { return key == "oneOf" },
		wire.Member{Key: "enum", Text: array(values)}, wire.Member{Key: "enumNames", Text: array(titles)}), nil
}

func adaptSampling(params []byte, to Features, caps []byte) (adapted []byte, err error) {
	if err := needs(caps, "sampling"); err != nil {
		return nil, err
	}
	if isAsked(params, "tools") || isAsked(params, "toolChoice") {
		if err := needs(caps, "sampling", "tools"); err != nil {
			return nil, err
		}
	}
	if context := member(params, "includeContext"); to.SamplingContext && (context == "thisServer" || context == "allServers") &&
		needs(caps, "sampling", "context") != nil {
		params = without(params, "includeContext")
	}
	if to.SamplingTools || needs(caps, "sampling", "tools") == nil {
		return params, nil
	}
	adapted = mapMember(params, "messages", func(messages []byte) []byte {
		return mapElements(messages, func(_ int, message []byte) [][]byte {
			old, problem := oldSamples(message, to)
			if problem != nil {
				err = problem
			}
			return old
		})
	})
	return adapted, err
}

func isAsked(params []byte, name string) bool {
	value, _ := wire.Lookup(params, name)
	return !wire.IsNull(value)
}

// oldSamples returns a message of a sampling request as messages with one block of
// content each, of the same role.
func oldSamples(message []byte, to Features) (all [][]byte, err error) {
	content, _ := wire.Lookup(message, "content")
	blocks := [][]byte{content}
	if several := len(content) > 0 && content[0] == '['; several {
		blocks = wire.Elements(content)
	}
	for _, block := range blocks {
		switch kind := member(block, "type"); {
		case kind == "tool_use", kind == "tool_result", kind == "audio" && !to.Audio:
			err = fmt.Errorf("the client's revision has no %s in sampling", kind)
		}
		all = append(all, mapMember(message, "content", func([]byte) []byte { return block }))
	}
	return all, err
}

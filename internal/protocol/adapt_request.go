package protocol

import (
	"errors"
	"fmt"

	"mcpgateway/internal/wire"
)

// AdaptServerRequest converts the params of a request from a server to a legacy client, to a form
// that a client with this revision and these capabilities can read. It returns params itself if
// nothing changes, and an error if the client cannot handle the request, or if the method is not
// one of requests to clients. A capability counts even if the client's revision does not have it,
// because some SDKs declare and support the same capabilities in all revisions.
func AdaptServerRequest(method string, params []byte, to Features, caps []byte) ([]byte, error) {
	switch method {
	case MethodElicitationCreate:
		return adaptElicitation(params, to, caps)
	case MethodSamplingCreateMessage:
		return adaptSampling(params, to, caps)
	case MethodRootsList:
		return params, requireCapability(caps, "roots")
	}
	return nil, fmt.Errorf("%q is not a request for clients", wire.Excerpt(method))
}

// requireCapability returns an error if the client did not declare a capability.
func requireCapability(caps []byte, path ...string) error {
	if value, _ := wire.Lookup(caps, path...); wire.IsObject(value) {
		return nil
	}
	return fmt.Errorf("the client has no capability %s", path[len(path)-1])
}

func adaptElicitation(params []byte, to Features, caps []byte) ([]byte, error) {
	if err := requireCapability(caps, "elicitation"); err != nil {
		return nil, err
	}
	switch mode, _ := wire.Lookup(params, "mode"); {
	case mode == nil || wire.Unquote(mode) == "form":
		return adaptForm(params, to, caps)
	case wire.Unquote(mode) != "url":
		return nil, fmt.Errorf("unknown elicitation mode %s", wire.Excerpt(mode))
	}
	return params, requireCapability(caps, "elicitation", "url")
}

// adaptForm converts a form to a form that the client's revision has. It returns an error if the
// client declares only the mode url, or if the revision does not have a field of the form. An
// elicitation capability without modes means forms ("an empty object is equivalent to declaring
// support for form mode only").
func adaptForm(params []byte, to Features, caps []byte) (adapted []byte, err error) {
	if requireCapability(caps, "elicitation", "url") == nil &&
		requireCapability(caps, "elicitation", "form") != nil {
		return nil, errors.New("the client has no capability form")
	}
	if to.TitledEnums {
		return params, nil
	}
	adapted = mapMember(params, "requestedSchema", func(schema []byte) []byte {
		return mapMember(schema, "properties", func(properties []byte) []byte {
			return mapMembers(properties, func(name string, field []byte) []byte {
				result, problem := adaptFormField(field)
				if problem != nil {
					err = fmt.Errorf("the form's field %q: %w", wire.Excerpt(name), problem)
				}
				return result
			})
		})
	})
	return adapted, err
}

// adaptFormField converts a form field for revisions that have only untitled enums and the keyword
// enumNames. It returns an error for a multiple selection, and for a oneOf that is not a list of
// constants.
func adaptFormField(field []byte) (adapted []byte, err error) {
	if stringMember(field, "type") == "array" {
		return field, errors.New("the client's revision has no multiple selection")
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
			return field, errors.New("oneOf has a choice without const")
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
		wire.Member{Key: "enum", Text: joinArray(values)},
		wire.Member{Key: "enumNames", Text: joinArray(titles)}), nil
}

func adaptSampling(params []byte, to Features, caps []byte) (adapted []byte, err error) {
	if err := requireCapability(caps, "sampling"); err != nil {
		return nil, err
	}
	if isSet(params, "tools") || isSet(params, "toolChoice") {
		if err := requireCapability(caps, "sampling", "tools"); err != nil {
			return nil, err
		}
	}
	if context := stringMember(params, "includeContext"); to.SamplingContext &&
		(context == "thisServer" || context == "allServers") &&
		requireCapability(caps, "sampling", "context") != nil {
		params = dropMember(params, "includeContext")
	}
	if to.SamplingTools || requireCapability(caps, "sampling", "tools") == nil {
		return params, nil
	}
	adapted = mapMember(params, "messages", func(messages []byte) []byte {
		return mapElements(messages, func(_ int, message []byte) [][]byte {
			result, problem := adaptSamplingMessage(message, to)
			if problem != nil {
				err = problem
			}
			return result
		})
	})
	return adapted, err
}

func isSet(params []byte, name string) bool {
	value, _ := wire.Lookup(params, name)
	return !wire.IsNull(value)
}

// adaptSamplingMessage splits a sampling message into messages of the same role with one content
// block each. It returns an error if the client's revision does not have the type of a block.
func adaptSamplingMessage(message []byte, to Features) (all [][]byte, err error) {
	content, _ := wire.Lookup(message, "content")
	blocks := [][]byte{content}
	if several := len(content) > 0 && content[0] == '['; several {
		blocks = wire.Elements(content)
	}
	for _, block := range blocks {
		switch kind := stringMember(block, "type"); {
		case kind == "tool_use", kind == "tool_result", kind == "audio" && !to.Audio:
			err = fmt.Errorf("the client's revision has no %s in sampling", kind)
		}
		all = append(all, mapMember(message, "content", func([]byte) []byte { return block }))
	}
	return all, err
}

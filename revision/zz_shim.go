package revision

import "mcpgateway/wire"

func Adapt(m wire.Message, method string, to Traits) wire.Message { return m }
func AdaptQuestion(method string, params []byte, to Traits, caps []byte) ([]byte, error) {
	return params, nil
}

package revision

import (
	"fmt"
	"strings"

	"mcpgateway/wire"
)

// CheckElicitation returns an error if the params of an elicitation can be read in two ways where
// the gateway reads them or puts the backend's name: a member is there twice, in another case, or
// is not a string.
func CheckElicitation(params []byte) error {
	return checkTexts(params, false, "message", "mode", "url", "elicitationId")
}

// CheckLog is CheckElicitation for the params of notifications/message. A logger that is null is
// none.
func CheckLog(params []byte) error {
	return checkTexts(params, true, "logger")
}

func checkTexts(params []byte, mayBeNull bool, names ...string) (err error) {
	var seen uint
	wire.Members(params, func(key string, value []byte, _ int) {
		for i, name := range names {
			switch {
			case err != nil || !strings.EqualFold(key, name):
			case key != name:
				err = fmt.Errorf("%q in params differs from %q only in case", key, name)
			case seen&(1<<i) != 0:
				err = fmt.Errorf("%q stands twice in params", name)
			case value[0] != '"' && !(mayBeNull && wire.IsNull(value)):
				err = fmt.Errorf("%q in params must be a string", name)
			default:
				seen |= 1 << i
			}
		}
	})
	return err
}

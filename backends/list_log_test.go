package backends

import (
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/catalog"
)

// F-LOG-1: repeated failures of a list are logged at once, then at doubling intervals, with their
// number.
func TestFailingListIsLoggedRarely_F_LOG_1(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lr := &listReader{}
		reports, sum := 0, 0
		for range 24 * 3600 {
			if n, log := lr.countFailure(catalog.Tools); log {
				reports++
				sum += n
			}
			time.Sleep(time.Second)
		}
		if reports < 24 || reports > 32 || sum < 23*3600 {
			t.Errorf("%d records for %d failures in a day", reports, sum)
		}
		if n, log := lr.countFailure(catalog.Prompts); n != 1 || !log {
			t.Errorf("the first failure of another list: %d, %v", n, log)
		}
	})
}

package peers

import (
	"os"
	"testing"

	"github.com/atelier-run/atelier/tests/bench"
)

func TestMain(m *testing.M) { os.Exit(bench.Run(m)) }

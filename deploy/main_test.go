package deploy

import (
	"testing"

	"github.com/towpath/towpath/deploy/lab/labtest"
)

func TestMain(m *testing.M) { labtest.Main(m) }

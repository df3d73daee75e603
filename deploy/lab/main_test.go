package lab_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

// childOf names the variable that turns the test binary into a process that
// starts servers and waits to be killed.
const childOf = "TOWPATH_LAB_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childOf) != "" {
		if err := startAndWait(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	labtest.Main(m)
}

func startAndWait() error {
	ctx := context.Background()
	db, err := lab.StartMySQL(ctx, lab.MySQLOptions{Kind: lab.MySQL97})
	if err != nil {
		return err
	}
	mq, err := lab.StartRabbit(ctx, lab.RabbitOptions{Kind: lab.Rabbit43})
	if err != nil {
		return err
	}
	fmt.Println(db.Dir(), mq.Dir())
	select {}
}

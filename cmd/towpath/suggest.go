package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/towpath/towpath/canal"
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
	"github.com/towpath/towpath/relay"
)

// passwordVariable holds the password of --user where no configuration does.
const passwordVariable = "TOWPATH_MYSQL_PASSWORD"

func newSuggest() *cobra.Command {
	c := &cobra.Command{
		Use:   "suggest --table SCHEMA.TABLE {--address HOST:PORT --user USER | -c FILE}",
		Short: "Print a configuration for an existing outbox table",
		Long: `Looks at a table and prints a configuration for it: complete, or with -c FILE the entry for that file's tables. What it
cannot know it guesses, and says so in a comment. Look it over, then run check. It changes nothing and needs SELECT on
the table. The password of --user is read from $` + passwordVariable + `.`,
		Example: "  towpath suggest --table shop.outbox_event --address 127.0.0.1:3306 --user towpath > shop.yaml\n  towpath suggest --table shop.other_outbox -c shop.yaml",
		Args:    noArguments,
	}
	file := c.Flags().StringP("config", "c", "", "take the connection from this configuration")
	table := c.Flags().String("table", "", "the table (required)")
	address := c.Flags().String("address", "", "server, as host:port")
	user := c.Flags().String("user", "", "account")
	exchange := c.Flags().String("exchange", "", "exchange to publish to [the table's schema]")
	c.RunE = func(c *cobra.Command, _ []string) error {
		var name canal.TableName
		var dotted bool
		if name.Schema, name.Name, dotted = strings.Cut(*table, "."); !dotted || name.Schema == "" || name.Name == "" {
			return &usageError{errors.New("--table wants schema.table")}
		}
		if (*file == "") == (*address == "" || *user == "") {
			return &usageError{errors.New("give --address and --user, or -c FILE")}
		}
		if *exchange == "" {
			*exchange = name.Schema
		}
		head, endpoint := "", checkpoint.Endpoint{Address: *address, User: *user,
			Password: func() (string, error) { return os.Getenv(passwordVariable), nil }}
		if *file != "" {
			config, err := configs.Load(*file)
			if err != nil {
				return err
			}
			endpoint = relay.Endpoint(config)
		} else {
			head = fmt.Sprintf(suggestedHead, name.Schema, *address, *user, passwordVariable)
		}
		db := checkpoint.Connect(endpoint, checkpoint.Session{IdleTimeout: time.Minute})
		defer db.Close()
		entry, err := relay.Suggest(c.Context(), db, name, *exchange)
		if err != nil {
			return err
		}
		fmt.Fprint(c.OutOrStdout(), head+entry)
		return nil
	}
	return c
}

const suggestedHead = `name: %s
source:
  address: "%s"
  user: "%s"
  password: ${%s:-}
broker:
  urls: ["${TOWPATH_AMQP_URL:-amqp://127.0.0.1:5672/%%2F}"]
  user: ${TOWPATH_AMQP_USER:-guest}
  password: ${TOWPATH_AMQP_PASSWORD:-guest}
tables:
`

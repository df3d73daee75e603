package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/relay"
)

func newInit() *cobra.Command {
	c := &cobra.Command{
		Use:   "init -c FILE",
		Short: "Create or upgrade the state tables",
		Long: `Creates the state tables in state.schema on the source server, or brings older ones up to this version. It can be
repeated, and run while relays of this or the former version work. The account needs CREATE and ALTER there; with
--print an administrator can run the statements instead.`,
		Example: "  towpath init -c shop.yaml\n  towpath init -c shop.yaml --print | mysql -u root",
		Args:    noArguments,
	}
	load := configFlag(c)
	show := c.Flags().Bool("print", false, "print the statements, change nothing")
	c.RunE = func(c *cobra.Command, _ []string) error {
		config, err := load()
		if err != nil {
			return err
		}
		if *show {
			fmt.Fprint(c.OutOrStdout(), checkpoint.DDL(config.State.Schema))
			return nil
		}
		db := checkpoint.Connect(relay.Endpoint(config), checkpoint.Session{IdleTimeout: config.Lease.TTL})
		defer db.Close()
		from, to, err := checkpoint.Init(c.Context(), db, config.State.Schema)
		if err != nil {
			return err
		}
		if from == to {
			fmt.Fprintf(c.OutOrStdout(), "state tables in schema %s are of version %d already\n", config.State.Schema, to)
		} else {
			fmt.Fprintf(c.OutOrStdout(), "state tables in schema %s: version %d -> %d\n", config.State.Schema, from, to)
		}
		return nil
	}
	return c
}

func newGrants() *cobra.Command {
	c := &cobra.Command{
		Use:   "grants -c FILE --account \"'towpath'@'%'\"",
		Short: "Print the least privileges that the relay needs",
		Long: `Prints the GRANT statements with which an account can run the relay, for the tables that the configuration names.
It connects to nothing. The state tables must exist before the statements are run: init first.`,
		Example: "  towpath grants -c shop.yaml | mysql -u root\n  towpath grants -c shop.yaml --mariadb --account \"'relay'@'10.0.0.%'\"",
		Args:    noArguments,
	}
	load := configFlag(c)
	account := c.Flags().String("account", "", "account as 'name'@'host' [source.user at %]")
	mariadb := c.Flags().Bool("mariadb", false, "for MariaDB [for MySQL]")
	c.RunE = func(c *cobra.Command, _ []string) error {
		config, err := load()
		if err != nil {
			return err
		}
		user := *account
		if user == "" {
			user = fmt.Sprintf("'%s'@'%%'", strings.ReplaceAll(config.Source.User, "'", "''"))
		} else if !strings.HasPrefix(user, "'") {
			return &usageError{errors.New("--account wants 'name'@'host', quotes included")}
		}
		flavor := checkpoint.MySQL
		if *mariadb {
			flavor = checkpoint.MariaDB
		}
		for _, statement := range checkpoint.Grants(flavor, user, config.State.Schema, relay.OutboxGrants(config)) {
			fmt.Fprintln(c.OutOrStdout(), statement+";")
		}
		return nil
	}
	return c
}

package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/towpath/towpath/relay"
)

func newCheck() *cobra.Command {
	c := &cobra.Command{
		Use:   "check -c FILE",
		Short: "Look at everything that relaying needs, and change nothing",
		Long: `Prints one line for each thing that it looked at: ok, warn or fail, with what is wrong, why it matters, and the
statement or setting that mends it. It exits with 1 when something fails. It takes no lease and disturbs no relay.`,
		Example: "  towpath check -c shop.yaml\n  towpath check -c shop.yaml --offline",
		Args:    noArguments,
	}
	load := configFlag(c)
	offline := c.Flags().Bool("offline", false, "check the file alone, connect to nothing")
	asJSON := c.Flags().Bool("json", false, "print JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		config, err := load()
		if err != nil {
			return err
		}
		findings := []relay.Finding{{Level: relay.OK, What: "configuration", Text: fmt.Sprintf("stream %s, hash %s", config.Name, config.Hash())}}
		if !*offline {
			findings = append(findings, relay.Check(c.Context(), config)...)
		}
		return report(c.OutOrStdout(), findings, *asJSON)
	}
	return c
}

// report prints findings, and returns an error when one of them fails.
func report(w io.Writer, findings []relay.Finding, asJSON bool) error {
	failed := false
	for _, f := range findings {
		failed = failed || f.Level == relay.Fail
	}
	if asJSON {
		if err := json.NewEncoder(w).Encode(findings); err != nil {
			return err
		}
	} else {
		for _, f := range findings {
			fmt.Fprintf(w, "%-4s  %s\n", f.Level, f)
		}
	}
	if failed {
		return errReported
	}
	return nil
}

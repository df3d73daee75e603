// Command lab sets the lab's servers up and starts them by hand.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/towpath/towpath/deploy/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use:           "lab",
		Short:         "Private real servers for the demo, the tests and the benchmarks",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(setupCommand(), upCommand())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		stop()
		os.Exit(1)
	}
}

func setupCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "setup [SERVER...]",
		Short: "Download and unpack what is missing (all servers, or those named)",
		Long:  fmt.Sprintf("Download and unpack what is missing. Servers: %v.\nNothing is installed on the machine and no root is needed.", lab.Kinds()),
		RunE: func(cmd *cobra.Command, args []string) error {
			kinds, err := parseKinds(args)
			if err != nil {
				return err
			}
			return lab.Setup(cmd.Context(), cmd.OutOrStdout(), kinds...)
		},
	}
}

func parseKinds(args []string) ([]lab.Kind, error) {
	var kinds []lab.Kind
	for _, arg := range args {
		kind, err := lab.ParseKind(arg)
		if err != nil {
			return nil, err
		}
		kinds = append(kinds, kind)
	}
	return kinds, nil
}

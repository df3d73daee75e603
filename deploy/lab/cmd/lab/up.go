package main

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/spf13/cobra"

	"github.com/towpath/towpath/deploy/lab"
)

func upCommand() *cobra.Command {
	var gtid bool
	cmd := &cobra.Command{
		Use:   "up [SERVER...]",
		Short: "Start servers (" + defaultServers + " if none is named) and print their addresses, until Ctrl-C",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{string(lab.MySQL97), string(lab.Rabbit43)}
			}
			kinds, err := parseKinds(args)
			if err != nil {
				return err
			}
			return up(cmd.Context(), cmd.OutOrStdout(), kinds, gtid)
		},
	}
	cmd.Flags().BoolVar(&gtid, "gtid", true, "databases run with GTIDs")
	return cmd
}

const defaultServers = "mysql97 rabbit43"

// up starts all servers at once, waits for the end of ctx, and ends them.
func up(ctx context.Context, out io.Writer, kinds []lab.Kind, gtid bool) error {
	started := make([]startedServer, len(kinds))
	var wg sync.WaitGroup
	for i, kind := range kinds {
		wg.Go(func() { started[i] = start(ctx, kind, gtid) })
	}
	wg.Wait()
	for _, s := range started {
		if s.close != nil {
			defer s.close()
		}
	}
	for _, s := range started {
		if s.err != nil {
			return s.err
		}
		fmt.Fprintln(out, s.where)
	}
	fmt.Fprintln(out, "Ctrl-C stops them and removes their data.")
	<-ctx.Done()
	return nil
}

type startedServer struct {
	where string
	close func() error
	err   error
}

func start(ctx context.Context, kind lab.Kind, gtid bool) startedServer {
	if kind.IsRabbit() {
		s, err := lab.StartRabbit(ctx, lab.RabbitOptions{Kind: kind})
		if err != nil {
			return startedServer{err: err}
		}
		return startedServer{where: fmt.Sprintf("%-12s %s", kind, s.URL()), close: s.Close}
	}
	s, err := lab.StartMySQL(ctx, lab.MySQLOptions{Kind: kind, GTID: gtid})
	if err != nil {
		return startedServer{err: err}
	}
	return startedServer{where: fmt.Sprintf("%-12s %s  (user %s, no password, over TCP)", kind, s.Addr(), s.RootUser()), close: s.Close}
}

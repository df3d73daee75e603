package canal

import (
	"context"
	"fmt"
	"strconv"

	"github.com/towpath/towpath/checkpoint"
)

// CurrentPlace reads where the server's binlog ends now, by file and offset
// alone: unlike [CurrentPosition] it costs the server nothing, and unlike a set
// of executed GTIDs it never lags behind what SELECT shows.
func (s *Server) CurrentPlace(ctx context.Context, q Querier) (checkpoint.Position, error) {
	p := checkpoint.Position{Flavor: s.Flavor, Server: s.Identity}
	found := false
	err := records(ctx, q, statusQuery(s.Version), func(get func(string) string) (err error) {
		found, p.File = true, get("File")
		p.Offset, err = strconv.ParseUint(get("Position"), 10, 64)
		return err
	})
	if err != nil {
		return p, fmt.Errorf("read the end of the binlog: %w", access(err))
	}
	if !found {
		return p, ErrBinlogOff
	}
	return p, nil
}

package canal

import (
	"context"
	"fmt"
)

// PreparedXA lists the server's XA transactions that are prepared and have no
// verdict, named as [Batch].XID names them. On MySQL it needs XA_RECOVER_ADMIN.
func PreparedXA(ctx context.Context, q Querier) ([][]byte, error) {
	rows, err := q.QueryContext(ctx, "XA RECOVER")
	if err != nil {
		return nil, fmt.Errorf("list prepared XA transactions: %w", access(err))
	}
	defer rows.Close()
	var names [][]byte
	for rows.Next() {
		var format, gtrid, bqual int64
		var data []byte
		if err := rows.Scan(&format, &gtrid, &bqual, &data); err != nil {
			return nil, fmt.Errorf("list prepared XA transactions: %w", err)
		}
		if gtrid < 0 || bqual < 0 || gtrid > 64 || bqual > 64 || int(gtrid+bqual) > len(data) {
			return nil, fmt.Errorf("list prepared XA transactions: a name of %d and %d bytes makes no sense", gtrid, bqual)
		}
		names = append(names, makeXID(uint32(format), data[:gtrid], data[gtrid:gtrid+bqual]))
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list prepared XA transactions: %w", err)
	}
	return names, nil
}

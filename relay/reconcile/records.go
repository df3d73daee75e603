package reconcile

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/towpath/towpath/canal"
)

// Inbox says where a consumer's records are.
type Inbox struct {
	DB       *sql.DB // sessions of checkpoint.Connect
	Table    string  // schema.table
	Consumer string
}

// record is what a consumer has noted of a message.
type record struct {
	id        string
	content   [32]byte
	processed time.Time
}

const recordPage = 5000

// layout of times in SQL.
const layout = "2006-01-02 15:04:05.000000"

func (in Inbox) table() string {
	schema, name, two := strings.Cut(in.Table, ".")
	if !two {
		return canal.Quote(in.Table)
	}
	return canal.Quote(schema) + "." + canal.Quote(name)
}

// oldest is when the oldest record that is left was written, zero for none:
// retention may have removed what is older.
func (in Inbox) oldest(ctx context.Context) (time.Time, error) {
	var text sql.NullString
	if err := in.DB.QueryRowContext(ctx, "SELECT MIN(processed_at) FROM "+in.table()+" WHERE consumer=?", in.Consumer).Scan(&text); err != nil {
		return time.Time{}, fmt.Errorf("look for the oldest record of %s: %w", in.Table, err)
	}
	if !text.Valid {
		return time.Time{}, nil
	}
	return time.Parse(layout, text.String)
}

// records reads the records written since a time in the order of their ids,
// page by page; next returns false at the end.
func (in Inbox) records(ctx context.Context, since time.Time) (next func() (record, bool, error)) {
	var page []record
	after, end := "", false
	return func() (record, bool, error) {
		if len(page) == 0 && !end {
			var err error
			if page, err = in.page(ctx, after, since); err != nil {
				return record{}, false, fmt.Errorf("read records of %s: %w", in.Table, err)
			}
			end = len(page) < recordPage
		}
		if len(page) == 0 {
			return record{}, false, nil
		}
		r := page[0]
		page, after = page[1:], r.id
		return r, true, nil
	}
}

func (in Inbox) page(ctx context.Context, after string, since time.Time) ([]record, error) {
	rows, err := in.DB.QueryContext(ctx, fmt.Sprintf(`SELECT message_id, content, processed_at FROM %s FORCE INDEX (PRIMARY)
		WHERE consumer=? AND message_id > ? AND processed_at >= ? ORDER BY message_id LIMIT %d`, in.table(), recordPage),
		in.Consumer, []byte(after), since.UTC().Format(layout))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	page := make([]record, 0, recordPage)
	var id, content sql.RawBytes
	var processed string
	for rows.Next() {
		if err := rows.Scan(&id, &content, &processed); err != nil {
			return nil, err
		}
		r := record{id: string(id)}
		copy(r.content[:], content)
		if r.processed, err = time.Parse(layout, processed); err != nil {
			return nil, err
		}
		page = append(page, r)
	}
	return page, rows.Err()
}

package configs

import (
	"fmt"
	"slices"
	"testing"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

func TestThePracticesFitTheirTables(t *testing.T) {
	for _, kind := range []lab.Kind{lab.MySQL97, lab.MariaDB1011} {
		for _, p := range []struct {
			config, sql, insert string
			writes              []string
		}{
			{"bills", "practice-a-bills", "bill_id = 1, event_type = 'settled', payload = '{}'",
				[]string{"status", "locked_until", "retry_count", "next_retry_at"}},
			{"orders", "practice-b-orders", "msg_id = 'm', biz_type = 'order.created', biz_id = '1', payload = '{}'",
				[]string{"status", "sent_at", "retry_count", "next_retry_time"}},
			{"payments", "practice-c-payments", "event_id = 'e', aggregate_id = 'a', payment_id = 'p', event_type = 'paid', payload = '{}'",
				[]string{"status", "lease_expires_at", "attempts", "next_attempt_at"}},
		} {
			t.Run(fmt.Sprintf("%s/%s", kind, p.config), func(t *testing.T) {
				table := mustLoad(t, p.config+".yaml").Tables[0]
				if got := table.Writes(); !slices.Equal(got, p.writes) {
					t.Errorf("writes %v, want %v", got, p.writes)
				}
				_, db := labtest.DB(t, labtest.MySQL(t, lab.MySQLOptions{Kind: kind}))
				name := table.Tables[0].Table
				for _, statement := range []string{
					string(readFile(t, "../deploy/sql/"+p.sql+".sql")),
					"INSERT INTO " + name + " SET " + p.insert,
				} {
					if _, err := db.ExecContext(t.Context(), statement); err != nil {
						t.Fatal(err)
					}
				}
				// Every column is there, and a row is born as one to be sent.
				for _, column := range slices.Concat(table.Reads(), table.Writes()) {
					if _, err := db.ExecContext(t.Context(), "SELECT `"+column+"` FROM "+name); err != nil {
						t.Error(err)
					}
				}
				var status string
				err := db.QueryRowContext(t.Context(), "SELECT `"+table.Status.Column+"` FROM "+name).Scan(&status)
				if err != nil || status != string(table.Status.Pending) {
					t.Errorf("a new row has the status %q, %v, want %q", status, err, table.Status.Pending)
				}
				if to := table.Retention.ArchiveTo; to != (Pattern{}) {
					if _, err := db.ExecContext(t.Context(), "INSERT INTO "+to.Table+" SELECT * FROM "+name); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}

package inbox

import (
	"context"
	"errors"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Errors of the servers.
const (
	erDuplicateKey    = 1062
	erLockWaitTimeout = 1205
	erDeadlock        = 1213
)

func isDuplicateKey(err error) bool { return serverError(err) == erDuplicateKey }

// isContention says that other transactions were in the way: the same one may
// well succeed at once.
func isContention(err error) bool {
	n := serverError(err)
	return n == erDeadlock || n == erLockWaitTimeout
}

func serverError(err error) uint16 {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

// isOutage says whether an attempt failed because of the database rather than
// because of the message: by where it failed, or because the database does not
// answer now.
func (in *Inbox) isOutage(ctx context.Context, err error) bool {
	var own *databaseError
	if errors.As(err, &own) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return in.db.PingContext(ctx) != nil
}

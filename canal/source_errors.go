package canal

import (
	"errors"
	"fmt"
	"strings"

	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/towpath/towpath/checkpoint"
)

// Errors of a server or an account that no retry mends: their text names the remedy.
var (
	ErrBinlogOff  = errors.New("the server writes no binary log: set log_bin")
	ErrEngine     = errors.New("the server keeps its binary log in a storage engine, which this program cannot read: unset binlog_storage_engine")
	ErrAccess     = errors.New("the server refused the account: check user and password")
	ErrPrivilege  = errors.New("the account may not read the binary log: grant REPLICATION SLAVE and REPLICATION CLIENT (MariaDB: also BINLOG MONITOR)")
	ErrTLS        = errors.New("the server offers no TLS: enable it, or set tls.mode to preferred")
	ErrServerID   = errors.New("another replica with this server_id or UUID took over the stream: set a server_id of its own for each")
	ErrDamaged    = errors.New("an event is damaged: check the server's binlog files (mysqlbinlog --verify-binlog-checksum) and the network")
	ErrPacketSize = errors.New("an event is larger than the server sends: raise max_allowed_packet on the server")
)

// GapKind says why a position cannot be continued.
type GapKind string

// The kinds of gaps.
const (
	GapPurged      GapKind = "purged"       // the server no longer has what follows the position
	GapOtherServer GapKind = "other server" // another server answers, and it cannot continue the position
	GapAhead       GapKind = "ahead"        // the position is past the server's last event
	GapHistory     GapKind = "history"      // same server, another history: reset or restored
	GapXA          GapKind = "xa"           // for the relay: XA COMMIT of a transaction that nobody prepared here
)

// GapError says that the stream cannot be continued at a position: rows may
// have been missed, and only the tables themselves can tell which.
type GapError struct {
	Kind   GapKind
	From   checkpoint.Position
	Detail string
}

func (e *GapError) Error() string {
	return fmt.Sprintf("continue at %s: gap (%s): %s", e.From, e.Kind, e.Detail)
}

// HaltReason says what a stream could not read with certainty.
type HaltReason string

// The reasons to halt.
const (
	HaltIncident    HaltReason = "incident"    // the server itself says that events may be missing
	HaltUnknown     HaltReason = "unknown"     // an event of an unknown type, which may carry rows
	HaltUndecodable HaltReason = "undecodable" // an event of a table of ours, or of the group's frame, that makes no sense
)

// HaltError says that the stream met something that it can neither read nor
// pass (promise P2). Given back as [Start].Skip, its Mark lets the next Stream
// pass this one place: instead of what it may have held, the tables that it may
// have touched are reported for a sweep.
type HaltError struct {
	Reason HaltReason
	Mark   checkpoint.Mark // end of the event or group that cannot be read
	Detail string          // what it is, without any row's data
}

func (e *HaltError) Error() string {
	return fmt.Sprintf("read binlog up to %s:%d: halt (%s): %s", e.Mark.File, e.Mark.Offset, e.Reason, e.Detail)
}

// classify turns what the library reports into the errors above; what it does
// not know is returned as it is, for a retry.
func classify(err error, from checkpoint.Position) error {
	var my *gomysql.MyError
	if !errors.As(err, &my) {
		switch {
		case err == nil:
		case strings.Contains(err.Error(), "does not support TLS required by the client"):
			return ErrTLS
		case strings.Contains(err.Error(), replication.ErrChecksumMismatch.Error()), strings.Contains(err.Error(), "invalid data size"):
			return ErrDamaged
		default:
			err = fmt.Errorf("read the binlog: %w", err) // the library's errors print a stack
		}
		return err
	}
	if my.Code == gomysql.ER_MASTER_FATAL_ERROR_READING_BINLOG {
		return classifyDump(my.Message, from)
	}
	return classifyCode(my.Code, my.Message, fmt.Errorf("read the binlog: %w", err))
}

// classifyCode gives a server's refusal its type; err is what is returned for
// any other code.
func classifyCode(code uint16, message string, err error) error {
	switch code {
	case gomysql.ER_ACCESS_DENIED_ERROR, gomysql.ER_ACCESS_DENIED_NO_PASSWORD_ERROR, gomysql.ER_DBACCESS_DENIED_ERROR:
		return fmt.Errorf("%w: %s", ErrAccess, message)
	case gomysql.ER_SPECIFIC_ACCESS_DENIED_ERROR:
		return fmt.Errorf("%w: %s", ErrPrivilege, message)
	case gomysql.ER_NO_BINARY_LOGGING:
		return ErrBinlogOff
	}
	return err
}

// classifyDump tells the many causes of error 1236 apart, by the only thing
// that differs: their text.
func classifyDump(text string, from checkpoint.Position) error {
	gap := func(kind GapKind) error { return &GapError{Kind: kind, From: from, Detail: text} }
	lower := strings.ToLower(text)
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(lower, p) {
				return true
			}
		}
		return false
	}
	switch {
	case has("binary log is not open", "binary logging is not enabled"):
		return ErrBinlogOff
	case has("same server_uuid", "same server_id", "server_uuid/server_id"):
		return ErrServerID
	case has("requested slave start position", "not in the master's binlog", "more gtids than", "diverg"):
		// MariaDB, of a GTID that it has purged: "Could not find GTID state requested by slave in any binlog files".
		return gap(GapHistory)
	case has("purged", "could not find first log", "could not find gtid state", "no longer available"):
		return gap(GapPurged)
	case has("position > file size", "start from impossible position", "impossible position"):
		return gap(GapAhead)
	case has("bogus data", "entry exceeded max_allowed_packet") && !from.IsZero():
		// In the middle of an event: the file is not the one that the position was taken in.
		return gap(GapHistory)
	case has("max_allowed_packet"):
		return ErrPacketSize
	}
	return fmt.Errorf("dump binlog: %s", text)
}

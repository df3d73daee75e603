package checkpoint

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Broker says where a leader holds its fences, so that a successor can take
// the same ones.
type Broker struct {
	Cluster string // name of the RabbitMQ cluster; empty when none was recorded
	VHost   string
	Lanes   int
}

// Lease is a stream's lease as its row has it. The zero value, but for the
// stream, is one that nobody has held.
type Lease struct {
	Stream   string
	Term     uint64
	Holder   string        // empty: resigned, or never held
	Left     time.Duration // until it expires, by the database's clock; negative: since when it has
	Renewed  string        // when it was renewed last, by the database's clock: "2006-01-02 15:04:05.000000"
	Behind   bool          // the database's clock stands before Renewed: it was set back, so Left cannot be trusted
	LockedOn string        // identity of the server whose GET_LOCK the holder holds too; empty: of none
	Broker   Broker
}

// Held reports whether somebody holds the lease by the database's clock.
func (l Lease) Held() bool { return l.Holder != "" && l.Left > 0 }

// Takeover is a leadership that has just begun.
type Takeover struct {
	Fence      Fence
	Server     string // identity of the server that it happened on: where this leadership writes
	Old        Lease  // as it was before
	Checkpoint Checkpoint
}

// LeaseSession is the elector's own SQL session. It carries the server lock
// that tells a standby of its death at once. It is not safe for use by several
// goroutines. After an error that is none of this package's and
// not [Answered] it must be closed.
type LeaseSession struct {
	store  *Store
	conn   *sql.Conn
	server string
}

var (
	// ErrHeld says that the lease is not free.
	ErrHeld = errors.New("the lease is held")
	// ErrLockRefused says that this server gives no locks, or not to this user.
	ErrLockRefused = errors.New("the server refuses the lease's lock")
)

// LeaseSession opens a session for the lease.
func (s *Store) LeaseSession(ctx context.Context) (*LeaseSession, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("open the lease's session: %w", err)
	}
	_, server, err := Identify(ctx, conn)
	if err != nil {
		discard(conn)
		return nil, fmt.Errorf("open the lease's session: %w", err)
	}
	return &LeaseSession{store: s, conn: conn, server: server}, nil
}

// Close ends the session, and with it the lock.
func (l *LeaseSession) Close() { discard(l.conn) }

// Server is the identity of the server that the session is on.
func (l *LeaseSession) Server() string { return l.server }

// Ping fails when the session, and so the lock, is gone.
func (l *LeaseSession) Ping(ctx context.Context) error {
	if err := l.conn.PingContext(ctx); err != nil {
		return fmt.Errorf("ping the lease's session: %w", err)
	}
	return nil
}

const leaseColumns = `term, holder, TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires_at), renewed_at,
	UTC_TIMESTAMP(6) < renewed_at, locked_on, broker_cluster, broker_vhost, broker_lanes`

// Lease reads a stream's lease, without a lock.
func (s *Store) Lease(ctx context.Context, stream string) (Lease, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return Lease{}, fmt.Errorf("read lease: %w", err)
	}
	defer conn.Close()
	return s.readLease(ctx, conn, stream, "")
}

// Read reads a stream's lease, without a lock.
func (l *LeaseSession) Read(ctx context.Context, stream string) (Lease, error) {
	return l.store.readLease(ctx, l.conn, stream, "")
}

func (s *Store) readLease(ctx context.Context, conn *sql.Conn, stream, lock string) (Lease, error) {
	lease := Lease{Stream: stream}
	var left int64
	err := conn.QueryRowContext(ctx, s.sql("SELECT "+leaseColumns+" FROM {schema}.lease WHERE stream=?"+lock), stream).
		Scan(&lease.Term, &lease.Holder, &left, &lease.Renewed, &lease.Behind, &lease.LockedOn,
			&lease.Broker.Cluster, &lease.Broker.VHost, &lease.Broker.Lanes)
	if errors.Is(err, sql.ErrNoRows) {
		return lease, nil
	}
	if err != nil {
		return lease, fmt.Errorf("read lease: %w", err)
	}
	lease.Left = time.Duration(left) * time.Microsecond
	return lease, nil
}

// Claim is a wish to lead.
type Claim struct {
	Stream string
	Holder string
	TTL    time.Duration
	// Locked says that the session holds the lock: proof that the leader's
	// session is dead, if the lease says that the leader had locked on the
	// server that this session is on. The lock of any other server is none
	// (a cluster's endpoint, a proxy, a moved address).
	Locked bool
	// Depose takes the lease also from who holds it, as an operator may: the
	// leader finds out at its next write or renewal. Only who publishes nothing
	// may claim so (promise P4).
	Depose bool
	// Unmoved is the lease as the claimant has seen it for a whole ttl of its
	// own clock. It frees a lease when the database's clock was set back, by
	// which a dead leader's lease would last that much longer.
	Unmoved Lease
}

// free says whether a claim may have a lease.
func (c Claim) free(l Lease, server string) bool {
	switch {
	case c.Depose, !l.Held(), l.Holder == c.Holder: // its own: a claim whose COMMIT was not answered
		return true
	case c.Locked && l.LockedOn == server:
		return true
	default:
		return l.Behind && l.Term == c.Unmoved.Term && l.Renewed == c.Unmoved.Renewed
	}
}

// Take begins a new term if the lease is free, else the error is [ErrHeld]
// and the takeover's Old the lease. It is one READ COMMITTED transaction that
// raises the term and then reads the checkpoint (promise P4): a write of the
// old leader is either committed before, and read, or it will find the new
// term and fail.
func (l *LeaseSession) Take(ctx context.Context, c Claim) (Takeover, error) {
	s := l.store
	_, err := l.conn.ExecContext(ctx, s.sql(`INSERT IGNORE INTO {schema}.lease (stream, term, holder, acquired_at, renewed_at, expires_at)
		SELECT ?, 0, '', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) FROM DUAL
		WHERE NOT EXISTS (SELECT 1 FROM {schema}.lease WHERE stream=?)`), c.Stream, c.Stream)
	if err != nil {
		return Takeover{}, fmt.Errorf("take lease: %w", err)
	}
	if _, err := l.conn.ExecContext(ctx, "START TRANSACTION"); err != nil {
		return Takeover{}, fmt.Errorf("take lease: %w", err)
	}
	t, err := l.take(ctx, c)
	if err != nil {
		rollback(ctx, l.conn)
		return t, err
	}
	if _, err := l.conn.ExecContext(ctx, "COMMIT"); err != nil {
		return Takeover{}, fmt.Errorf("take lease: %w", err)
	}
	return t, nil
}

func (l *LeaseSession) take(ctx context.Context, c Claim) (Takeover, error) {
	s := l.store
	old, err := s.readLease(ctx, l.conn, c.Stream, " FOR UPDATE")
	if err != nil {
		return Takeover{}, fmt.Errorf("take lease: %w", err)
	}
	if !c.free(old, l.server) {
		return Takeover{Old: old}, fmt.Errorf("%w by %s", ErrHeld, old.Holder)
	}
	lockedOn := "" // never inherited: it would name a lock that this leader has not
	if c.Locked {
		lockedOn = l.server
	}
	f := Fence{Stream: c.Stream, Term: old.Term + 1, Holder: c.Holder}
	_, err = l.conn.ExecContext(ctx, s.sql(`UPDATE {schema}.lease SET term=?, holder=?, locked_on=?, acquired_at=UTC_TIMESTAMP(6),
		renewed_at=UTC_TIMESTAMP(6), expires_at=UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND WHERE stream=?`),
		f.Term, f.Holder, lockedOn, c.TTL.Microseconds(), c.Stream)
	if err != nil {
		return Takeover{}, fmt.Errorf("take lease: raise the term: %w", err)
	}
	saved, err := s.readCheckpoint(ctx, l.conn, c.Stream)
	if err != nil {
		return Takeover{}, fmt.Errorf("take lease: %w", err)
	}
	return Takeover{Fence: f, Server: l.server, Old: old, Checkpoint: saved}, nil
}

// Renew makes the lease last for ttl from now by the database's clock.
func (l *LeaseSession) Renew(ctx context.Context, f Fence, ttl time.Duration) error {
	return l.update(ctx, f, "renew lease", `renewed_at=UTC_TIMESTAMP(6), expires_at=UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND`, ttl.Microseconds())
}

// RecordLock records that the session holds the lock, from where a standby may
// take it for proof; or, with held false, that no session does.
func (l *LeaseSession) RecordLock(ctx context.Context, f Fence, held bool) error {
	server := ""
	if held {
		server = l.server
	}
	return l.update(ctx, f, "record the lock", `locked_on=?`, server)
}

// RecordBroker records where the leader holds its fences.
func (l *LeaseSession) RecordBroker(ctx context.Context, f Fence, b Broker) error {
	return l.update(ctx, f, "record the broker", `broker_cluster=?, broker_vhost=?, broker_lanes=?`, b.Cluster, b.VHost, b.Lanes)
}

// Resign gives the lease up, so that a standby can take it at once. What it
// says of the broker stays: a successor takes those fences too.
func (l *LeaseSession) Resign(ctx context.Context, f Fence) error {
	return l.update(ctx, f, "resign lease", `holder='', locked_on='', expires_at=UTC_TIMESTAMP(6)`)
}

func (l *LeaseSession) update(ctx context.Context, f Fence, what, set string, args ...any) error {
	args = append(args, f.Stream, f.Term, f.Holder)
	r, err := l.conn.ExecContext(ctx, l.store.sql("UPDATE {schema}.lease SET "+set+" WHERE stream=? AND term=? AND holder=?"), args...)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if n, err := r.RowsAffected(); err != nil || n == 0 {
		return errors.Join(fmt.Errorf("%s: %w: no longer %s", what, ErrFenced, f), err)
	}
	return nil
}

// Lock waits up to wait, in whole seconds, for the stream's lock on this
// server and reports whether the session holds it now. A server may refuse
// locks altogether ([ErrLockRefused]): some clusters do.
func (l *LeaseSession) Lock(ctx context.Context, stream string, wait time.Duration) (bool, error) {
	var got sql.NullInt64
	seconds := int64((wait + time.Second - 1) / time.Second) // finite: MariaDB refuses -1
	err := l.conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, ?)", l.lockName(stream), seconds).Scan(&got)
	switch {
	case Answered(err):
		return false, fmt.Errorf("%w: %w", ErrLockRefused, err)
	case err != nil:
		return false, fmt.Errorf("take the lease's lock: %w", err)
	case !got.Valid:
		return false, ErrLockRefused
	}
	return got.Int64 == 1, nil
}

// EndLockHolder ends the session that holds the lock on this server, if
// another one does: that of a leader who hangs. The server lets a user end the
// sessions of the same user without further rights.
func (l *LeaseSession) EndLockHolder(ctx context.Context, stream string) error {
	var holder, self sql.NullInt64
	err := l.conn.QueryRowContext(ctx, "SELECT IS_USED_LOCK(?), CONNECTION_ID()", l.lockName(stream)).Scan(&holder, &self)
	if err != nil {
		return fmt.Errorf("find the session that holds the lease's lock: %w", err)
	}
	if !holder.Valid || holder.Int64 == self.Int64 {
		return nil
	}
	_, err = l.conn.ExecContext(ctx, fmt.Sprintf("KILL CONNECTION %d", holder.Int64))
	switch {
	case err == nil, hasNumber(err, errNoThread): // it ended by itself
		return nil
	case Answered(err):
		return fmt.Errorf("%w: session %d holds it and cannot be ended: %w", ErrLockRefused, holder.Int64, err)
	default:
		return fmt.Errorf("end session %d, which holds the lease's lock: %w", holder.Int64, err)
	}
}

func (l *LeaseSession) lockName(stream string) string {
	return lockName("lease", l.store.schema, stream)
}

const errNoThread = 1094

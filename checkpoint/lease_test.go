package checkpoint

import (
	"errors"
	"testing"
	"time"
)

func TestAHeldLeaseIsNotTaken(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		s := b.store()
		l := b.lease(s)
		first := b.take(l, "a")
		stale := Lease{Term: first.Fence.Term, Renewed: b.value("SELECT renewed_at FROM {schema}.lease")}
		claim := Claim{Stream: "shop", Holder: "b", TTL: time.Minute, Unmoved: stale}
		refused := func(why string) {
			t.Helper()
			got, err := l.Take(t.Context(), claim)
			if !errors.Is(err, ErrHeld) || got.Old.Holder != "a" || got.Old.Left < 50*time.Second {
				t.Errorf("%s: got %+v, %v", why, got, err)
			}
		}
		refused("the database's clock is right, so an unmoved lease proves nothing")
		claim.Locked = true
		refused("the holder has recorded no lock")
		b.exec("UPDATE {schema}.lease SET locked_on='another server'")
		refused("the lock is that of another server")
		if err := l.RecordLock(t.Context(), first.Fence, true); err != nil {
			t.Fatal(err)
		}
		claim.Locked = false
		refused("without the lock")
		claim.Locked = true
		taken, err := l.Take(t.Context(), claim)
		if err != nil || taken.Fence.Term != 2 || taken.Old.LockedOn != l.Server() || !taken.Old.Held() {
			t.Errorf("with the lock: %+v, %v", taken, err)
		}
		if got := b.value("SELECT locked_on FROM {schema}.lease"); got != l.Server() {
			t.Errorf("the new holder's lock is recorded as on %q", got)
		}
	})
}

func TestALeaseTakenByExpiryNamesNoLock(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		l := b.lease(b.store())
		first := b.take(l, "a")
		if err := l.RecordLock(t.Context(), first.Fence, true); err != nil {
			t.Fatal(err)
		}
		b.exec("UPDATE {schema}.lease SET expires_at=UTC_TIMESTAMP(6)")
		second := b.take(l, "b")
		if second.Old.LockedOn != l.Server() || second.Old.Left > 0 {
			t.Errorf("the old lease was %+v", second.Old)
		}
		if got := b.value("SELECT locked_on FROM {schema}.lease"); got != "" {
			t.Errorf("it names a lock on %q, which the new holder does not have", got)
		}
	})
}

func TestALeaseLeftBehindByABackwardClockIsTakenWhenUnmoved(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		l := b.lease(b.store())
		b.take(l, "a")
		b.exec("UPDATE {schema}.lease SET renewed_at=renewed_at + INTERVAL 1 HOUR, expires_at=expires_at + INTERVAL 1 HOUR")
		seen, err := l.Read(t.Context(), "shop")
		if err != nil || !seen.Behind {
			t.Fatalf("got %+v, %v", seen, err)
		}
		claim := Claim{Stream: "shop", Holder: "b", TTL: time.Minute}
		if _, err := l.Take(t.Context(), claim); !errors.Is(err, ErrHeld) {
			t.Errorf("not watched: %v", err)
		}
		claim.Unmoved = Lease{Term: seen.Term, Renewed: "2020-01-01 00:00:00.000000"}
		if _, err := l.Take(t.Context(), claim); !errors.Is(err, ErrHeld) {
			t.Errorf("renewed meanwhile: %v", err)
		}
		claim.Unmoved = seen
		if _, err := l.Take(t.Context(), claim); err != nil {
			t.Errorf("unmoved: %v", err)
		}
	})
}

// The COMMIT of a takeover was done, its answer lost: nobody leads, and the row
// names this process.
func TestAHolderTakesItsOwnLeaseAgainUnderANewTerm(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		l := b.lease(b.store())
		b.take(l, "a")
		if again := b.take(l, "a"); again.Fence.Term != 2 {
			t.Errorf("got %+v", again)
		}
	})
}

func TestTheLockBelongsToOneSessionAndEndsWithIt(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench) {
		s := b.store()
		a, other := b.lease(s), b.lease(s)
		lock := func(l *LeaseSession, want bool) {
			t.Helper()
			if got, err := l.Lock(t.Context(), "shop", 0); err != nil || got != want {
				t.Fatalf("got %v, %v, want %v", got, err, want)
			}
		}
		lock(a, true)
		lock(other, false)
		if got, err := other.Lock(t.Context(), "another stream", 0); err != nil || !got {
			t.Errorf("another stream's lock: %v, %v", got, err)
		}
		if err := a.EndLockHolder(t.Context(), "shop"); err != nil {
			t.Fatal(err)
		}
		if err := a.Ping(t.Context()); err != nil {
			t.Errorf("a session ended itself: %v", err)
		}
		if err := other.EndLockHolder(t.Context(), "shop"); err != nil {
			t.Fatal(err)
		}
		if got, err := other.Lock(t.Context(), "shop", 2*time.Second); err != nil || !got {
			t.Errorf("after the holder was ended: %v, %v", got, err)
		}
		if err := a.Ping(t.Context()); err == nil {
			t.Error("the session that held the lock lives")
		}
		if err := other.EndLockHolder(t.Context(), "nobody's stream"); err != nil {
			t.Error(err)
		}
	})
}

func TestLockNamesFitTheServer(t *testing.T) {
	long := string(make([]byte, 300))
	if n := len(lockName("lease", long, long)); n >= 64 {
		t.Errorf("%d characters", n)
	}
	if lockName("lease", "a", "b") == lockName("lease", "ab", "") {
		t.Error("two streams have one lock")
	}
}

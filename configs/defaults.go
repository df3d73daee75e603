package configs

import "time"

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

// defaults is a configuration of which only the required keys are missing.
func defaults() Config {
	return Config{
		Source: Source{
			TLS:              SourceTLS{Mode: TLSPreferred},
			TransactionBytes: 8 * mib,
		},
		State: State{Schema: "towpath"},
		Broker: Broker{
			Connections:    2,
			InFlight:       256,
			InFlightBytes:  16 * mib,
			MaxMessageSize: 16 * mib,
			Heartbeat:      10 * time.Second,
			ConfirmTimeout: 120 * time.Second,
		},
		Checkpoint:   Checkpoint{Every: 200 * time.Millisecond, Idle: 10 * time.Second},
		Lease:        Lease{TTL: 10 * time.Second, FastTakeover: true, YieldAfter: 60 * time.Second},
		DrainTimeout: 10 * time.Second,
		HTTP:         HTTP{Listen: "127.0.0.1:8973"},
		Log:          Log{Level: LogInfo, Format: LogJSON},
	}
}

// defaultTable is what each entry of tables begins as. Start and OnGap depend
// on AfterPublish: see settle.
func defaultTable() Table {
	return Table{
		Publish:   Publish{Persistent: true, Mandatory: true},
		Ordering:  OrderStrict,
		Retry:     Retry{Base: 30 * time.Second, Factor: 2, Max: 480 * time.Second, Attempts: 5, Jitter: 0.2},
		MaxParked: 100_000,
		Fallback:  Fallback{Every: 30 * time.Second, Batch: 500},
	}
}

// settle fills the defaults that depend on after_publish. A keep table has no
// default start: nobody but its owner knows which of its rows were sent.
func (t *Table) settle() {
	sweepable := t.AfterPublish == Mark || t.AfterPublish == Delete
	if t.Start == "" && sweepable {
		t.Start = StartTable
	}
	if t.OnGap == "" {
		t.OnGap = GapHalt
		if sweepable {
			t.OnGap = GapSweep
		}
	}
}

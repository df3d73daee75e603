module github.com/towpath/towpath

go 1.26.0

require (
	github.com/go-mysql-org/go-mysql v1.16.0
	github.com/go-sql-driver/mysql v1.10.1
	github.com/google/uuid v1.6.0
	github.com/klauspost/compress v1.20.1
	github.com/prometheus/client_golang v1.25.0
	github.com/prometheus/common v0.74.0
	github.com/rabbitmq/amqp091-go v1.16.0
	github.com/schollz/progressbar/v3 v3.19.1
	github.com/spf13/cobra v1.10.2
	go.uber.org/goleak v1.3.0
	go.uber.org/zap v1.28.0
	go.uber.org/zap/exp v0.3.0
	golang.org/x/sys v0.50.0
	golang.org/x/term v0.48.0
	golang.org/x/text v0.44.0
	gopkg.in/yaml.v3 v3.0.1
)

require (
	filippo.io/edwards25519 v1.2.0
	github.com/beorn7/perks v1.0.1
	github.com/cespare/xxhash/v2 v2.3.0
	github.com/coreos/go-semver v0.3.1
	github.com/goccy/go-json v0.10.6
	github.com/inconshreveable/mousetrap v1.1.0
	github.com/kylelemons/godebug v1.1.0
	github.com/mitchellh/colorstring v0.0.0-20190213212951-d06e56a500db
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822
	github.com/pandatix/go-abnf v0.5.5
	github.com/pingcap/errors v0.11.5-0.20260310054046-9c8b3586e4b2
	github.com/pingcap/log v1.1.1-0.20260227082333-572e590d08f1
	github.com/pingcap/tidb/pkg/parser v0.0.0-20260504140133-511dba1dbe17
	github.com/prometheus/client_model v0.6.3
	github.com/prometheus/procfs v0.22.0
	github.com/rivo/uniseg v0.4.7
	github.com/shopspring/decimal v1.4.0
	github.com/spf13/pflag v1.0.9
	go.uber.org/atomic v1.11.0
	go.uber.org/multierr v1.11.0
	google.golang.org/protobuf v1.36.12
	gopkg.in/natefinch/lumberjack.v2 v2.2.1
)

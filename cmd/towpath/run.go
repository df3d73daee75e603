package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"
	"go.uber.org/zap/zapcore"

	"github.com/towpath/towpath/configs"
	"github.com/towpath/towpath/relay"
)

func newRun() *cobra.Command {
	c := &cobra.Command{
		Use:   "run -c FILE",
		Short: "Relay until SIGTERM or SIGINT",
		Long: `Relays the stream that the file describes, or stands by while another process does.

On SIGTERM or SIGINT it stops reading, settles what is under way within drain_timeout, saves the position and
resigns, so that a standby goes on at once. A second signal ends it at once; nothing is lost, a bounded number of
messages is sent again under the same message ids.`,
		Example: "  towpath run -c /etc/towpath/shop.yaml",
		Args:    noArguments,
	}
	load := configFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		config, err := load()
		if err != nil {
			return err
		}
		return runRelay(c.Context(), config)
	}
	return c
}

func runRelay(ctx context.Context, config *configs.Config) error {
	log, err := newLogger(config.Log)
	if err != nil {
		return err
	}
	defer func() { _ = log.Sync() }() // stderr may refuse it, and nobody is left to tell
	slog.SetDefault(slog.New(zapslog.NewHandler(log.Core())))

	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r := relay.New(config, registry, log)
	server, err := listen(config.HTTP, r, registry, log)
	if err != nil {
		return err
	}
	r.Introduce(relay.About{Version: version().Version, HTTP: server.reached()})
	log.Info("starting", zap.String("version", version().Version), zap.String("stream", config.Name),
		zap.String("config", config.Hash()), zap.Stringer("http", server.address()))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		served <- server.serve(ctx)
		cancel()
	}()
	told := make(chan error, 1)
	go func() { told <- systemd().follow(ctx, r.Ready) }()
	err = r.Run(ctx)
	cancel()
	if err := <-told; err != nil {
		log.Warn("systemd is not told how the service fares", zap.Error(err))
	}
	if err = errors.Join(err, <-served); err != nil {
		return fmt.Errorf("run stream %s: %w", config.Name, err)
	}
	log.Info("stopped")
	return nil
}

func newLogger(c configs.Log) (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(string(c.Level))
	if err != nil {
		return nil, err
	}
	z := zap.NewProductionConfig()
	z.Level = zap.NewAtomicLevelAt(level)
	z.Encoding = string(c.Format)
	z.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	z.EncoderConfig.EncodeDuration = zapcore.StringDurationEncoder
	z.DisableCaller, z.DisableStacktrace = true, true
	z.OutputPaths, z.ErrorOutputPaths = []string{"stderr"}, []string{"stderr"}
	return z.Build()
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/towpath/towpath/configs"
	"github.com/towpath/towpath/relay"
)

// side is the HTTP side of a running relay: metrics and probes.
type side struct {
	listener net.Listener
	server   *http.Server
}

// listen opens the port, so that an address that is taken ends the start.
func listen(c configs.HTTP, r *relay.Relay, gatherer prometheus.Gatherer, log *zap.Logger) (*side, error) {
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen on http.listen %s: %w; choose another address or port", c.Listen, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second}))
	mux.Handle("GET /healthz", probe(r.Healthy))
	mux.Handle("GET /readyz", probe(r.Ready))
	mux.Handle("GET /api/v1/status", bearer(c.Token, status(r)))
	return &side{listener: l, server: &http.Server{
		Handler:           http.MaxBytesHandler(mux, maxRequestBytes),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          zap.NewStdLog(log.WithOptions(zap.IncreaseLevel(zap.WarnLevel))),
	}}, nil
}

func (s *side) address() net.Addr { return s.listener.Addr() }

// reached is the address as others may reach it.
func (s *side) reached() string {
	host, port, err := net.SplitHostPort(s.listener.Addr().String())
	if err != nil {
		return ""
	}
	if addr, err := netip.ParseAddr(host); err == nil && addr.IsUnspecified() {
		if name, err := os.Hostname(); err == nil {
			host = name
		}
	}
	return net.JoinHostPort(host, port)
}

// serve answers until ctx ends.
func (s *side) serve(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { _ = s.server.Close() })()
	if err := s.server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve http: %w", err)
	}
	return nil
}

// status answers with what this process knows of the stream.
func status(r *relay.Relay) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(r.Status(q.Context())) // who does not read it will not hear of it
	})
}

// probe answers 200, or 503 with the reason.
func probe(ask func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if err := ask(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
}

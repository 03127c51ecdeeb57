package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	"golang.org/x/net/netutil"

	"godwit/internal/lasting"
)

// Bounds of what asks for metrics over HTTP: nobody there is known.
const (
	scrapersMost  = 16              // connections
	scrapeRequest = 5 * time.Second // a request has come
	scrapeAnswer  = 15 * time.Second
	scrapeIdle    = 2 * time.Minute
	scrapeHeader  = 8 << 10 // bytes
)

// listenMetrics takes the port of the configuration; nil: it names none. It comes before
// anything is touched: a port in use is the only thing wrong then.
func (a *Agent) listenMetrics(ctx context.Context) (net.Listener, error) {
	if a.config.Metrics == "" {
		return nil, nil //nolint:nilnil // nobody asked for one
	}
	ln, err := net.Listen("tcp", a.config.Metrics)
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		a.log.Warn("metrics are not served before a device of this host has that address", "error", err, "cure", "give it to one, or mend metrics")
		early := net.ListenConfig{Control: lasting.Early}
		ln, err = early.Listen(ctx, "tcp", a.config.Metrics)
	}
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", unheard(err, "metrics"))
	}
	return netutil.LimitListener(a.lasting(ln, "metrics are not served"), scrapersMost), nil
}

// serveMetrics serves GET /metrics there and nothing else, until ctx ends; nil: nowhere.
func (a *Agent) serveMetrics(ctx context.Context, ln net.Listener) {
	if ln == nil {
		return
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", a.metrics.Handler(a.state))
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: scrapeRequest, ReadTimeout: scrapeRequest, WriteTimeout: scrapeAnswer, IdleTimeout: scrapeIdle, MaxHeaderBytes: scrapeHeader,
	}
	go func() {
		if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			a.log.Error("metrics are not served any more", "error", err)
		}
	}()
	context.AfterFunc(ctx, func() { server.Close() })
}

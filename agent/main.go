package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"godwit/agent/config"
	"godwit/agent/priority"
	"godwit/internal/child"
)

func init() { child.Register("agent", childMain) }

func childMain(args []string) int {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "usage: godwit agent --config FILE")
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := Main(ctx, args[0]); err != nil {
		fmt.Fprintln(os.Stderr, "godwit agent:", err)
		return 1
	}
	return 0
}

// Main runs an agent by a configuration file until ctx ends.
func Main(ctx context.Context, path string) error {
	c, err := config.Load(path)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	a, err := New(c, log)
	if err != nil {
		return err
	}
	priority.RunBesideCopying()
	return a.Run(ctx)
}

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"godwit/agent/compare"
	"godwit/agent/record"
	"godwit/lab/scenario"
	"godwit/migration"
	"godwit/vm/guest"
)

// CompareVariable is the environment variable that has a lab check each migration: the
// agents compare the paused guest's memory at both hosts page by page (compare.Variable),
// and after it the guest checks what its workloads wrote. That takes 0.2 s to 1 s of
// downtime more, so it is for tests. Empty is no.
const CompareVariable = "GODWIT_COMPARE"

func (w *world) memoryDir() string { return filepath.Join(w.dir, "memory") }

// compares makes the agents compare, where it is asked for. It returns what their
// environment needs.
func (w *world) compares() ([]string, error) {
	if os.Getenv(CompareVariable) == "" || w.exact {
		return nil, nil
	}
	w.comparing = true
	return []string{compare.Variable + "=" + w.memoryDir()}, os.MkdirAll(w.memoryDir(), 0o700)
}

// compared says what is wrong with what the agents found at a migration; nil if nothing
// is, or nothing is compared.
func (w *world) compared(rep *record.Report) error {
	if !w.comparing || rep == nil {
		return nil
	}
	var errs []error
	found := 0
	for _, name := range []string{rep.ID + ".json", rep.ID + "-late.json"} {
		data, err := os.ReadFile(filepath.Join(w.memoryDir(), name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		found++
		var c compare.Found
		if err := errors.Join(err, json.Unmarshal(data, &c)); err != nil {
			errs = append(errs, err)
		} else if problem := c.Problem(); problem != "" {
			errs = append(errs, fmt.Errorf("migration %s: %s", rep.ID, problem))
		}
	}
	if found == 0 && rep.Outcome == migration.Completed {
		errs = append(errs, fmt.Errorf("migration %s: memory was not compared", rep.ID))
	}
	return errors.Join(errs...)
}

// verifyLimit bounds what a guest's check of its own pages takes.
const verifyLimit = time.Minute

// verified lets a guest check every page that its workloads wrote.
func (w *world) verified(ctx context.Context, g scenario.Guest) error {
	if !w.comparing || len(g.Run) == 0 || g.Agent != "godwit" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, verifyLimit)
	defer cancel()
	var v guest.Verified
	if err := w.agentOf(g.Name).client.CallGuest(ctx, g.Name, "verify", nil, &v); err != nil {
		return fmt.Errorf("guest %s checks its memory: %w", g.Name, err)
	}
	if v.Corrupt != 0 || len(v.Errors) > 0 {
		return fmt.Errorf("guest %s: %d of %d pages are not what it wrote (%s), %v", g.Name, v.Corrupt, v.Pages, v.First, v.Errors)
	}
	return nil
}

// checkMove notes what is wrong with a guest that has moved.
func (r *run) checkMove(m *move) {
	err := r.w.compared(m.report)
	if m.report != nil && m.report.Outcome == migration.Completed {
		for _, g := range r.w.scenario.Guests {
			if g.Name == m.guest {
				err = errors.Join(err, r.w.verified(context.Background(), g))
			}
		}
	}
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.troubles = append(r.troubles, err.Error())
	}
}

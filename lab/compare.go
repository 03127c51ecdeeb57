package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
// downtime more, so it is for tests. ComparePatterns is what the guest checks alone, which
// costs no downtime. Empty is no.
const (
	CompareVariable = "GODWIT_COMPARE"
	ComparePatterns = "patterns"
)

func (w *world) memoryDir() string { return filepath.Join(w.dir, "memory") }

// compares makes the agents compare, where it is asked for. It returns what their
// environment needs.
func (w *world) compares() ([]string, error) {
	asked := os.Getenv(CompareVariable)
	w.verifying = asked != ""
	if asked == "" || asked == ComparePatterns || w.exact {
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
	there, err := w.foundIn(rep.ID + ".json")
	late, lateErr := w.foundIn(rep.ID + "-late.json")
	errs := []error{err, lateErr}
	if completed := rep.Outcome == migration.Completed; completed && err == nil && there == 0 {
		errs = append(errs, fmt.Errorf("migration %s: memory was not compared", rep.ID))
	} else if completed && lateErr == nil && late == 0 && followed(rep) {
		errs = append(errs, fmt.Errorf("migration %s: %d pages followed the guest, and none of them was compared", rep.ID, rep.PostCopy.Pages))
	}
	return errors.Join(errs...)
}

// followed says whether pages of which the destination knows followed a guest: an agent that was killed meanwhile
// forgets those that it has handed on.
func followed(rep *record.Report) bool {
	return rep.PostCopy != nil && rep.PostCopy.Pages > 0 && rep.PostCopy.Refills == 0
}

// foundIn is how many pages were compared, by that file; 0 where there is none. The error says which of them differ.
func (w *world) foundIn(name string) (pages int, err error) {
	data, err := os.ReadFile(filepath.Join(w.memoryDir(), name))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	var c compare.Found
	if err := errors.Join(err, json.Unmarshal(data, &c)); err != nil {
		return 0, err
	}
	if problem := c.Problem(); problem != "" {
		return c.Pages, fmt.Errorf("migration %s: %s", c.Migration, problem)
	}
	return c.Pages, nil
}

// verifyLimit bounds what a guest's check of its own pages takes.
const verifyLimit = time.Minute

// verified lets a guest on a host check every page that its workloads wrote, which are so many: 0 of one that was booted
// again, and in which they have not begun.
func (w *world) verified(ctx context.Context, name string, on *hostAgent) (pages int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, verifyLimit)
	defer cancel()
	var v guest.Verified
	if err := on.client.CallGuest(ctx, name, "verify", nil, &v); err != nil {
		return 0, fmt.Errorf("guest %s checks its memory: %w", name, err)
	}
	if v.Corrupt != 0 || len(v.Errors) > 0 {
		return v.Pages, fmt.Errorf("guest %s: %d of %d pages are not what it wrote (%s), %v", name, v.Corrupt, v.Pages, v.First, v.Errors)
	}
	return v.Pages, nil
}

// writes says whether a guest's workloads write pages that it can check.
func writes(g scenario.Guest) bool {
	return g.Agent == "godwit" && slices.ContainsFunc(g.Run, func(line string) bool {
		return strings.HasPrefix(line, "dirty ") || strings.HasPrefix(line, "disk ")
	})
}

// checkMove notes what is wrong with a guest that has moved.
func (r *run) checkMove(m *move) {
	err := r.w.compared(m.report)
	if g, _ := r.w.scenario.Guest(m.guest); r.w.verifying && m.report != nil && m.report.Outcome == migration.Completed && writes(g) {
		_, bad := r.w.verified(context.Background(), m.guest, r.w.agentOf(m.guest))
		err = errors.Join(err, bad)
	}
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.troubles = append(r.troubles, err.Error())
	}
}

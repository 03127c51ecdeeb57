package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"godwit/internal/oneline"
	"godwit/vm"
	"godwit/vm/qemu/qmp"
)

// A disk moves by QEMU's own mirror over NBD (QEMU docs/interop/live-block-operations.rst):
// the waiting QEMU serves its empty disk, the running one copies to it. Zeroes and holes
// travel as requests to write zeroes, without their bytes. The names of jobs and nodes say
// what they are, so that an agent that was started again finds them.
const (
	mirrorPrefix = "godwit-mirror-" // job, then the disk's ID
	copyPrefix   = "godwit-copy-"   // NBD node at the source
	shortPrefix  = "gw-copy-"       // the same, where the ID leaves no room for that
	exportPrefix = "godwit-export-"
)

// longestNode is how long a node's name may be (QEMU, include/block/block_int-common.h, without its end).
const longestNode = 31

// maxMirrored is how long a disk's ID may be, so that its nodes can be named.
const maxMirrored = longestNode - len(shortPrefix)

// copyNode is the name of the NBD node of a disk's copy.
func copyNode(disk string) string {
	if len(copyPrefix+disk) > longestNode {
		return shortPrefix + disk
	}
	return copyPrefix + disk
}

// granularity is what a mirror sends again for a write of any size, bytes. It costs a bit
// of memory for each: 8 MiB for a disk of 1 TiB.
const granularity = 16 << 10

// jobLook is how often jobs are asked for that an event should tell of.
const jobLook = 50 * time.Millisecond

var _ vm.Blocks = (*Process)(nil)

// StartMirror begins to copy a disk. The mirrors of others rest meanwhile, and first go on to
// where they can: that may take as long as their paths do for some MiB.
func (p *Process) StartMirror(ctx context.Context, m vm.Mirror) error {
	resume, err := p.restMirrors(ctx)
	if err == nil {
		err = errors.Join(p.startMirror(ctx, m), resume())
	}
	if err != nil {
		return fmt.Errorf("mirror disk %s: %w", m.Disk, err)
	}
	return nil
}

func (p *Process) startMirror(ctx context.Context, m vm.Mirror) error {
	if !idRE.MatchString(m.Disk) || len(m.Disk) > maxMirrored {
		return fmt.Errorf("its id must be one word of at most %d letters", maxMirrored)
	}
	node := copyNode(m.Disk)
	server := map[string]any{"type": "unix", "path": m.Socket}
	lent, err := p.lend(ctx, node, m.Socket)
	if err != nil {
		return err
	}
	if lent {
		server = map[string]any{"type": "fd", "str": node}
	}
	err = p.qmp.Do(ctx, "blockdev-add", map[string]any{
		"driver": "nbd", "node-name": node, "export": m.Disk,
		"server":  server,
		"discard": "unmap", "detect-zeroes": "unmap",
	}, nil)
	if err != nil {
		if lent {
			p.takeBack(ctx, node)
		}
		return err
	}
	err = p.qmp.Do(ctx, "blockdev-mirror", map[string]any{
		"job-id": mirrorPrefix + m.Disk, "device": m.Disk, "target": node, "sync": "full",
		"copy-mode": "background", "auto-dismiss": false, "granularity": granularity,
		// An error at the copy ends the mirror, one at the disk is the guest's to hear of.
		"on-target-error": "report", "on-source-error": "report",
	}, nil)
	if err != nil {
		return errors.Join(err, p.dropNode(context.WithoutCancel(ctx), node))
	}
	return nil
}

func (p *Process) dropNode(ctx context.Context, node string) error {
	return p.qmp.Do(ctx, "blockdev-del", map[string]any{"node-name": node}, nil)
}

// job is a mirror as query-block-jobs tells it.
type job struct {
	ID     string `json:"device"`
	Len    int64  `json:"len"`
	Offset int64  `json:"offset"`
	Ready  bool   `json:"ready"`
	Status string `json:"status"`
	Error  string `json:"error"`
}

func (j job) ended() bool { return j.Status == "concluded" || j.Status == "null" }

// mirrorJobs are those of ours, in the order of their names.
func (p *Process) mirrorJobs(ctx context.Context) ([]job, error) {
	var jobs []job
	if err := p.qmp.Do(ctx, "query-block-jobs", nil, &jobs); err != nil {
		return nil, err
	}
	jobs = slices.DeleteFunc(jobs, func(j job) bool { return !strings.HasPrefix(j.ID, mirrorPrefix) })
	slices.SortFunc(jobs, func(a, b job) int { return strings.Compare(a.ID, b.ID) })
	return jobs, nil
}

// Mirrors returns the state of every mirror.
func (p *Process) Mirrors(ctx context.Context) ([]vm.MirrorState, error) {
	jobs, err := p.mirrorJobs(ctx)
	if err != nil {
		return nil, fmt.Errorf("look at mirrors: %w", err)
	}
	out := make([]vm.MirrorState, 0, len(jobs))
	for _, j := range jobs {
		s := vm.MirrorState{
			Disk: strings.TrimPrefix(j.ID, mirrorPrefix), Remaining: max(j.Len-j.Offset, 0), Done: j.Offset,
			Ready: j.Ready || j.Status == "ready", Ended: j.ended(), Error: oneline.Of(j.Error),
		}
		if s.Ended && s.Error == "" {
			s.Error = "it ended by itself"
		}
		out = append(out, s)
	}
	return out, nil
}

// BlockWrites changes a mirror's mode.
func (p *Process) BlockWrites(ctx context.Context, disk string) error {
	args := map[string]any{"id": mirrorPrefix + disk, "type": "mirror", "copy-mode": "write-blocking"}
	if err := p.qmp.Do(ctx, "block-job-change", args, nil); err != nil {
		return fmt.Errorf("block writes of disk %s: %w", disk, err)
	}
	return nil
}

// FinishMirrors cancels each ready mirror, which by QEMU's rules ends it in sync when the
// guest does not write, waits for that, and removes the nodes.
func (p *Process) FinishMirrors(ctx context.Context) error {
	jobs, err := p.mirrorJobs(ctx)
	if err != nil {
		return fmt.Errorf("finish mirrors: %w", err)
	}
	for _, j := range jobs {
		disk := strings.TrimPrefix(j.ID, mirrorPrefix)
		switch {
		case j.ended():
			return fmt.Errorf("finish mirror of disk %s: it broke: %s", disk, oneline.Of(j.Error))
		case !j.Ready && j.Status != "ready":
			return fmt.Errorf("finish mirror of disk %s: %d bytes were never copied", disk, j.Len-j.Offset)
		}
	}
	if err := p.endJobs(ctx, jobs, false); err != nil {
		return fmt.Errorf("finish mirrors: %w", err)
	}
	return nil
}

// DropMirrors cancels by force, and removes nodes also of mirrors that never began.
func (p *Process) DropMirrors(ctx context.Context) error {
	jobs, err := p.mirrorJobs(ctx)
	if err == nil {
		err = p.endJobs(ctx, jobs, true)
	}
	var nodes []struct {
		Name string `json:"node-name"`
	}
	if asked := p.qmp.Do(ctx, "query-named-block-nodes", map[string]any{"flat": true}, &nodes); asked != nil {
		err = errors.Join(err, asked)
	}
	for _, n := range nodes {
		if strings.HasPrefix(n.Name, copyPrefix) || strings.HasPrefix(n.Name, shortPrefix) {
			err = errors.Join(err, p.dropNode(ctx, n.Name))
		}
	}
	if err != nil {
		return fmt.Errorf("drop mirrors: %w", err)
	}
	return nil
}

// endJobs cancels jobs, all at once, and removes them and their nodes as they end. One that cannot be keeps no other
// from that.
func (p *Process) endJobs(ctx context.Context, jobs []job, force bool) error {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	events := p.qmp.Events(watching)
	var errs []error
	failed := func(j job, err error) {
		errs = append(errs, fmt.Errorf("disk %s: %w", strings.TrimPrefix(j.ID, mirrorPrefix), err))
	}
	jobs = slices.DeleteFunc(slices.Clone(jobs), func(j job) bool {
		if j.ended() {
			return false
		}
		err := p.qmp.Do(ctx, "block-job-cancel", map[string]any{"device": j.ID, "force": force}, nil)
		if err == nil || isOver(err, "cancel") {
			return false
		}
		failed(j, err)
		return true
	})
	for _, j := range jobs {
		end, err := p.awaitJob(ctx, events, j.ID)
		if err != nil {
			failed(j, err)
			continue
		}
		if end.Error != "" && !force {
			failed(j, errors.New(oneline.Of(end.Error)))
		}
		if err := p.qmp.Do(ctx, "job-dismiss", map[string]any{"id": j.ID}, nil); err != nil && !notFound(err) {
			failed(j, err)
		}
		if err := p.dropNode(ctx, copyNode(strings.TrimPrefix(j.ID, mirrorPrefix))); err != nil {
			failed(j, err)
		}
	}
	return errors.Join(errs...)
}

// isOver says that a job could not be told something because it is ending, or has ended.
func isOver(err error, verb string) bool {
	var q *qmp.Error
	return notFound(err) || errors.As(err, &q) && strings.Contains(q.Desc, "cannot accept command verb '"+verb+"'")
}

// awaitJob waits until a job has concluded. It is kept until it is dismissed, so its
// error cannot be missed.
func (p *Process) awaitJob(ctx context.Context, events <-chan vm.Event, id string) (job, error) {
	tick := time.NewTicker(jobLook)
	defer tick.Stop()
	for {
		jobs, err := p.mirrorJobs(ctx)
		if err != nil {
			return job{}, err
		}
		i := slices.IndexFunc(jobs, func(j job) bool { return j.ID == id })
		if i < 0 {
			return job{ID: id, Error: "the job is gone"}, nil
		}
		if jobs[i].ended() {
			return jobs[i], nil
		}
		for again := false; !again; {
			select {
			case e, ok := <-events:
				if !ok {
					events = nil
				}
				again = e.Name == "JOB_STATUS_CHANGE"
			case <-tick.C:
				again = true
			case <-ctx.Done():
				return job{}, fmt.Errorf("job %s has not ended (%s, %d bytes left): %w", id, jobs[i].Status, jobs[i].Len-jobs[i].Offset, ctx.Err())
			}
		}
	}
}

// notFound is the answer for a job that has ended already.
func notFound(err error) bool {
	var refused *qmp.Error
	return errors.As(err, &refused) && (refused.Class == "DeviceNotActive" || strings.Contains(refused.Desc, "not found"))
}

// ExportDisks serves disks by NBD.
func (p *Process) ExportDisks(ctx context.Context, socket string, disks []string) error {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("export disks: %w", err)
	}
	addr := map[string]any{"type": "unix", "data": map[string]any{"path": socket}}
	if err := p.qmp.Do(ctx, "nbd-server-start", map[string]any{"addr": addr}, nil); err != nil {
		return fmt.Errorf("export disks: %w", err)
	}
	for _, d := range disks {
		if err := p.exportDisk(ctx, d); err != nil {
			return fmt.Errorf("export disk %s: %w", d, errors.Join(err, p.EndExports(context.WithoutCancel(ctx))))
		}
	}
	return nil
}

// exportDisk serves one. An export is of a node: a drive's has a name of QEMU's own.
func (p *Process) exportDisk(ctx context.Context, disk string) error {
	inserted, err := p.inserted(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(inserted, func(m medium) bool { return m.id == disk })
	if i < 0 {
		return errors.New("this QEMU has no such disk")
	}
	return p.qmp.Do(ctx, "block-export-add", map[string]any{
		"type": "nbd", "id": exportPrefix + disk, "node-name": inserted[i].Node, "name": disk, "writable": true,
	}, nil)
}

// EndExports stops the NBD server, which ends its exports and connections.
func (p *Process) EndExports(ctx context.Context) error {
	err := p.qmp.Do(ctx, "nbd-server-stop", nil, nil)
	var refused *qmp.Error
	if errors.As(err, &refused) && strings.Contains(refused.Desc, "not running") {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("end exports: %w", err)
	}
	var exports []struct {
		ID string `json:"id"`
	}
	if err := p.qmp.Do(ctx, "query-block-exports", nil, &exports); err != nil {
		return fmt.Errorf("end exports: %w", err)
	}
	if len(exports) > 0 {
		return fmt.Errorf("end exports: %s is still there", exports[0].ID)
	}
	return nil
}

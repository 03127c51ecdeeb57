package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"godwit/lab/matrix"
	"godwit/migration"
)

// FaultOptions of a run of the matrix.
type FaultOptions struct {
	Out    string // directory of faults.json, faults.md and logs; "" keeps none
	Seed   uint64 // of the order of cells, and of when in its phase each fault comes
	Sample int    // cells to try, of those chosen; 0: all
	Faults []string
	Phases []string
	Again  bool   // also what OUT/faults.json has already
	Mode   string // of the migrations; "": auto. postcopy: pages are missing long enough for a fault to come meanwhile
	Tell   func(string)
	Log    *slog.Logger
}

// FaultReport is OUT/faults.json.
type FaultReport struct {
	Seed    uint64          `json:"seed"`
	Mode    string          `json:"mode,omitempty"`
	Sums    matrix.Sums     `json:"sums"`
	Results []matrix.Result `json:"results"`
}

// cellsAtMost is how many cells one world carries: what a long life of agents may
// hide or cause is not what is tried here.
const cellsAtMost = 30

// RunFaults tries the cells that opts choose and judges each. A world is built for the
// first, and again after each cell that was bad or that left something. Everything it
// made is taken down when it returns, also when ctx ends. The report has what OUT had,
// and what was measured now; it is written after every cell.
func RunFaults(ctx context.Context, opts FaultOptions) (*FaultReport, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if opts.Tell == nil {
		opts.Tell = func(string) {}
	}
	if opts.Mode != "" && !slices.Contains(migration.Modes, opts.Mode) {
		return nil, fmt.Errorf("%w: mode %q is unknown; there are: %s", ErrUnusable, opts.Mode, strings.Join(migration.Modes, ", "))
	}
	cells, err := matrix.Order(opts.Seed, opts.Faults, opts.Phases)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	if opts.Sample > 0 {
		cells = cells[:min(opts.Sample, len(cells))]
	}
	rep := &FaultReport{Seed: opts.Seed, Mode: opts.Mode, Results: []matrix.Result{}}
	if opts.Out != "" {
		if err := MakeOut(opts.Out); err != nil {
			return nil, fmt.Errorf("%w: output directory: %w", ErrUnusable, err)
		}
		if err := rep.read(opts.Out); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
		}
	}
	if !opts.Again {
		cells = slices.DeleteFunc(cells, func(c matrix.Cell) bool { return rep.find(c) >= 0 })
	}
	return rep, (&faultRun{opts: opts, rep: rep}).all(ctx, cells)
}

// faultRun is a run of the matrix under way.
type faultRun struct {
	opts  FaultOptions
	rep   *FaultReport
	world *cellWorld
	used  int // cells that the world has seen
}

func (r *faultRun) all(ctx context.Context, cells []matrix.Cell) (err error) {
	begun := time.Now()
	defer func() { err = errors.Join(err, r.down(nil), r.rep.write(r.opts.Out)) }()
	for i, cell := range cells {
		if r.world == nil {
			r.opts.Tell("building a world")
			if r.world, err = newCellWorld(ctx, r.opts.Log); err != nil {
				return fmt.Errorf("%w: %w", ErrUnusable, err)
			}
			r.world.mode, r.used = r.opts.Mode, 0
		}
		result := r.try(ctx, cell)
		if ctx.Err() != nil {
			return ctx.Err() // half a cell is none
		}
		r.used++
		if !result.OK() || r.used >= cellsAtMost {
			if derr := r.down(&result); derr != nil {
				return derr
			}
		}
		r.rep.put(result)
		r.opts.Tell(fmt.Sprintf("%d of %d, %.0f s: %s: %s", i+1, len(cells), time.Since(begun).Seconds(), cell, line(result)))
		if err := r.rep.write(r.opts.Out); err != nil {
			return err
		}
	}
	return nil
}

func (r *faultRun) try(ctx context.Context, cell matrix.Cell) matrix.Result {
	h := fnv.New64()
	fmt.Fprint(h, cell)                                                           // each cell has the same chances, whichever came before it
	seen := r.world.try(ctx, cell, rand.New(rand.NewPCG(r.opts.Seed, h.Sum64()))) //nolint:gosec // to be repeated
	return matrix.Result{Cell: cell, Seen: seen, Bad: matrix.Judge(cell, seen), At: time.Now().Format(time.RFC3339)}
}

// down takes the world down. What it left is the last cell's.
func (r *faultRun) down(last *matrix.Result) error {
	if r.world == nil {
		return nil
	}
	w := r.world
	r.world = nil
	if r.opts.Out != "" && last != nil && !last.OK() {
		w.out = filepath.Join(r.opts.Out, last.Fault+"-"+string(last.Phase))
	}
	left := w.end()
	if len(left) == 0 || last != nil && !last.OK() { // a guest that was lost leaves what it leaves
		return nil
	}
	if last == nil {
		return fmt.Errorf("left behind: %v", left)
	}
	last.Left = append(last.Left, left...)
	last.Bad = matrix.Judge(last.Cell, last.Seen)
	return nil
}

// line is a result for people.
func line(r matrix.Result) string {
	if !r.OK() {
		return fmt.Sprintf("BAD: %v", r.Bad)
	}
	text := string(r.Outcome)
	if text == "" {
		text = "forgotten"
	}
	text = fmt.Sprintf("%s, settled after %.1f s, gap %.1f s", text, r.SettledS, r.GapS)
	if r.Hit != r.Phase {
		text += ", came in " + orWords(string(r.Hit), "the end")
	}
	if r.Note != "" {
		text += " (" + r.Note + ")"
	}
	return text
}

func (f *FaultReport) find(c matrix.Cell) int {
	return slices.IndexFunc(f.Results, func(r matrix.Result) bool { return r.Cell == c })
}

func (f *FaultReport) put(r matrix.Result) {
	if i := f.find(r.Cell); i >= 0 {
		f.Results[i] = r
	} else {
		f.Results = append(f.Results, r)
	}
	f.Sums = matrix.Sum(f.Results)
}

// read takes over what an earlier run wrote.
func (f *FaultReport) read(out string) error {
	path := filepath.Join(out, "faults.json")
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	seed, mode := f.Seed, f.Mode
	if err == nil {
		f.Mode = ""
		err = json.Unmarshal(data, f)
	}
	if err == nil && f.Mode != mode {
		err = fmt.Errorf("it is of mode %q", cmp.Or(f.Mode, "auto"))
	}
	if err != nil {
		return fmt.Errorf("go on with %s: %w; remove it, or name another --out", path, err)
	}
	f.Seed = seed
	return nil
}

func (f *FaultReport) write(out string) error {
	if out == "" {
		return nil
	}
	data, err := json.MarshalIndent(f, "", " ")
	if err == nil {
		err = os.WriteFile(filepath.Join(out, "faults.json"), append(data, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	table, err := os.Create(filepath.Join(out, "faults.md"))
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	matrix.Table(table, f.Results)
	return table.Close()
}

package traffic

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"godwit/internal/oneline"
	"godwit/netstate/netns"
)

// keptOutput is how much of the end of a command's output is kept, in bytes.
const keptOutput = 16 << 10

// program is a flow that another program makes: kind exec or iperf3.
type program struct {
	Flow
	*tally
	cmd   *exec.Cmd
	ready chan struct{}
	over  chan struct{} // closed when it has exited

	state       sync.Mutex
	output      []byte
	started     bool
	err         error
	ended       int64 // unix ns; 0: it runs
	retransmits int64
	progress    int64
	others      others
}

func newProgram(f Flow) *program {
	p := &program{Flow: f, tally: newTally(now()), ready: make(chan struct{}), over: make(chan struct{})}
	if f.Kind == Exec {
		p.cmd = exec.Command("/bin/sh", "-c", f.Command)
	} else {
		p.cmd = exec.Command("iperf3", iperf3Args(f)...)
	}
	p.cmd.Env = append(os.Environ(), "GUEST="+f.Target.String())
	if f.Kind == Iperf3 && f.MPTCP {
		if wrap, _ := filepath.Glob("/usr/lib/*/mptcp*/libmptcpwrap.so*"); len(wrap) > 0 {
			p.cmd.Env = append(p.cmd.Env, "LD_PRELOAD="+wrap[0])
		}
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return p
}

// start runs the program; for iperf3 it returns when the first interval is told.
func (p *program) start(ctx context.Context) error {
	begun := make(chan error, 1)
	go p.run(begun)
	err := <-begun
	if err == nil && p.Kind == Iperf3 {
		select {
		case <-p.ready:
		case <-p.over:
			err = fmt.Errorf("ended at once: %s", p.output)
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-time.After(startLimit):
			err = fmt.Errorf("no first interval within %v", startLimit)
		}
		if err != nil {
			p.kill()
		}
	}
	if err != nil {
		return fmt.Errorf("start traffic %s: %s: %w", p.Name, p.Kind, err)
	}
	return nil
}

// run starts the program, reads what it says and waits for it.
func (p *program) run(begun chan<- error) {
	out, in, err := os.Pipe()
	if err != nil {
		begun <- err
		return
	}
	p.cmd.Stdout, p.cmd.Stderr = in, in
	err = netns.Start("", p.cmd)
	in.Close()
	begun <- err
	if err != nil {
		out.Close()
		return
	}
	read := make(chan struct{})
	go func() { defer close(read); p.read(out) }()
	err = p.cmd.Wait()
	// A background child of the command may keep the pipe open: don't wait for it for long.
	select {
	case <-read:
	case <-time.After(100 * time.Millisecond):
	}
	out.Close()
	<-read
	p.state.Lock()
	p.err, p.ended = err, now()
	p.state.Unlock()
	close(p.over)
}

func (p *program) read(out io.Reader) {
	lines := bufio.NewReaderSize(out, 64<<10)
	for {
		line, err := lines.ReadSlice('\n')
		p.state.Lock()
		p.output = append(p.output, line...)
		if extra := len(p.output) - keptOutput; extra > keptOutput {
			p.output = append(p.output[:0], p.output[extra:]...)
		}
		p.state.Unlock()
		if p.Kind == Iperf3 {
			p.state.Lock()
			p.others.told(string(line))
			p.state.Unlock()
			p.interval(string(line))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (p *program) interval(line string) {
	bytes, retransmits, ok := parseInterval(line, p.Connections)
	if !ok {
		return
	}
	at := now()
	p.mu.Lock()
	p.bytes += bytes
	p.records++
	p.buckets.add(at, int(bytes))
	p.mu.Unlock()
	p.state.Lock()
	defer p.state.Unlock()
	p.retransmits += retransmits
	if bytes > 0 {
		p.progress = at
		if !p.started {
			p.started = true
			close(p.ready)
		}
	}
}

// exited tells whether the program has ended, and how.
func (p *program) exited() (bool, error) {
	select {
	case <-p.over:
		return true, p.err
	default:
		return false, nil
	}
}

// kill ends the program, and all that it began and left in its process group.
func (p *program) kill() {
	group := p.cmd.Process.Pid
	if over, _ := p.exited(); !over {
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
	<-p.over
	endGroup(group)
}

func (p *program) sample(at int64) Sample {
	s := Sample{Flow: p.Name, Kind: p.Kind, Time: at, Connections: 1}
	p.tally.sample(&s, at, p.unpaced())
	if over, err := p.exited(); !over || err == nil {
		s.Alive = 1
	}
	p.state.Lock()
	defer p.state.Unlock()
	s.Retransmits = p.retransmits
	s.Gap = p.look(at)
	if s.Waiting, s.WaitingSince = p.others.longest(at); s.Alive == 0 {
		s.WaitingSince = 0
	}
	s.Remotes = p.remotes()
	if s.Subflows = subflowsOf(p.others.found); p.speaksMPTCP(p.others.found) {
		s.MPTCP = 1
	}
	return s
}

func (p *program) stop() Result {
	end := now()
	r := Result{Flow: p.Flow, End: end, RTTUnknown: "another program's connection"}
	over, err := p.exited()
	if p.Kind == Exec {
		r.Survived = !over || err == nil
		r.GapUnknown = "a command has no records"
	} else {
		r.Survived = !over && p.delivers(end)
	}
	p.state.Lock()
	p.others.next = 0
	p.look(end)
	found, ended, data := p.others.found, p.ended, p.others.forData()
	p.state.Unlock()
	p.kill()
	p.result(&r)
	r.Retransmits = p.retransmits
	r.Output = string(p.output[max(0, len(p.output)-keptOutput):])
	r.MPTCP = p.speaksMPTCP(found)
	c := Connection{Survived: r.Survived, First: p.Target, Last: p.progress, Ended: ended, MPTCP: r.MPTCP}
	if r.MPTCP {
		c.Remotes = everywhere(found)
		c.Moved = p.left(c.Remotes)
	}
	if over && err != nil {
		c.Error = howEnded(err, r.Output)
	}
	r.Connections = slices.Repeat([]Connection{c}, max(1, p.Connections)) // told apart by what was heard of each
	for i := range min(len(data), len(r.Connections)) {
		r.Connections[i].Remotes = everywhere(data[i : i+1])
		r.Connections[i].Moved = p.left(r.Connections[i].Remotes)
	}
	p.fillEach(&r, over)
	return r
}

// howEnded is a program's exit status and the last line that it wrote, if any.
func howEnded(err error, output string) string {
	output = strings.TrimSpace(output)
	if said := output[strings.LastIndexByte(output, '\n')+1:]; said != "" {
		return err.Error() + ": " + oneline.Of(said)
	}
	return err.Error()
}

// left says whether what has subflows to these addresses is on others than it began with.
func (p *program) left(remotes []netip.Addr) bool {
	return len(remotes) > 0 && !slices.Contains(remotes, p.Target)
}

// fillEach fills in how long each of the program's connections waited, and whether it still delivered.
func (p *program) fillEach(r *Result, over bool) {
	if p.Kind != Iperf3 {
		return
	}
	if len(p.others.heard) == 0 {
		r.GapUnknown = "nothing was seen to be acknowledged of what iperf3 sent"
	}
	all := slices.SortedFunc(maps.Values(p.others.heard), func(a, b *waits) int { return cmp.Compare(b.last, a.last) })
	for i, w := range all[:min(len(all), len(r.Connections))] {
		w.end(r.End)
		c := &r.Connections[i]
		w.describe(c)
		c.Survived = r.Survived || !over && w.last > p.since(r.End)
	}
}

// since is when a connection must have delivered that delivers at the end; some do rarely.
func (p *program) since(end int64) int64 { return end - int64(fresh) - 2*blockEvery(p.Flow) }

// delivers waits until each connection is fresh enough.
func (p *program) delivers(end int64) bool {
	since := p.since(end)
	for deadline := end + int64(finalWait) + min(end-since-int64(fresh), int64(2*finalWait)); ; time.Sleep(20 * time.Millisecond) {
		p.state.Lock()
		p.look(now())
		alive := p.others.fresh(since, p.Connections, p.progress)
		p.state.Unlock()
		over, _ := p.exited()
		if alive || over || now() > deadline {
			return alive && !over
		}
	}
}

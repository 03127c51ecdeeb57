package lab

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"godwit/internal/clock"
	"godwit/lab/scenario"
	"godwit/migration"
	"godwit/vm/guest"
)

const (
	// execLook is how often a command of a step is asked for its end.
	execLook = 200 * time.Millisecond
	// execDeaf is how long a guest may not answer for a command of a step: while it moves, or an
	// agent is down, nobody reaches it.
	execDeaf = time.Minute
)

// beginCommand begins a command, in single quotes, that writes into a folder. It may run more than once, as its answer
// may be lost, and a guest kills what takes it too long: what runs the command has a session of its own first, which
// outlives that, and then sees that it is the only one. The command is a script with another session, so that one with
// an error in it, or that ends its process group, is told from one that goes on.
const beginCommand = `[ ! -d %[1]s/begun ] || exit 0
mkdir -p %[1]s
printf '%%s\n' '%[2]s' >%[1]s/run.$$ && mv %[1]s/run.$$ %[1]s/run || { echo 126 >%[1]s/exit; exit 0; }
own=$(command -v setsid)
$own sh -c 'mkdir %[1]s/begun || exit
$0 sh %[1]s/run >%[1]s/out 2>&1 </dev/null
echo $? >%[1]s/exit.new; mv %[1]s/exit.new %[1]s/exit' "$own" >/dev/null 2>&1 </dev/null &`

// execStep runs a command of a step in a guest to its end, for as long as the run lasts: one that still runs
// then was meant to, as a load is. The command
// runs on its own there, so that it outlives the channel by which it was begun: the guest may move
// meanwhile.
func (r *run) execStep(ctx context.Context, e *scenario.Exec) error {
	r.mu.Lock()
	r.execs++
	dir := "/tmp/godwit-exec-" + strconv.Itoa(r.execs)
	r.mu.Unlock()
	ended := func(err error) {
		r.tell(fmt.Sprintf("exec in %s: %v, and so has the command: %s", e.Guest, err, e.Command))
	}
	_, err := r.askGuest(ctx, e.Guest, fmt.Sprintf(beginCommand, dir, strings.ReplaceAll(e.Command, "'", `'\''`)))
	if errors.Is(err, errEndedUnderIt) {
		ended(err)
		return nil
	}
	if err != nil && ctx.Err() != nil { // if it was begun, the answer is lost
		return fmt.Errorf("the run ended before the guest had said that it began %q", shown(e.Command))
	}
	if err != nil {
		return err
	}
	for clock.Sleep(ctx, execLook) {
		if r.over() {
			r.tell(fmt.Sprintf("exec in %s: it runs on, and is not waited for: %s", e.Guest, e.Command))
			return nil
		}
		out, err := r.askGuest(ctx, e.Guest, fmt.Sprintf("[ -d %s ] || { echo gone; exit 0; }; [ -e %[1]s/exit ] || exit 0; cat %[1]s/exit; tail -c 1500 %[1]s/out", dir))
		if errors.Is(err, errGuestEnded) {
			ended(err)
			return nil
		}
		if err != nil && r.over() {
			continue
		}
		if err != nil {
			return err
		}
		if code, said, over := strings.Cut(out, "\n"); over && code == "gone" {
			return errors.New("the guest was booted again under it")
		} else if over && code != "0" {
			return commandFailed(e.Command, code, said)
		} else if over {
			return nil
		}
	}
	return ctx.Err()
}

// shown names a command, as a run may have several.
func shown(command string) string {
	const most = 80
	if command = oneLine(strings.TrimSpace(command)); len(command) > most {
		command = strings.ToValidUTF8(command[:most], "") + "…"
	}
	return command
}

// commandFailed says how a command ended, and what it said, if anything.
func commandFailed(command, code, said string) error {
	if said = strings.TrimSpace(said); said != "" {
		said = ": " + said
	}
	return fmt.Errorf("exit %s of %q%s", code, shown(command), said)
}

// errGuestEnded says that a guest runs nowhere any more.
var errGuestEnded = errors.New("the guest has ended")

// errEndedUnderIt is that of a guest that may have run the command first: the answer to a call was not heard.
var errEndedUnderIt = fmt.Errorf("%w under it", errGuestEnded)

// stays says that a guest neither moves nor is booted again just now: then one that is not where it was has ended.
func (r *run) stays(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.booting[name]) == 0 && r.underWay(name) == nil
}

// askGuest runs a short command in a guest, wherever it is, and returns what it wrote. It may run
// more than once: a call that is cut off, or that the guest killed as it took too long, is repeated.
func (r *run) askGuest(ctx context.Context, name, command string) (string, error) {
	for deaf, unheard := time.Now(), false; ; {
		stays, host := r.stays(name), r.w.agentOf(name)
		var out guest.Executed
		ask, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := host.client.CallGuest(ask, name, "exec", guest.Exec{Command: command, TimeoutMS: 8000}, &out)
		cancel()
		if err == nil && out.TimedOut {
			err = errors.New("the guest took too long for it")
		}
		problem, told := errors.AsType[*migration.Problem](err)
		gone := told && problem.Code == migration.CodeUnknownGuest
		ended := gone && stays && r.stays(name) && r.w.agentOf(name) == host
		switch {
		case ended && unheard:
			return "", errEndedUnderIt
		case ended:
			return "", errGuestEnded
		case err == nil && out.Exit != 0:
			return "", fmt.Errorf("exit %d: %s%s", out.Exit, out.Stderr, out.Stdout)
		case err == nil:
			return out.Stdout, nil
		case time.Since(deaf) > execDeaf, !clock.Sleep(ctx, execLook):
			return "", err
		}
		unheard = unheard || !told
	}
}

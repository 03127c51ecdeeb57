package scenario

import (
	"fmt"
	"strings"

	"godwit/lab/image/workload"
)

const allowedRun = "dirty size= hot= rate= data=random|text|touch, disk write=SIZE data=, disk rate= area= data=, cpu, http, exec COMMAND, setup COMMAND"

// allowedCommands are the workloads that the QEMU guest agent runs.
const allowedCommands = "exec COMMAND, setup COMMAND"

// tinyOwn is of the memory of a guest of the image tiny what its kernel and programs need at the least,
// bytes: 87 MiB were in use at the most in one of 128 MiB that was loaded, throttled and moved.
const tinyOwn = 95 << 20

// runLines reads a guest's workloads by the guest's own parser, and checks that
// the guest has the memory and the disk that they need.
func (f *file) runLines(o *object, g *Guest) []string {
	var lines []string
	var dirty, disk int64
	for _, n := range o.list("run") {
		e := f.entry(o, "run", n)
		line, ok := e.text("run", "a workload, such as dirty size=100MiB hot=12% rate=8MiB/s")
		if !ok {
			continue
		}
		w, err := workload.Parse(line)
		if err != nil {
			what, allowed, ok := strings.Cut(err.Error(), "; allowed: ")
			if !ok {
				allowed = allowedRun
			}
			e.wrong("run", fmt.Sprintf("run of %s: %s", o.what, what), allowed)
			continue
		}
		if g.Agent == "qga" && w.Command == "" {
			e.wrong("run", fmt.Sprintf("run of %s: %s is of our helper, which does not answer there (agent: qga)", o.what, w.Kind), allowedCommands+", or agent: godwit")
		}
		if strings.ContainsRune(w.Command, 0) {
			e.wrong("run", "run of "+o.what+" has a zero byte, which no program can be given", allowedCommand)
		}
		dirty += w.Size
		room := int64(0)
		if g.Image == "tiny" {
			room = tinyOwn
		}
		if w.Kind == workload.Dirty && g.Memory > 0 && dirty+room >= g.Memory {
			e.wrong("run", fmt.Sprintf("%s dirties %d MiB and has %d MiB of memory", o.what, dirty>>20, g.Memory>>20),
				fmt.Sprintf("areas that leave more than %d MiB of the memory", room>>20))
		}
		switch disk += w.Write + w.Area; {
		case w.Kind != workload.Disk:
		case len(g.Disks) == 0:
			e.wrong("run", fmt.Sprintf("%s writes to a disk and has none", o.what), "disk: 1GiB beside it")
		case disk > g.Disks[0]:
			e.wrong("run", fmt.Sprintf("%s writes %d bytes to a disk of %d", o.what, disk, g.Disks[0]), "no more than the first disk has")
		}
		lines = append(lines, line)
	}
	return lines
}

package kerneltest

import (
	"bytes"
	_ "embed"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"godwit/internal/need"
	"godwit/lab/image"
	"godwit/lab/image/archive"
)

// root is the project's folder, seen from here.
const root = "../.."

//go:embed testdata/init
var firstProcess []byte

// modules are what hosts have and the image tiny does not: what the suites try, and what
// their worlds are made of.
var modules = []string{
	"virtio_pci", "virtio_console",
	"veth", "tun", "dummy", "bridge", "8021q",
	"wireguard", "vxlan", "ip_gre", "ip6_gre", "ipip", "ip6_tunnel",
	"sch_netem", "sch_tbf", "sch_ingress", "cls_bpf",
	"nf_tables", "nft_ct", "nft_meta_bridge", "nft_objref",
}

// programs are what the suites call by these names; of busybox is the rest. Its own shell would
// take the ip that it has itself.
var programs = map[string]string{"sh": "dash", "ip": "ip", "bridge": "bridge", "tc": "tc", "nft": "nft", "ps": "ps"}

// A suite is the tests of a package that are to run in the guest.
type suite struct {
	pkg      string
	args     []string // of the test binary
	want     []string // tests and subtests that have to pass there
	modules  []string // besides those that all have
	programs []string // likewise
}

// folder is the name of the suite's folder in the guest.
func (s suite) folder() string { return strings.ReplaceAll(s.pkg, "/", "-") }

// entriesOf are the guest's initial file system.
func entriesOf(t *testing.T, kernel string, suites ...suite) []archive.Entry {
	t.Helper()
	must := func(list []archive.Entry, err error) []archive.Entry {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	entries := []archive.Entry{
		{Path: "dev/console", Mode: 0o600, Device: &archive.Device{Major: 5, Minor: 1}},
		{Path: "init", Mode: 0o755, Content: firstProcess},
		{Path: "etc/protocols", Mode: 0o644, Content: []byte("icmp 1\ntcp 6\nudp 17\nipv6-icmp 58\n")}, // names for nft
	}
	names, programs := slices.Clone(modules), maps.Clone(programs)
	for _, s := range suites {
		names = append(names, s.modules...)
		for _, program := range s.programs {
			programs[program] = program
		}
	}
	entries = append(entries, must(archive.Modules(modulesOf(t, kernel), names))...)
	add := func(from, to string) {
		t.Helper()
		entries = append(entries, executable(t, from, to))
	}
	taken := map[string]bool{}
	var paths []string
	for name, program := range programs {
		path := which(t, program)
		paths, taken["bin/"+name] = append(paths, path), true
		add(path, "bin/"+name)
	}
	entries = append(entries, must(archive.Libraries(paths...))...)
	for _, applet := range must(archive.Busybox(which(t, "busybox"))) {
		if !taken[applet.Path] {
			entries = append(entries, applet)
		}
	}
	for _, s := range suites {
		folder := "suites/" + s.folder()
		add(compile(t, s.pkg), folder+"/test")
		entries = append(entries, archive.Entry{Path: folder + "/args", Mode: 0o644, Content: []byte(strings.Join(s.args, "\n") + "\n")})
	}
	return entries
}

func executable(t *testing.T, from, to string) archive.Entry {
	t.Helper()
	file, err := archive.File(from, to)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// write makes the initial file system, and returns its path.
func write(t *testing.T, entries []archive.Entry) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "initrd.img")
	file, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := archive.Write(file, entries); err != nil {
		t.Fatal(err)
	}
	return out
}

func which(t *testing.T, name string) string {
	t.Helper()
	need.Program(t, name)
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// compile makes the test binary of a package, as it would be without C.
func compile(t *testing.T, pkg string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "test")
	build := exec.Command("go", "test", "-c", "-trimpath", "-ldflags", "-s -w", "-o", out, "./"+pkg)
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build tests of %s: %v\n%s", pkg, err, said)
	}
	return out
}

// kernelOf is the kernel that the lab's guests boot.
func kernelOf(t *testing.T) string {
	t.Helper()
	folder := os.Getenv(image.Variable)
	if folder == "" {
		folder = filepath.Join(root, "build", "guest")
	}
	kernel := filepath.Join(folder, image.KernelFile)
	need.File(t, kernel)
	return kernel
}

// modulesOf is the folder of a kernel's modules, which scripts/guest-image keeps.
func modulesOf(t *testing.T, kernel string) string {
	t.Helper()
	want, err := os.ReadFile(kernel)
	if err != nil {
		t.Fatal(err)
	}
	kept, _ := filepath.Glob(filepath.Join(root, "build/kernel/*/boot/vmlinuz-*"))
	at := slices.IndexFunc(kept, func(path string) bool {
		have, err := os.ReadFile(path)
		return err == nil && bytes.Equal(have, want)
	})
	if at < 0 {
		need.File(t, filepath.Join(root, "build/kernel/(package of "+kernel+")"))
	}
	tree := filepath.Dir(filepath.Dir(kept[at]))
	version := strings.TrimPrefix(filepath.Base(kept[at]), "vmlinuz-")
	for _, folder := range []string{"lib/modules", "usr/lib/modules"} {
		if path := filepath.Join(tree, folder, version); exists(path) {
			return path
		}
	}
	t.Fatalf("no modules of %s in %s", version, tree)
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

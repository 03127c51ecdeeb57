package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"godwit/lab/traffic/record"
	"godwit/lab/traffic/serve"
)

// maxBytes bounds an answer of /bytes/N.
const maxBytes = 16 << 30

// serveHTTP answers on port 80 of all addresses: a page, and /bytes/N, which is N
// bytes.
func serveHTTP() error {
	var listening net.ListenConfig
	listening.SetMultipathTCP(true)
	listener, err := listening.Listen(context.Background(), "tcp", ":80")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, "<!doctype html><title>godwit guest</title><p>A guest of Godwit's lab, asked at %s.\n", r.Context().Value(http.LocalAddrContextKey))
	})
	mux.HandleFunc("GET /bytes/{n}", serveBytes)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 30 * time.Second}
	go func() { say("http: %v", server.Serve(listener)) }()
	return nil
}

func serveBytes(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.PathValue("n"), 10, 64)
	if err != nil || n < 0 || n > maxBytes {
		http.Error(w, fmt.Sprintf("a number of bytes up to %d, please", int64(maxBytes)), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	block := bytes.Repeat([]byte("godwit\n\x00"), 4096)
	for n > 0 {
		part := block[:min(n, int64(len(block)))]
		if _, err := w.Write(part); err != nil {
			return
		}
		n -= int64(len(part))
	}
}

// These make this program the services of the traffic generators.
const (
	servicesArgument = "services"
	ticksArgument    = "ticks"
	echoArgument     = "echo"
)

// withHTTP behind it adds those of port 80.
const withHTTP = "http"

// mostFiles may be open in the process of the services; the kernel gives the first process,
// and so its children, 4096.
const mostFiles = 65536

// runServices serves in a process of its own: a guest that is busy with its clients
// must still hear its host.
func runServices(with []string) error {
	beService()
	if err := serve.Start(context.Background(), record.PortEcho, record.PortTicks); err != nil {
		return fmt.Errorf("traffic services: %w", err)
	}
	if slices.Contains(with, withHTTP) {
		if err := serveHTTP(); err != nil {
			return fmt.Errorf("http service: %w", err)
		}
	}
	say("services are up")
	select {}
}

// runTicks serves the ticks, in a process that runs before others.
func runTicks() error {
	beService()
	return fmt.Errorf("traffic services: %w", serve.Ticks())
}

func beService() {
	notFirst()
	keepSmall()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: mostFiles, Max: mostFiles}); err != nil {
		say("room for %d connections: %v", mostFiles, err)
	}
}

// startServices keeps the services of the traffic generators, in three processes: ticks and the echo run before others.
// It returns when those for streams answer, or soon after. with is for the services.
func startServices(children *family, with ...string) {
	for _, arguments := range [][]string{append([]string{servicesArgument}, with...), {ticksArgument}, {echoArgument}} {
		keep(arguments[0], children, func() *exec.Cmd { return exec.Command("/proc/self/exe", arguments...) })
	}
	awaitService(record.PortRequests)
	awaitService(record.PortTicks)
}

func awaitService(port int) {
	for range 200 {
		conn, err := new(net.Dialer).DialContext(context.Background(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			conn.Close()
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	say("port %d does not answer", port)
}

const iperfProgram = "/usr/bin/iperf3"

// mptcpPreloads are where the library is that turns socket(…TCP) into socket(…MPTCP):
// in the image tiny, and in Debian's package mptcpize.
var mptcpPreloads = []string{"/usr/lib/libmptcpwrap.so", "/usr/lib/*/mptcpize/libmptcpwrap.so.0"}

// startIperf keeps an iperf3 server on port 5201, if the image has one.
func startIperf(children *family) {
	if _, err := os.Stat(iperfProgram); err != nil {
		return
	}
	keep("iperf3", children, func() *exec.Cmd {
		command := exec.Command(iperfProgram, "-s", "-p", "5201")
		command.Env = os.Environ()
		for _, pattern := range mptcpPreloads {
			if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
				command.Env = append(command.Env, "LD_PRELOAD="+found[0])
			}
		}
		return command
	})
}

// keep runs a command, and again when it ends.
func keep(name string, children *family, command func() *exec.Cmd) {
	go func() {
		for {
			c := command()
			err := children.start(c)
			if err == nil {
				err = children.wait(c)
			}
			say("%s ended: %v", name, err)
			time.Sleep(time.Second)
		}
	}()
}

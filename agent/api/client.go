// Package api is what people and programs of a host may ask its agent over its unix socket: the words of questions and
// answers, and the client that asks.
package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/record"
	"godwit/migration"
)

// Client asks an agent over its unix socket.
type Client struct {
	socket  string
	http    *http.Client
	silence time.Duration // see Do
}

// silence is how long an agent may take for what is asked of it and changes nothing: its own limits for that are shorter.
const silence = 30 * time.Second

// silent says that it took longer, and how long it had.
type silent time.Duration

func (s silent) Error() string { return "no answer for " + time.Duration(s).String() }

// NewClient prepares a client; nothing is dialled yet.
func NewClient(socket string) *Client {
	return &Client{socket: socket, silence: silence, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		IdleConnTimeout: time.Minute,
	}}}
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// ask bounds a question: an agent that hangs, as one that is stopped or whose disk is, takes connections all the same.
func ask(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, silent(limit))
}

// unanswered is why an agent that was reached did not answer.
func (c *Client) unanswered(ctx context.Context, err error) error {
	var limit silent
	switch {
	case errors.As(context.Cause(ctx), &limit):
		return noAgent{&migration.Problem{Code: migration.CodePeer, Text: fmt.Sprintf(
			"ask agent at %s: it is there, and has not answered for %s; see its log, and start it again: guests run on meanwhile", c.socket, time.Duration(limit))}}
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("ask agent at %s: no answer in time, and it may have done what it was asked to; see its log, and `godwit history` once it answers: %w", c.socket, err)
	}
	return fmt.Errorf("ask agent at %s: %w", c.socket, err)
}

// Do asks once; a GET has its answer within half a minute or an error that says so. A *migration.Problem is the agent's
// own word.
func (c *Client) Do(ctx context.Context, method, path string, request, answer any) error {
	if method == http.MethodGet {
		asked, cancel := ask(ctx, c.silence)
		defer cancel()
		ctx = asked
	}
	resp, err := c.open(ctx, method, path, request)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return c.unanswered(ctx, err)
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("ask agent at %s: what answers is no agent, or one of another release: %w; name the agent's socket by --socket", c.socket, err)
	}
	return nil
}

// asking is how long an agent may take, in silences, which asks others: a guest, another host, each for as long as its
// limits say, or a fence.
const asking = 4

// tell asks for what an agent does within so many silences.
func (c *Client) tell(ctx context.Context, silences int, path string, request any) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(silences)*c.silence)
	defer cancel()
	return c.Do(ctx, http.MethodPost, path, request, nil)
}

// open asks once and returns an answer that is no error; its body is the caller's to close.
func (c *Client) open(ctx context.Context, method, path string, request any) (*http.Response, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			return nil, undialled(c.socket, op)
		}
		return nil, c.unanswered(ctx, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	problem := &migration.Problem{}
	if err == nil && json.Unmarshal(data, problem) == nil && problem.Text != "" {
		return nil, problem
	}
	if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMethodNotAllowed { // of what agents know they say more
		return nil, fmt.Errorf("ask agent at %s: it does not know what it is asked, as one of another release (%s); start it again by the godwit of this release", c.socket, resp.Status)
	}
	return nil, fmt.Errorf("ask agent at %s: %s", c.socket, resp.Status)
}

// undialled says why no agent was reached, and what to do: it may be there all the same.
func undialled(socket string, err error) error {
	code, why := migration.CodePeer, "nobody answers; `systemctl status godwit` says why, or start one by `godwit agent --config FILE`"
	info, serr := os.Stat(socket)
	switch {
	case errors.Is(err, fs.ErrPermission):
		code, why = migration.CodeUsage, "no permission to ask it; run the command as root"
	case serr == nil && info.Mode().Type() != fs.ModeSocket, errors.Is(err, syscall.EPROTOTYPE):
		code, why = migration.CodeUsage, "that is not an agent's socket; name it by --socket, or the agent's configuration by --config"
	case errors.Is(err, syscall.EINVAL):
		code, why = migration.CodeUsage, "no socket's path is that long; name the agent's by --socket"
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED): // such as a queue that is full
		why = err.Error()
	}
	problem := &migration.Problem{Code: code, Text: fmt.Sprintf("ask agent at %s: %s", socket, why)}
	if code == migration.CodePeer {
		return noAgent{problem}
	}
	return problem
}

// noAgent is of a socket at which nobody answers.
type noAgent struct{ *migration.Problem }

func (n noAgent) Unwrap() error { return n.Problem }

// Unanswered says whether err of a Client's is no word of its agent's: that may be started again just now, and
// have done what it was asked to.
func Unanswered(err error) bool {
	var problem *migration.Problem
	var nobody noAgent
	return err != nil && (!errors.As(err, &problem) || errors.As(err, &nobody))
}

// NotAsked says whether err of a Client's is that nobody took the question: nothing came of it.
func NotAsked(err error) bool {
	var nobody noAgent
	return errors.As(err, &nobody)
}

// Host describes the agent's host.
func (c *Client) Host(ctx context.Context) (HostInfo, error) {
	var info HostInfo
	err := c.Do(ctx, http.MethodGet, "/v1/host", nil, &info)
	return info, err
}

// Neighbours asks the other hosts that the agent knows what they are, for 2 s at the most.
func (c *Client) Neighbours(ctx context.Context) ([]NeighbourInfo, error) {
	var all []NeighbourInfo
	err := c.Do(ctx, http.MethodGet, "/v1/neighbours", nil, &all)
	return all, err
}

// Metrics copies the host's metrics to w, in the Prometheus text format.
func (c *Client) Metrics(ctx context.Context, w io.Writer) error {
	ctx, cancel := ask(ctx, c.silence)
	defer cancel()
	resp, err := c.open(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body) // before any is written: a reader may take its time
	if err != nil {
		return c.unanswered(ctx, err)
	}
	_, err = w.Write(text)
	return err
}

// StartGuest takes a guest under care; see Description. One that runs already has a bound, one that is to boot has none.
func (c *Client) StartGuest(ctx context.Context, d config.Description) (care.Held, error) {
	if d.QMP != "" {
		asked, cancel := context.WithTimeout(ctx, asking*c.silence)
		defer cancel()
		ctx = asked
	}
	var held care.Held
	err := c.Do(ctx, http.MethodPost, "/v1/guests", d, &held)
	return held, err
}

// StopGuest ends a guest.
func (c *Client) StopGuest(ctx context.Context, name string) error {
	return c.Do(ctx, http.MethodDelete, "/v1/guests/"+url.PathEscape(name), nil, nil)
}

// ForgetGuest ends the care of a guest that was adopted there; it runs on.
func (c *Client) ForgetGuest(ctx context.Context, name string) error {
	return c.tell(ctx, 1, "/v1/guests/"+url.PathEscape(name)+"/forget", nil)
}

// Ended are the guests that have ended on the agent's host by themselves, and are under nobody's care.
func (c *Client) Ended(ctx context.Context) ([]care.Ended, error) {
	var all []care.Ended
	err := c.Do(ctx, http.MethodGet, "/v1/ended", nil, &all)
	return all, err
}

// DropEnded forgets that one of them did.
func (c *Client) DropEnded(ctx context.Context, name string) error {
	return c.Do(ctx, http.MethodDelete, "/v1/ended/"+url.PathEscape(name), nil, nil)
}

// ForgetAway ends what the agent's host leads after a guest that left it and runs nowhere any more.
func (c *Client) ForgetAway(ctx context.Context, name string) (Forgotten, error) {
	ctx, cancel := context.WithTimeout(ctx, asking*c.silence)
	defer cancel()
	var gone Forgotten
	err := c.Do(ctx, http.MethodPost, "/v1/guests/"+url.PathEscape(name)+"/forget-away", nil, &gone)
	return gone, err
}

// CallGuest asks the guest itself, over its channel.
func (c *Client) CallGuest(ctx context.Context, name, method string, params, result any) error {
	data, err := json.Marshal(params)
	if err != nil {
		return err
	}
	call := GuestCall{Method: method, Params: data}
	if deadline, ok := ctx.Deadline(); ok {
		call.WaitMS = int(time.Until(deadline).Milliseconds())
	}
	return c.Do(ctx, http.MethodPost, "/v1/guests/"+url.PathEscape(name)+"/call", call, result)
}

// Migrate begins a migration.
func (c *Client) Migrate(ctx context.Context, req migration.Request) (string, error) {
	var answer MigrateAnswer
	err := c.Do(ctx, http.MethodPost, "/v1/migrations", req, &answer)
	return answer.ID, err
}

// Plan asks what a migration would be; see Agent.Plan.
func (c *Client) Plan(ctx context.Context, req migration.Request) (record.Report, error) {
	var rep record.Report
	ctx, cancel := ask(ctx, asking*c.silence)
	defer cancel()
	err := c.Do(ctx, http.MethodPost, "/v1/plan", req, &rep)
	return rep, err
}

// Abort asks a migration to turn back.
func (c *Client) Abort(ctx context.Context, id string) error {
	return c.tell(ctx, 1, "/v1/migrations/"+url.PathEscape(id)+"/abort", nil)
}

// SetBandwidth limits a migration under way, in bit/s over all paths; 0: no limit.
func (c *Client) SetBandwidth(ctx context.Context, id string, bits int64) error {
	return c.tell(ctx, 1, "/v1/migrations/"+url.PathEscape(id)+"/bandwidth", Bandwidth{bits})
}

// Doubts are what a person may have to decide about, on a migration's id or guest; ""
// for all.
func (c *Client) Doubts(ctx context.Context, about string) ([]Doubt, error) {
	var out []Doubt
	err := c.Do(ctx, http.MethodGet, "/v1/doubts?about="+url.QueryEscape(about), nil, &out)
	return out, err
}

// TakeBack gives a guest that was let go back to this host; see docs/ownership.md.
func (c *Client) TakeBack(ctx context.Context, id string, word TakeBack) error {
	return c.tell(ctx, asking, "/v1/migrations/"+url.PathEscape(id)+"/take-back", word)
}

// GiveUp lets a guest that may have run on this host go back to its source.
func (c *Client) GiveUp(ctx context.Context, id string) error {
	return c.tell(ctx, asking, "/v1/migrations/"+url.PathEscape(id)+"/give-up", nil)
}

// Keep lets a guest that landed on this host be moved on though its source has not said that it
// heard of the landing.
func (c *Client) Keep(ctx context.Context, id string, word TakeBack) error {
	return c.tell(ctx, asking, "/v1/migrations/"+url.PathEscape(id)+"/keep", word)
}

// Report is what the agent knows of a migration.
func (c *Client) Report(ctx context.Context, id string) (record.Report, error) {
	var rep record.Report
	err := c.Do(ctx, http.MethodGet, "/v1/migrations/"+url.PathEscape(id), nil, &rep)
	return rep, err
}

// Reports are the host's migrations, the newest first, also of earlier agents.
func (c *Client) Reports(ctx context.Context) ([]record.Report, error) {
	var out []record.Report
	err := c.Do(ctx, http.MethodGet, "/v1/migrations", nil, &out)
	return out, err
}

// Events returns what happened after event number n, waiting for it some seconds.
func (c *Client) Events(ctx context.Context, id string, n int) (record.EventsAnswer, error) {
	var out record.EventsAnswer
	err := c.Do(ctx, http.MethodGet, fmt.Sprintf("/v1/migrations/%s/events?after=%d", url.PathEscape(id), n), nil, &out)
	return out, err
}

// Tunnels lists what uses the host's tunnels, by guest.
func (c *Client) Tunnels(ctx context.Context) ([]TunnelUse, error) {
	var out []TunnelUse
	err := c.Do(ctx, http.MethodGet, "/v1/tunnels", nil, &out)
	return out, err
}

// EndDetours ends every lease of the host.
func (c *Client) EndDetours(ctx context.Context) error {
	return c.Do(ctx, http.MethodPost, "/v1/detours/end", nil, nil)
}

// Shutdown ends everything on the host but the agent itself.
func (c *Client) Shutdown(ctx context.Context) error {
	return c.Do(ctx, http.MethodPost, "/v1/shutdown", nil, nil)
}

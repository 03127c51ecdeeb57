package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"godwit/migration"
)

// Client asks an agent over its unix socket.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient prepares a client; nothing is dialled yet.
func NewClient(socket string) *Client {
	return &Client{socket: socket, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		IdleConnTimeout: time.Minute,
	}}}
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Do asks once. A *migration.Problem is the agent's own word.
func (c *Client) Do(ctx context.Context, method, path string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			return &migration.Problem{Code: migration.CodePeer, Text: fmt.Sprintf("ask agent at %s: nobody answers; start one with `godwit agent --config FILE`", c.socket)}
		}
		return fmt.Errorf("ask agent at %s: %w", c.socket, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("ask agent at %s: %w", c.socket, err)
	}
	if resp.StatusCode != http.StatusOK {
		problem := &migration.Problem{}
		if json.Unmarshal(data, problem) == nil && problem.Text != "" {
			return problem
		}
		return fmt.Errorf("ask agent at %s: %s", c.socket, resp.Status)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(data, answer)
}

// Host describes the agent's host.
func (c *Client) Host(ctx context.Context) (HostInfo, error) {
	var info HostInfo
	err := c.Do(ctx, http.MethodGet, "/v1/host", nil, &info)
	return info, err
}

// StartGuest takes a guest under care; see Description.
func (c *Client) StartGuest(ctx context.Context, d Description) (Held, error) {
	var held Held
	err := c.Do(ctx, http.MethodPost, "/v1/guests", d, &held)
	return held, err
}

// StopGuest ends a guest.
func (c *Client) StopGuest(ctx context.Context, name string) error {
	return c.Do(ctx, http.MethodDelete, "/v1/guests/"+name, nil, nil)
}

// ForgetGuest ends the care of a guest that was adopted there; it runs on.
func (c *Client) ForgetGuest(ctx context.Context, name string) error {
	return c.Do(ctx, http.MethodPost, "/v1/guests/"+name+"/forget", nil, nil)
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
	return c.Do(ctx, http.MethodPost, "/v1/guests/"+name+"/call", call, result)
}

// Migrate begins a migration.
func (c *Client) Migrate(ctx context.Context, req migration.Request) (string, error) {
	var answer MigrateAnswer
	err := c.Do(ctx, http.MethodPost, "/v1/migrations", req, &answer)
	return answer.ID, err
}

// Plan asks what a migration would be; see Agent.Plan.
func (c *Client) Plan(ctx context.Context, req migration.Request) (Report, error) {
	var rep Report
	err := c.Do(ctx, http.MethodPost, "/v1/plan", req, &rep)
	return rep, err
}

// Abort asks a migration to turn back.
func (c *Client) Abort(ctx context.Context, id string) error {
	return c.Do(ctx, http.MethodPost, "/v1/migrations/"+id+"/abort", nil, nil)
}

// Report is what the agent knows of a migration.
func (c *Client) Report(ctx context.Context, id string) (Report, error) {
	var rep Report
	err := c.Do(ctx, http.MethodGet, "/v1/migrations/"+id, nil, &rep)
	return rep, err
}

// Reports are the migrations since the agent started.
func (c *Client) Reports(ctx context.Context) ([]Report, error) {
	var out []Report
	err := c.Do(ctx, http.MethodGet, "/v1/migrations", nil, &out)
	return out, err
}

// Events returns what happened after event number n, waiting for it some seconds.
func (c *Client) Events(ctx context.Context, id string, n int) (EventsAnswer, error) {
	var out EventsAnswer
	err := c.Do(ctx, http.MethodGet, fmt.Sprintf("/v1/migrations/%s/events?after=%d", id, n), nil, &out)
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

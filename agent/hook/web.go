package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"godwit/internal/oneline"
	"godwit/migration"
)

// answerMost bounds what is read of an answer, bytes.
const answerMost = 4 << 10

// newClient calls directly, without a proxy, and follows no redirection: a hook that is
// not where it should be is a failure.
func newClient() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: 1, ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (s *Set) webHook(h HTTP) hook {
	return hook{
		name: h.URL, timeout: h.Timeout, goesOn: h.OnFailure == Continue,
		run: func(ctx context.Context, c Call) error { return s.post(ctx, h.URL, c) },
	}
}

// post calls by HTTP: 2xx is go, the first line of anything else is why not.
func (s *Set) post(ctx context.Context, url string, c Call) error {
	body, err := json.Marshal(c)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return errors.New(oneline.Of(err.Error())) // which may quote what was answered
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, answerMost))
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return nil
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(data)), "\n")
	if line = oneLine(line); line == "" || err != nil {
		return fmt.Errorf("answered %s", oneLine(resp.Status))
	}
	return fmt.Errorf("answered %s: %s", oneLine(resp.Status), line)
}

// problemText is the line of a failure.
func problemText(err error) string {
	var problem *migration.Problem
	if errors.As(err, &problem) {
		return problem.Text
	}
	return err.Error()
}
